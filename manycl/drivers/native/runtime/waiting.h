/* Host threads that wait. Waking a worker takes some 40 us on virtual machines, more than most commands: so a host thread
   that waits takes the place of the worker of its core, if that one sleeps, and does what it would do. */
#ifndef MANYCL_WAITING_H
#define MANYCL_WAITING_H

#include "workers.h"

enum {
    HOST_SPIN = 20000,      /* ns that a host thread looks for news in a worker's place, ... */
    WAITER_SPIN = 4000,     /* ... and that it does beside all workers, before it sleeps */
    HOST_TURN = 10000000,   /* ns that it works before Python is asked whether a signal has come */
    HOST_BLOCK = 5000000,   /* ns: the longest work-group that it takes; nobody hears of signals meanwhile */
    LOOK_AGAIN = 100000000, /* ns: sleep at most, as a signal may have come just before */
};

/* What a host thread does in a worker's place: wait for a command of a queue. */
struct turn {
    struct worker *worker;
    struct queue *queue;
    u64 number;
    int is_over; /* whether it is complete */
    int is_long; /* whether it has been at it for so long that Python is to be asked */
};

/* The worker of this core if it sleeps, which sleeps on until the place is given back; with the lock. */
static struct worker *replace_worker(struct device *device) {
    if (load(&device->is_replaced) || !device->host_stack) return NULL;
    int core = sched_getcpu();
    struct worker **at = &device->asleep;
    while (*at && (*at)->core >= 0 && (*at)->core != core) at = &(*at)->next;
    struct worker *worker = *at;
    if (!worker) return NULL;
    *at = worker->next;
    store(&device->is_replaced, 1);
    return worker;
}

/* Whether there is work for a host thread: a work-group of which takes little time, as far as is known, and which does
   not call Python. With the lock. */
static int has_work(struct device *device) {
    struct command *command = device->first ? device->first : device->open ? device->open->command : NULL;
    if (load(&device->is_held)) return 0;
    if (!command || (command->shape && command->shape->reports)) return 0;
    u64 cost = command->shape && !command->cost ? peek(&command->shape->cost) : command->cost;
    return cost && cost / 1024 <= HOST_BLOCK;
}

/* As begin() of workers. */
static void work_here(void *argument) {
    struct turn *turn = argument;
    struct worker *worker = turn->worker;
    struct device *device = worker->device;
    struct command *over = NULL;
    struct work work = {NULL, NULL, 0};
    u32 drained = 0, spun = 0, tired = 0;
    u64 began = now(), since = began;
    worker->until = began + HOST_TURN;
    for (;;) {
        struct call call = {0};
        take(&device->lock);
        store(&device->spinning, device->spinning - spun);
        if (spun) store(&device->host_spins, 0);
        spun = 0;
        if (work.slot) leave(device, work.slot, drained);
        if (over) complete(over, &call);
        over = NULL;
        turn->is_over = turn->queue->completed >= turn->number;
        turn->is_long = now() > worker->until;
        int ends = turn->is_over || turn->is_long || tired;
        worker->was_ready = 0; /* it chooses what has_work() has seen */
        work = !ends && has_work(device) ? choose(worker, &call) : (struct work){NULL, NULL, 0};
        u32 found = work.slot || work.command, news = device->news;
        ends = ends || (!found && (device->first || device->open)); /* what is not for us */
        if (!found && ends) {
            worker->until = 0;
            trim(worker);
            worker->next = device->asleep;
            device->asleep = worker;
            if (device->first || device->open || (device->closing && !device->pending)) call_one(device, &call);
        } else if (!found) {
            spun = 1;
            store(&device->spinning, device->spinning + 1);
            store(&device->host_spins, 1);
        }
        give(&device->lock);
        ring(&call);
        if (found) {
            over = perform(worker, &work, &drained);
            since = now();
        } else if (ends) {
            return;
        } else {
            while (load(&turn->queue->completed) < turn->number && load(&device->news) == news && !tired) {
                for (int i = 0; i < 20; i++) relax();
                tired = now() - since > HOST_SPIN;
            }
        }
    }
}

/* Work in the place of a worker, if one can be replaced, until a command is complete or there has been nothing to do for
   some time. */
static void take_turn(struct turn *turn) {
    struct device *device = turn->queue->device;
    take(&device->lock);
    turn->is_over = turn->queue->completed >= turn->number;
    if (!turn->is_over) turn->worker = replace_worker(device);
    give(&device->lock);
    if (!turn->worker) return;
    u32 floats = float_state();
    set_float_state(turn->worker->floats);
    run_kernels_as(turn->worker, device->host_stack + STACK);
    call_on(device->host_stack + STACK, work_here, turn);
    run_kernels_as(NULL, NULL);
    set_float_state(floats);
    store(&device->is_replaced, 0); /* the worker has its place again, and now the stack is free, too */
}

/* Until a command of a queue is complete (0), or the program may want to see to its signals (1). */
static int wait_for(struct queue *queue, u64 number) {
    struct device *device = queue->device;
    struct turn turn = {.queue = queue, .number = number};
    take_turn(&turn);
    if (turn.is_over || turn.is_long) return !turn.is_over;
    int is_alone = device->count == 1 && device->workers[0].core == sched_getcpu(); /* with the thread that it waits for */
    for (u64 since = now(); !turn.worker && !is_alone && now() - since < WAITER_SPIN;)
        for (int i = 0; i < 20; i++) {
            if (load(&queue->completed) >= number) return 0;
            relax();
        }
    struct waiter waiter = {.number = number};
    struct call call = {0};
    take(&device->lock);
    int is_over = queue->completed >= number;
    if (!is_over) {
        waiter.next = queue->waiters;
        queue->waiters = &waiter;
    }
    if (device->first) call_one(device, &call); /* nobody has taken it: who looks for news may have lost its core */
    give(&device->lock);
    ring(&call);
    if (is_over) return 0;
    __atomic_store_n(&device->host, -1, __ATOMIC_RELAXED);
    while (!load(&waiter.over)) {
        if (!futex_wait_until_signal(&waiter.over, 0, LOOK_AGAIN)) continue;
        take(&device->lock);
        is_over = (int)waiter.over;
        if (!is_over) {
            struct waiter **at = &queue->waiters;
            while (*at != &waiter) at = &(*at)->next;
            *at = waiter.next;
        }
        give(&device->lock);
        return !is_over;
    }
    return 0;
}

#endif
