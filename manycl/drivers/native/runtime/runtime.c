/* What Python calls (manycl/drivers/native/runtime.py says what is asked of it). Nothing here waits but manycl_wait. */
#include "commands.h"
#include "copies.h"
#include "device.h"
#include "faults.h"
#include "recording.h"
#include "stack.h"
#include "waiting.h"
#include "workers.h"

#define EXPORTED __attribute__((visibility("default")))

COLD static void *new_memory(u64 nbytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, 128, nbytes)) return NULL;
    return memset(memory, 0, nbytes);
}

/* Where last words go, and which kernels other drivers' threads run (faults.h). */
EXPORTED COLD void manycl_tell(const int *descriptor, const char *const *elsewhere) {
    words_to = descriptor, watched = elsewhere;
    watch_faults();
}

/* Whether blocks may run (holding.h). */
EXPORTED COLD void manycl_hold(struct device *device, u64 is_held) { hold(device, (u32)is_held); }

/* Of a device that is held: whether nothing runs any more. */
EXPORTED COLD int manycl_is_still(struct device *device) { return is_still(device); }

EXPORTED COLD void manycl_close(struct device *device) {
    struct call call = {0};
    hold(device, 0); /* its threads are to end */
    take(&device->lock);
    device->closing = 1;
    if (!device->pending) call_one(device, &call);
    store(&device->news, device->news + 1);
    give(&device->lock);
    ring(&call);
    disown(device);
}

COLD static struct slot *new_slot(struct device *device) {
    return new_memory(sizeof(struct slot) + device->count * sizeof(struct share));
}

COLD static int start(struct worker *worker) {
    thread_attributes attributes;
    thread_id id;
    if (pthread_attr_init(&attributes)) return 0;
    pthread_attr_setstacksize(&attributes, STACK);
    pthread_attr_setdetachstate(&attributes, DETACHED);
    add(&worker->device->owners, 1);
    int failed = pthread_create(&id, &attributes, begin, worker);
    if (failed) add(&worker->device->owners, -(u64)1);
    pthread_attr_destroy(&attributes);
    return !failed;
}

/* A device of so many threads, each on its core (-1: on any), on which kernels take so many 1024ths longer than they do;
   NULL where there is no memory, or no more threads. */
EXPORTED COLD struct device *manycl_open(const int *cores, u32 count, u64 slower) {
    struct device *device = new_memory(sizeof *device + count * sizeof(struct worker));
    if (!device) return NULL;
    find_signal();
    device->count = count;
    device->slower = slower;
    device->owners = 1;
    device->host = -1;
    device->host_stack = new_stack();
    for (u32 i = 0; i < count; i++) {
        device->workers[i] = (struct worker){.device = device, .index = i, .core = cores[i]};
        struct slot *slot = new_slot(device);
        if (!slot) {
            disown(device);
            return NULL;
        }
        slot->next = device->idle;
        device->idle = slot;
    }
    for (u32 i = 0; i < count; i++) {
        if (start(&device->workers[i])) continue;
        manycl_close(device);
        return NULL;
    }
    return device;
}

/* A queue begins with three words that Python reads: how many of its commands are complete, how many of these have
   failed, and how many were given. */
EXPORTED COLD struct queue *manycl_queue(struct device *device) {
    struct queue *queue = new_memory(sizeof *queue);
    if (!queue) return NULL;
    queue->device = device;
    queue->mask = 63;
    queue->ring = calloc(queue->mask + 1, sizeof *queue->ring);
    struct slot *slot = new_slot(device);
    if (!queue->ring || !slot) {
        free(queue->ring);
        free(slot);
        free(queue);
        return NULL;
    }
    take(&device->lock);
    slot->next = device->idle;
    device->idle = slot;
    give(&device->lock);
    add(&device->owners, 1);
    return queue;
}

