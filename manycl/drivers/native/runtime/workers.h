/* Workers: they take commands whose turn has come, alone or together. */
#ifndef MANYCL_WORKERS_H
#define MANYCL_WORKERS_H

#include "commands.h"
#include "faults.h"
#include "holding.h"
#include "stack.h"

enum {
    LITTLE = 6000,          /* ns that a command may take to be run by one worker: waking another one costs as much */
    SPIN = 15000,           /* ns that a worker looks for news before it sleeps, ... */
    LAST_SPIN = 50000,      /* ... that the last one of a device does so, whom the next command need not wake */
    LOST = 50000,           /* ns between two looks that tell that something else has had the core: ... */
    CROWDED = 4,            /* ... then a worker sleeps at once, so often: who looks for news is soon kept waiting */
    LEAST_PAUSE = 300000,   /* ns that a slower device's worker pauses but at a command's end: shorter pauses take a core */
    LEAST_BLOCK = 1000,     /* ns that a block should take, and ... */
    WAKING = 60000,         /* ns that a thread may wake late: a pause ends without sleep */
    MOST_BLOCK = 1000000,   /* ... at most: between blocks workers turn to commands that are ready */
    KEPT_FRAME = 1 << 20,   /* bytes that a sleeping worker keeps */
    MOST_UNITS = 0x7fffffff,
};

static inline u64 span(u64 first, u64 end) { return first | end << 32; }

/* The next units of a share: an eighth of what is left, or all where nobody else takes part and it is known how long they
   take; a block of the least size at least, and of the largest at most. */
