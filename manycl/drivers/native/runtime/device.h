/* The runtime of a device that is a set of the processor's threads.

   A device has workers, each a thread pinned to a core, and queues. A queue's commands run in their order; what a command
   waits for is earlier in its own queue, or said. One that may run beside the command before it begins when that one has
   no blocks left to be taken, and counts as complete after it. A command whose turn has come is ready; the worker that takes it runs
   it alone if that takes a few microseconds, else it opens a slot, in which all workers may take part: each has a share
   of the work-groups that stays the same from launch to launch (its caches, its NUMA node), takes blocks from it, large
   ones first, and when it is empty takes blocks from others' shares. Whoever does the last block completes the command.
   All groups of a command that may be shortened are one share: what nobody has taken yet is at its end, and can be
   taken away.

   One lock of the device guards all but the shares and counters of slots; it is taken once to enqueue a command, once to
   take it, and once to complete it (together with taking the next one). A command may wait for those of other devices;
   nobody ever holds two devices' locks. */
#ifndef MANYCL_DEVICE_H
#define MANYCL_DEVICE_H

#include "system.h"

/* The contract with compiled kernels. Dimensions that a launch does not have: sizes 1, offset 0. */
struct manycl_range {
    size_t global_size[3], local_size[3], offset[3], groups[3];
    unsigned dims;
};

/* Runs work-groups first to end - 1, counted with dimension 0 fastest. args[i] is the address of the i-th argument's
   value: of memory, the address of a pointer, which its bytes' number follows; of a scalar or struct, of its bytes, aligned as its size allows (to the
   largest power of two up to 128 that divides it, so as its type asks for); of a local argument, of a size_t, its offset
   in the frame. frame: memory of this thread alone, aligned to 128, contents undefined. */
typedef void (*manycl_entry)(const void *const *args, const struct manycl_range *range, size_t first, size_t end,
                             char *frame);

/* What the launches of a kernel on an NDRange have in common; made by Python, which keeps it while they are under way. */
struct shape {
    manycl_entry entry;
    u64 frame;  /* bytes, local arguments included */
    u64 groups;
    u64 cost;   /* measured: ns of a work-group, times 1024; 0: not yet */
    u64 nbytes; /* of the arguments' values */
    u64 nargs;
    u64 reports; /* whether the entry leaves a word in its frame that says whether it has failed */
    struct manycl_range range;
    u64 at[]; /* where in the values each argument's begins; behind that the names of the device, of the kernel and, after a
                 letter for their kind, of its arguments, then "" */
};

/* Where a launch may end early: its parts end at so many items along a dimension, along which a group has `each`; `row`:
   groups that begin at the same place along it. Groups beyond are all behind these. */
struct stops {
    u64 dimension, each, row;
    u64 count, ends[];
};

struct command;

/* A command that waits for another one, in the latter's list. */
struct edge {
    struct edge *next;
    struct command *waiting;
};

struct command {
    struct queue *queue;
    struct command *next; /* in the list of ready ones, or of free memory */
    struct edge *dependents;
    u64 number;  /* in its queue, from 1 on */
    u64 unmet;   /* commands of other queues that it waits for, also of other devices */
    u64 *times;  /* start and end go here, if anywhere */
    u64 start;
    manycl_entry entry; /* NULL: there is nothing to do */
    const struct manycl_range *range;
    const void *const *args;
    struct shape *shape; /* of a launch */
    u64 groups, frame, cost;
    u64 nbytes;  /* of this structure and what follows it: edges, args, values */
    u32 failed;
    u32 is_beside; /* it may run beside the command before it */
    u32 in_order;  /* its blocks are taken from the first one on, so that it can be shortened */
    u32 is_alone;  /* one worker runs it */
    struct slot *slot; /* that was opened for it (NULL: none) */
    struct manycl_range shortened; /* its range, if it ends early within a group */
    u32 is_shown;  /* it has been ready */
    u32 is_over;   /* it has run, and is complete when all before it are */
};

/* A host thread that waits for a command of a queue. */
struct waiter {
    struct waiter *next;
    u64 number;
    u32 over;
};

