/* Launches that compiled code enqueues (DirectQueue of manycl/drivers/driver.py), by OpenCL's own functions, whose
   addresses Python gives. The structures are those of manycl/drivers/opencl/launches.py. */
#define EXPORTED __attribute__((visibility("default")))
#define NULL ((void *)0)

typedef __UINT64_TYPE__ u64;
typedef __INT32_TYPE__ i32;
typedef __UINT32_TYPE__ u32;
typedef __SIZE_TYPE__ size;

_Static_assert(sizeof(void *) == 8 && sizeof(size) == 8, "64 bits");

struct queue {
    void *queue; /* cl_command_queue, as all others OpenCL's handle */
    i32 (*set_argument)(void *kernel, u32 index, size nbytes, const void *value);
    i32 (*enqueue)(void *queue, void *kernel, u32 dims, const size *offset, const size *global_size,
                   const size *local_size, u32 waits, void *const *events, void **event);
    i32 (*retain)(void *event);
    i32 (*release)(void *event);
    char *line;  /* where the words of what runs are noted (manycl/drivers/last_words.py); NULL: nowhere */
    u64 longest; /* bytes of the line */
    u64 noted;   /* the number of the shape whose words are noted; 0: others, or none */
    void *last;  /* the event of the last launch, of which the line tells; NULL: taken, or none */
};

struct shape {
    void *kernel;
    u64 number; /* of this process, from 1 on */
    const char *words;
    u64 arguments, dims, has_local;
    size global_size[3], local_size[3];
};

static void note(struct queue *queue, const struct shape *shape) {
    u64 i = 0;
    for (; shape->words[i] && i < queue->longest - 1; i++) queue->line[i] = shape->words[i];
    queue->line[i] = 0;
    queue->noted = shape->number;
}

/* Enqueue a launch. `memory`: for each argument memory that it is to be set to, NULL where it stays what it is. Return
   the event; 0 if that has failed. */
EXPORTED u64 manycl_launch(struct queue *queue, const struct shape *shape, void **memory, const void *waits, u64 count) {
    (void)waits, (void)count; /* there are none */
    for (u64 i = 0; i < shape->arguments; i++) {
        if (!memory[i]) continue;
        if (queue->set_argument(shape->kernel, (u32)i, sizeof memory[i], &memory[i])) return 0;
        memory[i] = NULL;
    }
    if (queue->line && queue->noted != shape->number) note(queue, shape);
    void *event = NULL;
    const size *local_size = shape->has_local ? shape->local_size : NULL;
    if (queue->enqueue(queue->queue, shape->kernel, (u32)shape->dims, NULL, shape->global_size, local_size, 0, NULL,
                       &event))
        return 0;
    if (queue->line && !queue->retain(event)) {
        if (queue->last) queue->release(queue->last);
        queue->last = event;
    }
    return (u64)event;
}

/* The event of the last launch, which is the caller's from now on; NULL if there is none. */
EXPORTED void *manycl_take_last(struct queue *queue) {
    void *last = queue->last;
    queue->last = NULL;
    return last;
}