/* Only when all of its commands are complete. */
EXPORTED COLD void manycl_free_queue(struct queue *queue) {
    struct device *device = queue->device;
    take(&device->lock); /* whoever completed the last one is done with the queue */
    struct slot *slot = device->idle;
    if (slot) device->idle = slot->next;
    give(&device->lock);
    free(slot);
    struct command *lists[] = {queue->free, queue->returned};
    for (int i = 0; i < 2; i++)
        for (struct command *command = lists[i], *next; command; command = next) {
            next = command->next;
            free(command);
        }
    free(queue->ring);
    free(queue->failed);
    free(queue);
    disown(device);
}

/* Where the times of the next 1024 commands go, pairs of ns. Asked before each command whose number is 1 more than a
   multiple of 1024. */
EXPORTED void manycl_times(struct queue *queue, u64 *times) { queue->times = times; }

/* Where a queue's first two words are kept as well from now on, before any command behind one begins (NULL: nowhere). */
EXPORTED COLD void manycl_mirror(struct queue *queue, u64 *mirror) {
    take(&queue->device->lock);
    if (mirror) {
        store(&mirror[1], queue->failures);
        store(&mirror[0], queue->completed);
    }
    queue->mirror = mirror;
    give(&queue->device->lock);
}

enum { COUNT_BITS = 62 };

/* A launch, and where the values of its arguments lie in it; NULL where there is no memory. */
static struct command *new_launch(struct queue *queue, struct shape *shape, const char *values, u64 count, char **content,
                                  struct edge **edges) {
    u64 pointers = (shape->nargs * sizeof(void *) + count * sizeof(struct edge) + sizeof(struct command) + 127) & ~127ul;
    struct command *command = new_command(queue, pointers - sizeof *command + shape->nbytes);
    if (!command) return NULL;
    const void **args = (const void **)(command + 1);
    char *copied = *content = (char *)command + pointers;
    memcpy(copied, values, shape->nbytes);
    for (u64 i = 0; i < shape->nargs; i++) args[i] = copied + shape->at[i];
    command->shape = shape;
    command->entry = shape->entry;
    command->range = &shape->range;
    command->args = args;
    command->groups = shape->groups;
    command->frame = shape->frame;
    *edges = (struct edge *)(args + shape->nargs);
    return command;
}

/* The following return the command's number, 0 where there is no memory. What is pointed at may go, but for the shape,
   and the memory of copies and fills. A launch whose `count` has the first bit behind COUNT_BITS set may be shortened; one
   that has the second one may run beside the command before it: it waits for what it is said to, and begins nothing before
   that one has no blocks left to be taken. */
EXPORTED u64 manycl_launch(struct queue *queue, struct shape *shape, const char *values, const struct wait *waits,
                           u64 count) {
    u32 in_order = (u32)(count >> COUNT_BITS) & 1, is_beside = (u32)(count >> COUNT_BITS) >> 1;
    count &= ((u64)1 << COUNT_BITS) - 1;
    char *content;
    struct edge *edges;
    struct command *command = new_launch(queue, shape, values, count, &content, &edges);
    if (!command) return 0;
    command->is_beside = is_beside;
    command->in_order = in_order;
    return enqueue(command, waits, count, edges);
}

/* Commands of our own: what they work on lies behind the structure, and `args` points at it. */
static struct command *own(struct queue *queue, manycl_entry entry, u64 nbytes, u64 waits, struct edge **edges) {
    u64 content = (nbytes + 15) & ~15ul;
    struct command *command = new_command(queue, content + waits * sizeof **edges);
    if (!command) return NULL;
    command->entry = entry;
    command->args = (const void *const *)(command + 1);
    command->cost = 12000 * 1024; /* of a piece, until somebody measures it: about 10 GB/s */
    *edges = (struct edge *)((char *)(command + 1) + content);
    return command;
}

/* Rows from one place to another; the bytes of different rectangles differ. Without any it is complete in its turn. `rects`:
   five numbers each. */
