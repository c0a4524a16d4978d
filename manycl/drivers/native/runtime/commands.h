/* Commands: made, ready, complete. */
#ifndef MANYCL_COMMANDS_H
#define MANYCL_COMMANDS_H

#include "device.h"

enum { SMALL = 1024, TIMES = 1024 };

/* A number that a queue has given is that of a command, in its structure, as long as it is not complete. */
static inline struct command **place(struct queue *queue, u64 number) { return &queue->ring[number & queue->mask]; }

/* Memory for a command with `extra` bytes behind its structure, NULL where there is none. Small ones have one size, and
   come back to the queue; only the thread that enqueues takes them. */
static struct command *new_command(struct queue *queue, u64 extra) {
    u64 nbytes = sizeof(struct command) + extra;
    struct command *made = NULL;
    if (nbytes <= SMALL) {
        nbytes = SMALL;
        if (!queue->free) queue->free = __atomic_exchange_n(&queue->returned, NULL, __ATOMIC_ACQUIRE);
        made = queue->free;
        if (made) queue->free = made->next;
    }
    void *memory = made;
    if (!made && posix_memalign(&memory, 128, nbytes)) return NULL;
    made = memory;
    memset(made, 0, sizeof *made);
    made->queue = queue;
    made->nbytes = nbytes;
    return made;
}