struct queue {
    u64 completed; /* the number of the last command that is: Python reads this, and the next two, without a call */
    u64 failures;
    u64 given; /* the number of the last command */
    struct device *device;
    struct command **ring; /* the commands that are under way, by the low bits of their numbers */
    u64 mask;
    struct waiter *waiters;
    u64 reached; /* the last command that had no blocks left to be taken, if that is not complete */
    u64 *mirror; /* where the first two words are as well (NULL: nowhere) */
    u64 *times; /* where the next commands' times go: 1024 pairs, in turn (NULL: nowhere) */
    u64 *failed;
    u64 failed_room;
    struct command *free;     /* memory for commands: the enqueuing thread's, */
    struct command *returned; /* and what workers have given back */
};

struct share {
    _Alignas(128) u64 span; /* first unit, and the one behind the last << 32 */
};

/* A device has a slot for each worker and each queue: a worker is in one at most, and a slot that nobody is in is that of
   a queue's command, which is not complete. */
struct slot {
    struct slot *next;
    struct command *command;
    u64 base, unit, groups; /* unit i is groups base + i * unit on, up to `groups` */
    u64 least, most, parts; /* units of a block, and the part of what is left that it is at most */
    u32 users;              /* workers in it */
    u32 wanted;             /* sleeping workers that are still to be woken for it */
    u32 is_open;            /* in the device's list: there may be work left */
    u32 grows;              /* nobody knows how long a unit takes: blocks grow from one on */
    _Alignas(128) u64 left; /* units that have not ended */
    u64 busy;               /* ns that workers have spent on it */
    struct share shares[];
};

struct worker {
    _Alignas(128) struct device *device;
    struct worker *next; /* of those asleep */
    char *frame;
    u64 frame_bytes;
    u32 index;
    int core; /* -1: any */
    u32 bell; /* 1: wake up */
    u32 was_ready; /* its last work was a ready command: next comes an open slot */
    u32 floats;    /* how it rounds, and treats tiny numbers */
    u32 crowded;   /* how often it is still to sleep at once, as its core is in demand */
    u64 until;     /* a host thread in its place turns to other things then (0: it is not in its place) */
    u64 paused;    /* ns that it has not run a block because the device was held */
    u64 owed;       /* ns that it has still to pause, as its device is slower, ... */
    u64 slept;      /* ... and that it paused too long: the next pause lacks them */
    u32 is_running; /* a block: RUNS or MAY_STOP; of this command, ... */
    struct command *command;
    u64 first, end; /* ... these groups */
    long thread;    /* its number, by which the system knows it */
};

struct device {
    u32 lock;
    u32 closing;
    u32 count;    /* workers */
    u32 spinning; /* workers that look at `news` again and again */
    u64 pending;  /* commands that are not complete */
    u64 owners;   /* workers, queues and Python */
    u64 slower;   /* what a block takes longer than it does, in 1024ths: a slow device for experiments */
    struct worker *asleep;
    struct command *first, *last; /* ready */
    struct slot *open, *last_open, *idle;
    char *host_stack; /* of a host thread that works (NULL: none does), ... */
    u32 is_replaced;  /* ... in a worker's place: whether one does, as there is one stack */
    u32 host_spins;   /* it is one of those that are `spinning` */
    int host; /* the core that commands are enqueued on, -1 while that thread sleeps: its worker does not stay in its way */
    _Alignas(128) u32 news; /* counts up when there is something to do */
    u32 ready;              /* commands: looked at without the lock */
    u32 is_held;            /* no block begins */
    struct worker workers[];
};

/* Workers, and words of waiting host threads, to wake once the lock is given back, and commands of other devices that
   waited for one that is complete. */
struct call {
    struct worker *workers[4];
    u32 *words[4];
    u32 count, waiters;
    struct edge *across;
};

void copy_entry(const void *const *, const struct manycl_range *, size_t, size_t, char *);
void fill_entry(const void *const *, const struct manycl_range *, size_t, size_t, char *);

#endif
