/* A device that is held: nothing of it runs. A worker that is about to begin a block waits, and one that is inside a
   kernel is stopped there, wherever it is, by a signal that it handles until the device is held no more. So a device is
   free at once however long a work-group takes, and kernels need not look whether they are to stop. What cannot be stopped
   ends: Python, and drivers that it calls, may have locks; and a host thread has to hear of its own signals, but its
   work-groups are short (HOST_BLOCK). */
#ifndef MANYCL_HOLDING_H
#define MANYCL_HOLDING_H

#include "device.h"

enum {
    RUNS = 1,            /* a worker runs a block, ... */
    MAY_STOP = 2,        /* ... and may be stopped anywhere in it */
    LAST_SIGNAL = 60,    /* the first number of those tried: of real-time signals, which nothing has by itself, ... */
    FIRST_SIGNAL = 36,   /* ... one that few programs take: they begin with the first ones, or the last */
    TOLD_BY = -0x6d636c, /* the code of our signals: no other sender has it */
};

static int stopping; /* the signal that stops workers (0: none could be had) */

COLD static void wait_while_held(struct worker *worker, u32 running) {
    struct device *device = worker->device;
    u64 since = now();
    do {
        store(&worker->is_running, 0);
        while (load(&device->is_held)) futex_wait(&device->is_held, 1);
        __atomic_store_n(&worker->is_running, running, __ATOMIC_SEQ_CST);
    } while (__atomic_load_n(&device->is_held, __ATOMIC_SEQ_CST));
    worker->paused += now() - since;
}

/* A worker is about to run a block, once nobody holds the device. Who holds it and then finds no worker running, or
   finds one and looks again, knows that the device is free. A host thread does not wait here: it takes up nothing while
   the device is held, and ends what it is at. */
static void begin_block(struct worker *worker, int may_stop) {
    u32 running = may_stop && !worker->until ? MAY_STOP : RUNS;
    __atomic_store_n(&worker->is_running, running, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&worker->device->is_held, __ATOMIC_SEQ_CST) && !worker->until) wait_while_held(worker, running);
}

COLD static void stop_here(int number, struct signal_info *info, void *context) {
    (void)number, (void)context;
    if (info->code != TOLD_BY) return;
    struct worker *worker = info->value;
    int *error = __errno_location(), before = *error; /* kernels call functions that set it */
    if (peek(&worker->is_running) == MAY_STOP && load(&worker->device->is_held)) wait_while_held(worker, MAY_STOP);
    *error = before;
}

/* Have a signal of our own: one that nobody handles, and that the calling thread does not block, as programs do with those
   that they wait for. */
COLD static void find_signal(void) {
    signal_set blocked;
    if (stopping || pthread_sigmask(SET_MASK, NULL, &blocked)) return;
    for (int number = LAST_SIGNAL; number >= FIRST_SIGNAL; number--) {
        struct action before, action = {.handler = stop_here, .flags = WITH_INFO | RESTARTS};
        if (sigaction(number, NULL, &before) || before.handler || sigismember(&blocked, number)) continue;
        if (sigaction(number, &action, NULL)) continue;
        stopping = number;
        return;
    }
}

/* Stop the workers that may be stopped where they are; those that are not there now will see that the device is held. */
COLD static void stop_workers(struct device *device) {
    struct action action;
    if (!stopping || sigaction(stopping, NULL, &action) || action.handler != stop_here) return; /* somebody took it over */
    long process = syscall(SYS_GETPID);
    for (u32 i = 0; i < device->count; i++) {
        struct worker *worker = &device->workers[i];
        if (__atomic_load_n(&worker->is_running, __ATOMIC_SEQ_CST) != MAY_STOP) continue;
        struct signal_info info = {.number = stopping, .code = TOLD_BY, .process = (int)process, .value = worker};
        syscall(SYS_SIGNAL_THREAD, process, worker->thread, stopping, &info);
    }
}

/* Whether blocks may run. Commands stay where they are meanwhile. */
COLD static void hold(struct device *device, u32 is_held) {
    __atomic_store_n(&device->is_held, is_held, __ATOMIC_SEQ_CST);
    if (is_held)
        stop_workers(device);
    else
        futex_wake(&device->is_held, (int)device->count);
}

/* Of a device that is held: whether nothing runs any more. */
COLD static int is_still(struct device *device) {
    for (u32 i = 0; i < device->count; i++)
        if (__atomic_load_n(&device->workers[i].is_running, __ATOMIC_SEQ_CST)) return 0;
    return 1;
}

#endif