static void give_back(struct command *command) {
    struct queue *queue = command->queue;
    if (command->nbytes != SMALL) {
        free(command);
        return;
    }
    struct command *before = peek(&queue->returned);
    do command->next = before;
    while (!__atomic_compare_exchange_n(&queue->returned, &before, command, 1, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
}

/* Have a sleeping worker called, if there is one, rather not the one of the host's core; with the lock. */
static int call_one(struct device *device, struct call *call) {
    if (!device->asleep || call->count >= sizeof call->workers / sizeof *call->workers) return 0;
    struct worker **at = &device->asleep;
    if ((*at)->core == peek(&device->host) && (*at)->core >= 0 && (*at)->next) at = &(*at)->next;
    struct worker *worker = *at;
    *at = worker->next;
    call->workers[call->count++] = worker;
    return 1;
}

static void meet(struct command *command);

/* Without the lock. */
static void ring(struct call *call) {
    for (u32 i = 0; i < call->count; i++) {
        store(&call->workers[i]->bell, 1);
        futex_wake(&call->workers[i]->bell, 1);
    }
    for (u32 i = 0; i < call->waiters; i++) futex_wake(call->words[i], 1);
    for (struct edge *edge = call->across, *next; edge; edge = next) {
        next = edge->next; /* the edge goes with its command, which may be complete soon */
        meet(edge->waiting);
    }
    call->count = call->waiters = 0;
    call->across = NULL;
}

static void push_ready(struct device *device, struct command *command) {
    command->next = NULL;
    if (device->first)
        device->last->next = command;
    else
        device->first = command;
    device->last = command;
    store(&device->ready, device->ready + 1);
    store(&device->news, device->news + 1);
}

static struct command *pop_ready(struct device *device) {
    struct command *command = device->first;
    if (command) {
        device->first = command->next;
        store(&device->ready, device->ready - 1);
    }
    return command;
}

/* It may be the turn of a command of a queue, if it waits for nothing; with the lock. */
static void look_at(struct queue *queue, u64 number) {
    if (number <= queue->completed || number > queue->given) return;
    struct command *command = *place(queue, number);
    if (number != queue->completed + 1 && !(command->is_beside && number <= queue->reached + 1)) return;
    if (command->unmet || command->is_shown) return;
    command->is_shown = 1;
    push_ready(queue->device, command);
}

/* A command that is not complete has no blocks left to be taken; with the lock. */
static void reach(const struct command *command) {
    command->queue->reached = command->number;
    look_at(command->queue, command->number + 1);
}

/* One of the commands that a command of another device waited for is complete; without a lock. */
static void meet(struct command *command) {
    struct device *device = command->queue->device;
    struct call call = {0};
    take(&device->lock);
    if (!--command->unmet) look_at(command->queue, command->number);
    if (device->first && !device->spinning) call_one(device, &call);
    give(&device->lock);
    ring(&call);
}

/* Room for one more command in the ring; with the lock. */
static int widen(struct queue *queue) {
    u64 used = queue->given - queue->completed, room = queue->mask + 1;
    if (used < room) return 1;
    struct command **wider = calloc(2 * room, sizeof *wider);
    if (!wider) return 0;
    for (u64 n = queue->completed + 1; n <= queue->given; n++) wider[n & (2 * room - 1)] = *place(queue, n);
    free(queue->ring);
    queue->ring = wider;
    queue->mask = 2 * room - 1;
    return 1;
}

/* What a command waits for: a command of a queue. */
struct wait {
    struct queue *queue;
    u64 number;
};

/* Have a command wait for another one; with the lock of that one's device. Whether it has to. */
static int wait_for_other(struct command *command, const struct wait *wait, struct edge *edge) {
    if (wait->queue->completed >= wait->number) return 0;
    struct command *before = *place(wait->queue, wait->number);
    *edge = (struct edge){before->dependents, command};
    before->dependents = edge;
    return 1;
}

/* Have a command that is yet to be given wait for those of other devices; how many of these are complete. `unmet` is one
   more than it may have to wait for, as it is not given yet. */
static u64 wait_across(struct command *command, const struct wait *waits, u64 count, struct edge *edges) {
    u64 met = 0;
    for (u64 i = 0; i < count; i++) {
        struct device *other = waits[i].queue->device;
        if (other == command->queue->device) continue;
        take(&other->lock);
        met += !wait_for_other(command, &waits[i], &edges[i]);
        give(&other->lock);
    }
    return met;
}

/* Give a command to its queue; its number, or 0 where there is no memory. `edges`: room for as many as `waits`. */
static u64 enqueue(struct command *command, const struct wait *waits, u64 count, struct edge *edges) {
    struct queue *queue = command->queue;
    struct device *device = queue->device;
    struct call call = {0};
    u64 met = 0;
    for (u64 i = 0; i < count; i++) command->unmet += waits[i].queue->device != device;
    __atomic_store_n(&device->host, sched_getcpu(), __ATOMIC_RELAXED);
    take(&device->lock);
    int has_room = widen(queue);
    if (has_room && command->unmet) {
        give(&device->lock);
        command->unmet++;
        met = 1 + wait_across(command, waits, count, edges);
        take(&device->lock);
    }
    if (!has_room) {
        give(&device->lock);
        give_back(command);
        return 0;
    }
    command->unmet -= met;
    u64 number = command->number = queue->given + 1;
    if (queue->times) command->times = queue->times + 2 * ((number - 1) % TIMES);
    for (u64 i = 0; i < count; i++) {
        struct queue *other = waits[i].queue;
        if (other->device != device || (other == queue && !command->is_beside)) continue;
        command->unmet += wait_for_other(command, &waits[i], &edges[i]);
    }
    store(&queue->given, number);
    *place(queue, number) = command;
    device->pending++;
    look_at(queue, number);
    if (device->first && !device->spinning) call_one(device, &call);
    give(&device->lock);
    ring(&call);
    return number;
}

/* Of a failed command; what does not fit into memory is told by the count alone. */
COLD static void note_failure(struct queue *queue, u64 number) {
    if (queue->failures == queue->failed_room) {
        u64 room = 2 * queue->failed_room + 8, *more = calloc(room, sizeof *more);
        if (more) {
            if (queue->failed) memcpy(more, queue->failed, queue->failures * sizeof *more);
            free(queue->failed);
            queue->failed = more;
            queue->failed_room = room;
        }
    }
    if (queue->failures < queue->failed_room) queue->failed[queue->failures] = number;
    store(&queue->failures, queue->failures + 1);
}

/* A command is complete, and so are all before it. */
static void finish(struct command *command, struct call *call) {
    struct queue *queue = command->queue;
    struct device *device = queue->device;
    if (command->failed) note_failure(queue, command->number);
    store(&queue->completed, command->number);
    if (queue->mirror) {
        store(&queue->mirror[1], queue->failures);
        store(&queue->mirror[0], command->number);
    }
    for (struct edge *edge = command->dependents, *next; edge; edge = next) {
        struct command *waiting = edge->waiting;
        next = edge->next;
        if (waiting->queue->device != device) {
            edge->next = call->across;
            call->across = edge;
        } else if (!--waiting->unmet) {
            look_at(waiting->queue, waiting->number);
        }
    }
    look_at(queue, command->number + 1);
    for (struct waiter **at = &queue->waiters; *at;) {
        struct waiter *waiter = *at;
        if (waiter->number > command->number) {
            at = &waiter->next;
            continue;
        }
        *at = waiter->next;
        u32 *word = &waiter->over;
        store(word, 1); /* from now on the waiter may be gone; to wake an address that nobody waits at does no harm */
        if (call->waiters < sizeof call->words / sizeof *call->words)
            call->words[call->waiters++] = word;
        else
            futex_wake(word, 1);
    }
    device->pending--;
    give_back(command);
}

/* A command has ended; with the lock, which a queue is freed with, so nobody frees it meanwhile. */
static void complete(struct command *command, struct call *call) {
    struct queue *queue = command->queue;
    command->is_over = 1;
    while (queue->completed < queue->given && (*place(queue, queue->completed + 1))->is_over)
        finish(*place(queue, queue->completed + 1), call);
}

#endif