EXPORTED u64 manycl_copy(struct queue *queue, const u64 (*rects)[5], u64 nrects, const struct wait *waits, u64 count) {
    struct edge *edges;
    struct command *command =
        own(queue, copy_entry, sizeof(struct copy) + nrects * sizeof(struct rect), count, &edges);
    if (!command) return 0;
    struct copy *copy = (struct copy *)command->args;
    copy->rects = nrects;
    for (u64 i = 0; i < nrects; i++) {
        const u64 *rect = rects[i];
        copy->rect[i] = (struct rect){rect[0], rect[1], rect[2], rect[3], rect[4], command->groups};
        command->groups += pieces(&copy->rect[i]);
    }
    return enqueue(command, waits, count, edges);
}

/* A pattern of 1, 2, 4, … or 128 bytes, again and again; nbytes is a multiple. */
EXPORTED u64 manycl_fill(struct queue *queue, char *target, const char *pattern, u64 length, u64 nbytes,
                         const struct wait *waits, u64 count) {
    struct edge *edges;
    struct command *command = own(queue, fill_entry, sizeof(struct fill), count, &edges);
    if (!command) return 0;
    struct fill *fill = (struct fill *)command->args;
    fill->target = target;
    fill->nbytes = nbytes;
    memcpy(fill->pattern, pattern, length);
    for (u64 at = length; at < PATTERN; at *= 2) memcpy(fill->pattern + at, fill->pattern, at);
    command->groups = (nbytes + PIECE - 1) / PIECE;
    return enqueue(command, waits, count, edges);
}

/* Enqueue the steps `first` to `end` - 1 of a recorded sequence with a binding table; what comes behind the last one that
   was, as there may be no memory for all. `numbers`: of the commands of all steps. */
EXPORTED u64 manycl_play(const struct step *steps, u64 first, u64 end, const char *table, u64 *numbers) {
    for (; first < end; first++) {
        const struct step *step = &steps[first];
        struct wait waits[step->nafter + 1];
        for (u64 i = 0; i < step->nafter; i++)
            waits[i] = (struct wait){steps[step->after[i]].queue, numbers[step->after[i]]};
        if (step->kind == LAUNCH) {
            char *content;
            struct edge *edges;
            struct command *command =
                new_launch(step->queue, step->shape, step->content, step->nafter, &content, &edges);
            if (!command) return first;
            patch(content, step, table);
            numbers[first] = enqueue(command, waits, step->nafter, edges);
        } else if (step->kind == COPY) {
            u64 rect[5];
            memcpy(rect, step->content, sizeof rect);
            patch((char *)rect, step, table);
            numbers[first] = manycl_copy(step->queue, (const u64(*)[5])rect, 1, waits, step->nafter);
        } else {
            struct filled filled;
            memcpy(&filled, step->content, sizeof filled);
            patch((char *)&filled, step, table);
            numbers[first] = manycl_fill(step->queue, filled.target, filled.pattern, filled.length, filled.nbytes, waits,
                                         step->nafter);
        }
        if (!numbers[first]) return first;
    }
    return end;
}

/* Have a launch end early, as shorten() says: with how many of its parts; and how many of its groups have begun. */
EXPORTED COLD u64 manycl_shorten(struct queue *queue, u64 number, const struct stops *stops, u64 *begun) {
    return shorten(queue, number, stops, begun);
}

/* Until a command of a queue is complete (0), or the program may want to see to its signals (1). */
EXPORTED int manycl_wait(struct queue *queue, u64 number) { return wait_for(queue, number); }

/* Whether a command that is complete has failed: there was no memory for its frame. */
EXPORTED COLD int manycl_has_failed(struct queue *queue, u64 number) {
    struct device *device = queue->device;
    take(&device->lock);
    int found = queue->failures > queue->failed_room; /* nobody knows which */
    for (u64 i = 0; !found && i < least_of(queue->failures, queue->failed_room); i++) found = queue->failed[i] == number;
    give(&device->lock);
    return found;
}