static u64 take_block(struct slot *slot, struct share *share, u64 *first) {
    u64 seen = peek(&share->span);
    for (;;) {
        u64 begin = seen & 0xffffffffu, end = seen >> 32;
        if (begin >= end) return 0;
        u64 count = least_of(most_of((end - begin) / slot->parts, slot->least), peek(&slot->most));
        count = least_of(count, end - begin);
        if (__atomic_compare_exchange_n(&share->span, &seen, span(begin + count, end), 1, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
            *first = begin;
            return count;
        }
    }
}

/* A frame for a command; whether there is memory for it. */
static int framed(struct worker *worker, u64 nbytes) {
    if (nbytes <= worker->frame_bytes) return 1;
    free(worker->frame);
    worker->frame = NULL;
    worker->frame_bytes = 0;
    void *memory = NULL;
    u64 rounded = (nbytes + 4095) & ~(u64)4095;
    if (posix_memalign(&memory, 4096, rounded)) return 0;
    worker->frame = memory;
    worker->frame_bytes = rounded;
    return 1;
}

/* A worker does nothing until a slower processor would have run what it has run. */
COLD static void slow_down(struct worker *worker) {
    u64 wanted = worker->owed, missing = wanted, since = now();
    worker->owed = 0;
    missing -= least_of(missing, worker->slept);
    u64 end = since + missing, early = end - WAKING;
    if (missing > 2 * WAKING) {
        struct timespec until = {(long)(early / 1000000000u), (long)(early % 1000000000u)};
        clock_nanosleep(MONOTONIC, AT_A_TIME, &until, NULL);
    }
    u64 t = now();
    for (; t < end; t = now()) relax();
    worker->slept = least_of(worker->slept + t - since - wanted, (u64)MOST_BLOCK);
}

static void run(struct worker *worker, struct command *command, u64 first, u64 end) {
    int failed = 1, reports = command->shape && command->shape->reports;
    /* a slower device is slower while it has its core; Python waits, too, and what it calls */
    int clock = reports ? MONOTONIC : OF_THREAD;
    worker->command = command, worker->first = first, worker->end = end;
    if (framed(worker, command->frame)) {
        begin_block(worker, !reports);
        u64 start = worker->device->slower && command->shape ? clock_of(clock) : 0; /* kernels, not copies and fills */
        command->entry(command->args, command->range, first, end, worker->frame);
        failed = reports && *(u64 *)worker->frame;
        store(&worker->is_running, 0);
        if (start) worker->owed += (u64)((double)(clock_of(clock) - start) * (double)worker->device->slower / 1024.0);
    }
    if (failed) store(&command->failed, 1);
}

static u64 cost_of(u64 ns, u64 groups) { return most_of((u64)((double)ns * 1024.0 / (double)groups), (u64)1); }

static void learn(struct command *command, u64 busy) {
    if (!command->shape || !command->groups || peek(&command->failed)) return;
    u64 before = peek(&command->shape->cost), measured = cost_of(busy, command->groups);
    store(&command->shape->cost, before ? (before + measured) / 2 : measured);
}

static void ended(struct command *command, u64 end) {
    if (!command->times) return;
    command->times[0] = command->start;
    command->times[1] = most_of(end, command->start + 1);
}

/* Run a command that is expected to take little time; the groups that are left, should it take longer. */
static u64 run_alone(struct worker *worker, struct command *command) {
    u64 groups = command->groups, done = 0, t = command->start, paused = worker->paused;
    while (done < groups && (t - command->start < LITTLE || done + 1 == groups)) {
        u64 left = groups - done, count = groups == 1 ? 1 : done ? left / 3 + 1 : groups / 16 + 1;
        count = least_of(count, left);
        run(worker, command, done, done + count);
        if (worker->owed) slow_down(worker);
        done += count;
        t = now();
        command->start += worker->paused - paused; /* it took the rest */
        paused = worker->paused;
    }
    if (done == groups) {
        learn(command, t - command->start);
        ended(command, t);
    } else {
        command->cost = cost_of(t - command->start, done);
    }
    return groups - done;
}

/* Open a slot for the last `left` groups of a command; with the lock. */
static struct slot *open_slot(struct device *device, struct command *command, u64 left) {
    struct slot *slot = device->idle;
    device->idle = slot->next;
    u64 base = command->groups - left, unit = (left + MOST_UNITS - 1) / MOST_UNITS, units = (left + unit - 1) / unit;
    command->slot = slot;
    slot->command = command;
    slot->base = base, slot->unit = unit, slot->groups = command->groups;
    slot->least = 1, slot->most = units, slot->parts = device->count == 1 && command->cost ? 1 : 8;
    if (command->in_order) slot->parts *= device->count;
    slot->wanted = 0, slot->users = 1, slot->is_open = 1;
    slot->grows = command->in_order && !command->cost; /* who shortens it waits for what has begun */
    if (slot->grows) slot->most = 1;
    u64 helpers = least_of((u64)device->count, units) - 1;
    if (command->cost) {
        double each = (double)command->cost * (double)unit / 1024.0; /* ns */
        slot->least = each < LEAST_BLOCK ? (u64)(LEAST_BLOCK / each) : 1;
        slot->most = most_of((u64)(each < MOST_BLOCK ? MOST_BLOCK / each : 1), slot->least);
        double worth = each * (double)units / LITTLE;
        if (worth < (double)helpers) helpers = (u64)worth;
    }
    if (helpers > device->spinning) slot->wanted = (u32)(helpers - device->spinning);
    store(&slot->left, units);
    store(&slot->busy, base ? now() - command->start : 0);
    for (u64 i = 0; i < device->count; i++) {
        u64 of = command->in_order ? 1 : device->count, at = least_of(i, of), behind = least_of(i + 1, of);
        store(&slot->shares[i].span, span(units * at / of, units * behind / of));
    }
    slot->next = NULL;
    if (device->open)
        device->last_open->next = slot;
    else
        device->open = slot;
    device->last_open = slot;
    store(&device->news, device->news + 1);
    return slot;
}

/* Wake up to two of the workers that a slot wants, who do the same; with the lock. */
static void call_more(struct device *device, struct slot *slot, struct call *call) {
    for (int i = 0; i < 2 && slot->wanted; i++)
        slot->wanted = call_one(device, call) ? slot->wanted - 1 : 0;
}

/* Run the next block of a share: how many units it had. */
static u64 run_block(struct worker *worker, struct slot *slot, struct share *share) {
    u64 first = 0, count = take_block(slot, share, &first);
    if (!count) return 0;
    u64 from = slot->base + first * slot->unit, to = least_of(from + count * slot->unit, slot->groups);
    u64 start = slot->grows ? now() : 0;
    run(worker, slot->command, from, to);
    if (start && count == peek(&slot->most)) { /* the next blocks may take as long as they should at most, but no longer */
        u64 took = now() - start;
        if (took < MOST_BLOCK / 2)
            store(&slot->most, 2 * count);
        else if (took > MOST_BLOCK && count > 1)
            store(&slot->most, count / 2);
    }
    return count;
}

/* Take blocks until there is none left (`drained`), or a command is ready; the command, if it is complete by that. Who
   has opened the slot begins with the first groups: kernels that sum up in place, each group leaving its result among
   the first elements, have those read by then, as on other drivers. */
static struct command *take_part(struct worker *worker, struct slot *slot, u32 is_opener, u32 *drained) {
    struct device *device = worker->device;
    struct command *command = slot->command;
    u64 start = now() - worker->paused, done = is_opener ? run_block(worker, slot, &slot->shares[0]) : 0;
    *drained = 0;
    for (u32 i = 0; i < device->count && !*drained;) { /* shares only shrink: one that was empty need not be asked again */
        if (done && (peek(&device->ready) || (worker->until && (now() > worker->until || peek(&device->is_held))))) break;
        u64 count = run_block(worker, slot, &slot->shares[(worker->index + i) % device->count]);
        if (!count) *drained = ++i == device->count;
        if (worker->owed > LEAST_PAUSE) slow_down(worker);
        done += count;
    }
    if (worker->owed) slow_down(worker);
    if (!done) return NULL;
    u64 busy = add(&slot->busy, now() - worker->paused - start);
    if (add(&slot->left, -done)) return NULL;
    *drained = 1;
    learn(command, busy);
    ended(command, now());
    return command;
}

/* Of a slot nothing is left to take; with the lock. */
static void close_slot(struct device *device, struct slot *slot) {
    slot->is_open = 0;
    struct slot *before = NULL, **at = &device->open;
    while (*at != slot) before = *at, at = &before->next;
    *at = slot->next;
    if (device->last_open == slot) device->last_open = before;
    reach(slot->command);
}

/* A slot is idle once it is closed and nobody is in it; with the lock. */
static void rest_slot(struct device *device, struct slot *slot) {
    if (slot->is_open || slot->users) return;
    slot->next = device->idle;
    device->idle = slot;
}

static int is_drained(const struct device *device, const struct slot *slot) {
    for (u32 i = 0; i < device->count; i++) {
        u64 seen = peek(&slot->shares[i].span);
        if ((seen & 0xffffffffu) < seen >> 32) return 0;
    }
    return 1;
}

/* A worker leaves a slot, which is closed if nothing is left to take (while it is shortened, that only seems so); with the
   lock. */
static void leave(struct device *device, struct slot *slot, u32 drained) {
    slot->users--;
    if (drained && slot->is_open && is_drained(device, slot)) close_slot(device, slot);
    rest_slot(device, slot);
}

/* A launch ends with a part: with the first one of which no item is behind `items` along its dimension. Of the last groups
   it may only run what belongs to that. Its groups by then; none of those that it runs in part may have begun. */
COLD static u64 end_with(struct command *command, const struct stops *stops, u64 items, u64 *parts) {
    u64 along = stops->dimension;
    for (*parts = 1; *parts < stops->count && stops->ends[*parts - 1] < items;) ++*parts;
    if (*parts == stops->count) return command->groups;
    u64 end = stops->ends[*parts - 1], deep = (end + stops->each - 1) / stops->each;
    command->shortened = *command->range;
    command->shortened.global_size[along] = end;
    command->shortened.groups[along] = deep;
    command->range = &command->shortened;
    return deep * stops->row;
}

/* Take away the groups of a slot that nobody has taken, from the end of a part on; where its command ends now. `begun`:
   how many groups were taken. With the lock. */
COLD static u64 shorten_slot(struct slot *slot, const struct stops *stops, u64 *begun, struct call *call) {
    struct command *command = slot->command;
    struct device *device = command->queue->device;
    struct share *share = &slot->shares[0];
    u64 seen = peek(&share->span), parts, before = command->groups, first, end;
    do { /* nobody takes any meanwhile */
        first = seen & 0xffffffffu, end = seen >> 32;
        *begun = slot->base + least_of(first, end);
    } while (first < end && !__atomic_compare_exchange_n(&share->span, &seen, span(end, end), 0, __ATOMIC_ACQ_REL,
                                                         __ATOMIC_RELAXED));
    if (first >= end) return stops->count;
    u64 groups = end_with(command, stops, (*begun + stops->row - 1) / stops->row * stops->each, &parts);
    command->groups = slot->groups = groups;
    __atomic_store_n(&share->span, span(first, groups - slot->base), __ATOMIC_RELEASE);
    if (add(&slot->left, groups - before)) return parts;
    ended(command, now()); /* all that was taken has ended */
    close_slot(device, slot);
    rest_slot(device, slot);
    complete(command, call);
    return parts;
}

/* Have a command that takes its groups in order end early: with the first of its parts by which nothing ends that has
   begun. How many parts it has now, and how many of its groups have begun. */
COLD static u64 shorten(struct queue *queue, u64 number, const struct stops *stops, u64 *begun) {
    struct device *device = queue->device;
    struct call call = {0};
    u64 parts = stops->count;
    *begun = (stops->ends[parts - 1] + stops->each - 1) / stops->each * stops->row;
    take(&device->lock);
    struct command *command = number > queue->completed && number <= queue->given ? *place(queue, number) : NULL;
    if (command && command->in_order && !command->is_over && !command->is_alone) {
        struct slot *slot = command->slot;
        if (!slot) {
            *begun = 0;
            command->groups = end_with(command, stops, 0, &parts);
        } else if (slot->is_open && slot->command == command && slot->unit == 1) {
            parts = shorten_slot(slot, stops, begun, &call);
        }
    }
    give(&device->lock);
    ring(&call);
    return parts;
}

/* Enter the open slot that has waited longest; with the lock. */
static struct slot *enter(struct device *device) {
    struct slot *slot = device->open;
    if (!slot) return NULL;
    slot->users++;
    if (slot->next) { /* to the end of the list */
        device->open = slot->next;
        device->last_open->next = slot;
        device->last_open = slot;
        slot->next = NULL;
    }
    return slot;
}

/* What a worker does next: take part in a slot, or run a command alone. */
struct work {
    struct slot *slot;
    struct command *command;
    u32 is_opener; /* of the slot */
};

/* With the lock. A worker that comes from a ready command turns to an open slot first, so that neither waits long. */
static struct work choose(struct worker *worker, struct call *call) {
    struct device *device = worker->device;
    struct work work = {NULL, NULL, 0};
    if (worker->was_ready) work.slot = enter(device);
    if (!work.slot) work.command = pop_ready(device);
    if (!work.slot && !work.command) work.slot = enter(device);
    worker->was_ready = work.command != NULL;
    if (work.command) {
        struct command *command = work.command;
        if (command->groups == 1) reach(command);
        if (device->first && !device->spinning) call_one(device, call);
        command->start = now();
        if (command->shape) command->cost = peek(&command->shape->cost);
        if (command->groups > 1 && (!command->cost || (double)command->cost * (double)command->groups > LITTLE * 1024.0))
            work = (struct work){open_slot(device, command, command->groups), NULL, 1};
        else
            command->is_alone = 1;
    }
    if (work.slot) call_more(device, work.slot, call);
    return work;
}

/* Do it: what is complete by that, and the slot that the worker is in. */
static struct command *perform(struct worker *worker, struct work *work, u32 *drained) {
    struct device *device = worker->device;
    struct command *command = work->command;
    if (command) {
        u64 left = run_alone(worker, command);
        if (!left) return command;
        struct call call = {0};
        take(&device->lock);
        command->is_alone = 0;
        *work = (struct work){open_slot(device, command, left), NULL, 0};
        call_more(device, work->slot, &call);
        give(&device->lock);
        ring(&call);
    }
    return take_part(worker, work->slot, work->is_opener, drained);
}

/* Look for news until there are some, or it has been too long since the worker had work: whether it has. */
static int spin(struct worker *worker, u32 news, u64 since) {
    struct device *device = worker->device;
    if (worker->crowded) {
        worker->crowded--;
        return 1;
    }
    for (u64 last = since;;) {
        if (worker->core >= 0 && worker->core == peek(&device->host)) return 1;
        for (int i = 0; i < 20; i++) {
            if (load(&device->news) != news) return 0;
            relax();
        }
        u64 t = now(), idle = t - since;
        if (t - last > LOST) worker->crowded = CROWDED;
        if (worker->crowded) return 1;
        last = t;
        if (idle > LAST_SPIN || (idle > SPIN && peek(&device->spinning) > 1 + peek(&device->host_spins))) return 1;
    }
}

/* Before it sleeps: then others may use its frame. */
static void trim(struct worker *worker) {
    if (worker->frame_bytes <= KEPT_FRAME) return;
    free(worker->frame);
    worker->frame = NULL;
    worker->frame_bytes = 0;
}

static void sleep_until_called(struct worker *worker) {
    while (!load(&worker->bell)) futex_wait(&worker->bell, 0);
}

COLD static void disown(struct device *device) {
    if (add(&device->owners, -(u64)1)) return;
    for (struct slot *slot = device->idle, *next; slot; slot = next) {
        next = slot->next;
        free(slot);
    }
    if (device->host_stack) munmap(device->host_stack, STACK);
    free(device);
}

COLD static void settle(struct worker *worker) {
    signal_set all;
    sigfillset(&all);
    if (stopping) sigdelset(&all, stopping);
    for (int i = 0; i < FAULTS; i++) sigdelset(&all, faults[i].number);
    worker->thread = syscall(SYS_GETTID);
    pthread_sigmask(SET_MASK, &all, NULL); /* signals are for the program's own threads */
    if (worker->core >= 0) {
        unsigned char set[1024] = {0};
        set[worker->core / 8] = (unsigned char)(1u << worker->core % 8);
        sched_setaffinity(0, sizeof set, set); /* if it cannot be, it runs anywhere */
    }
    if (worker->device->slower) prctl(SET_TIMER_SLACK, 1ul); /* its pauses are short */
    prctl(SET_NAME, "manycl-native"); /* the name says that all this is done */
}

static void *begin(void *argument) {
    struct worker *worker = argument;
    struct device *device = worker->device;
    struct command *over = NULL;
    struct work work = {NULL, NULL, 0};
    u32 drained = 0, spun = 0, tired = 0;
    u64 since = now();
    settle(worker);
    run_kernels_as(worker, __builtin_frame_address(0));
    worker->floats = float_state();
    for (;;) {
        struct call call = {0};
        if (tired) trim(worker);
        take(&device->lock);
        store(&device->spinning, device->spinning - spun);
        spun = 0;
        if (work.slot) leave(device, work.slot, drained);
        if (over) complete(over, &call);
        work = choose(worker, &call);
        u32 found = work.slot || work.command, news = device->news;
        u32 is_end = !found && device->closing && !device->pending;
        if (is_end) {
            call_one(device, &call); /* who does the same */
            store(&device->news, news + 1);
        } else if (!found && tired) {
            worker->bell = 0;
            worker->next = device->asleep;
            device->asleep = worker;
        } else if (!found) {
            spun = 1;
            store(&device->spinning, device->spinning + 1);
        }
        give(&device->lock);
        ring(&call);
        over = NULL;
        if (is_end) break;
        if (found) {
            over = perform(worker, &work, &drained);
        } else if (tired) {
            sleep_until_called(worker);
        } else {
            tired = (u32)spin(worker, news, since);
            continue;
        }
        tired = 0;
        since = now();
    }
    free(worker->frame);
    disown(device);
    return NULL;
}

#endif
