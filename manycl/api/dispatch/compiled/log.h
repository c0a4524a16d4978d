/* The command log of an eager stream: the commands that its device was given, and what decides about the next one. */
#ifndef MANYCL_LOG_H
#define MANYCL_LOG_H

#include "objects.h"

typedef u64 (*launch_function)(void *queue, void *shape, void *values, const void *waits, u64 count);
typedef int (*release_function)(u64 number);

/* A command: its node, and its own arguments where they may differ from the node's (else None). The event is the
   driver's; of a command with a number it is made when it is asked for (DirectQueue of manycl/drivers/driver.py). */
struct command {
    object *task, *arguments, *event;
    u64 number;
};

struct log {
    object head;
    struct command *commands;
    ssize count, room;
    double ahead, limit; /* seconds, as of InFlight */
    char is_open;
    u64 batch; /* of this process: the number of the batch */
    ssize device;
    object *lock, *written;
    object *entries; /* cached launches that refer to arrays of the batch */
    object *launch, *queue; /* the driver's */
    /* where the driver has hands its launches over (DirectQueue of manycl/drivers/driver.py) */
    launch_function enqueue;
    release_function release;
    void *address;
    const u64 *given;
    object *keep, *memory, *word, *nbytes, *event_of, *times;
    u64 renewed; /* commands up to this one may be given before `renew` is called */
};

static object *log_type;
static u64 batches; /* of all logs */

enum { RENEWED = 64 }; /* commands, among which the times of none begin a block, and after which complete ones go */

static int grow(struct log *log) {
    if (log->count < log->room) return 1;
    ssize room = log->room ? 2 * log->room : 64;
    struct command *commands = PyMem_Realloc(log->commands, (u64)room * sizeof *commands);
    if (!commands) return done(PyErr_NoMemory());
    log->commands = commands, log->room = room;
    return 1;
}

/* Append a command, for which there is room. */
static void append(struct log *log, object *task, object *arguments, object *event, u64 number) {
    log->commands[log->count++] = (struct command){kept(task), kept(arguments), kept(event), number};
}

static object *log_append(object *self, object *item) {
    struct log *log = (struct log *)self;
    object *task, *arguments, *event;
    if (!PyArg_ParseTuple(item, "OOO", &task, &arguments, &event) || !grow(log)) return NULL;
    append(log, task, arguments, event, 0);
    return kept(NONE);
}

static ssize log_length(object *self) { return ((struct log *)self)->count; }

/* The event of a command. */
static object *event_at(struct log *log, ssize index, struct held *held) {
    struct command *at = &log->commands[index];
    if (!at->number) return hold(held, kept(at->event));
    u64 number = at->number;
    object *nth = hold(held, PyLong_FromUnsignedLongLong(number));
    if (!nth || !log->event_of) return nth ? hold(held, PyTuple_Pack(3, log->queue, nth, at->event)) : NULL;
    at->number = 0; /* it is the event's, and nobody else makes another one */
    object *event = PyObject_Vectorcall(log->event_of, &nth, 1, NULL);
    at = &log->commands[index]; /* Python may have given others */
    if (event) put(&at->event, event);
    else at->number = number;
    return event ? hold(held, kept(event)) : NULL;
}

static object *log_item(object *self, ssize index) {
    struct log *log = (struct log *)self;
    if (index < 0 || index >= log->count) {
        PyErr_SetString(PyExc_IndexError, "there is no such command");
        return NULL;
    }
    struct held held = {0};
    object *event = event_at(log, index, &held);
    const struct command *at = &log->commands[index];
    object *item = event ? PyTuple_Pack(3, at->task, at->arguments, event) : NULL;
    give_back(&held);
    return item;
}

static object *log_subscript(object *self, object *key) {
    struct log *log = (struct log *)self;
    if (key->type != &PySlice_Type) {
        ssize index = PyNumber_AsSsize_t(key, PyExc_IndexError);
        if (index == -1 && PyErr_Occurred()) return NULL;
        return log_item(self, index < 0 ? index + log->count : index);
    }
    ssize begin, end, step;
    if (PySlice_Unpack(key, &begin, &end, &step)) return NULL;
    ssize count = PySlice_AdjustIndices(log->count, &begin, &end, step);
    object *found = PyList_New(0);
    for (ssize i = 0; found && i < count; i++) {
        object *item = log_item(self, begin + i * step);
        if (!item || PyList_Append(found, item)) put(&found, NULL);
        drop(item);
    }
    return found;
}

static void forget_arrays(object *entry);

/* Begin another batch, whose written buffers' keys come into a set: cached launches let go of arrays. */
static object *log_begin(object *self, object *written) {
    struct log *log = (struct log *)self;
    log->batch = ++batches;
    put(&log->written, kept(written));
    object *entries = log->entries, *others = PyList_New(0);
    if (!others) return NULL;
    log->entries = others;
    for (ssize i = 0; i < PyList_Size(entries); i++) forget_arrays(PyList_GetItem(entries, i));
    drop(entries);
    return kept(NONE);
}

static int log_traverse(object *self, visitor visit, void *what) {
    struct log *log = (struct log *)self;
    object *all[] = {log->lock,   log->written, log->entries, log->launch,   log->queue, log->keep,
                     log->memory, log->word,    log->nbytes,  log->event_of, log->times, self->type};
    int found;
    for (u64 i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] && (found = visit(all[i], what))) return found;
    for (ssize i = 0; i < log->count; i++) {
        const struct command *at = &log->commands[i];
        if ((found = visit(at->task, what)) || (found = visit(at->arguments, what)) || (found = visit(at->event, what)))
            return found;
    }
    return 0;
}

static int log_clear(object *self) {
    struct log *log = (struct log *)self;
    object **all[] = {&log->lock,   &log->written, &log->entries, &log->launch,   &log->queue, &log->keep,
                      &log->memory, &log->word,    &log->nbytes,  &log->event_of, &log->times};
    struct command *commands = log->commands;
    ssize count = log->count;
    log->commands = NULL, log->count = log->room = 0, log->is_open = 0;
    for (u64 i = 0; i < sizeof all / sizeof *all; i++) put(all[i], NULL);
    for (ssize i = 0; i < count; i++) {
        if (commands[i].number && log->release) log->release(commands[i].number);
        drop(commands[i].task), drop(commands[i].arguments), drop(commands[i].event);
    }
    PyMem_Free(commands);
    return 0;
}

static void log_dealloc(object *self) {
    object *type = self->type;
    PyObject_GC_UnTrack(self);
    log_clear(self);
    PyObject_GC_Del(self);
    Py_DecRef(type);
}

/* CommandLog(device, lock, launch, queue, written, limit, direct): `direct` is a DirectQueue, or None. */
static object *log_new(object *type, object *arguments, object *names) {
    (void)names;
    ssize device;
    double limit;
    unsigned long long enqueue = 0, address = 0, release = 0, given = 0;
    object *lock, *launch, *queue, *written, *direct;
    object *memory = NULL, *word = NULL, *nbytes = NULL, *event_of = NULL, *keep = NULL;
    if (!PyArg_ParseTuple(arguments, "nOOOOdO", &device, &lock, &launch, &queue, &written, &limit, &direct))
        return NULL;
    if (direct != NONE && !PyArg_ParseTuple(direct, "KKOOOOKKO", &enqueue, &address, &memory, &word, &nbytes, &event_of,
                                            &release, &given, &keep))
        return NULL;
    object *entries = PyList_New(0);
    struct log *log = entries ? (struct log *)PyType_GenericAlloc(type, 0) : NULL;
    if (!log) {
        drop(entries);
        return NULL;
    }
    log->device = device, log->limit = limit, log->is_open = 1, log->batch = ++batches;
    log->lock = kept(lock), log->launch = kept(launch), log->queue = kept(queue), log->written = kept(written);
    log->entries = entries;
    log->enqueue = (launch_function)enqueue, log->release = (release_function)release;
    log->address = (void *)address, log->given = (const u64 *)given, log->keep = kept(keep);
    log->memory = kept(memory), log->word = kept(word);
    log->nbytes = nbytes == NONE ? NULL : kept(nbytes), log->event_of = event_of == NONE ? NULL : kept(event_of);
    return (object *)log;
}

#define LOG(name) __builtin_offsetof(struct log, name)
static struct member log_members[] = {{"ahead", T_DOUBLE, LOG(ahead), 0, NULL},
                                      {"limit", T_DOUBLE, LOG(limit), 0, NULL},
                                      {"is_open", T_BOOL, LOG(is_open), 0, NULL},
                                      {NULL, 0, 0, 0, NULL}};
static struct method log_methods[] = {{"append", log_append, METH_O, NULL},
                                      {"begin", log_begin, METH_O, NULL},
                                      {NULL, NULL, 0, NULL}};
static struct slot log_slots[] = {{TP_DOC, "The command log of an eager stream."},
                                  {TP_NEW, log_new},
                                  {TP_DEALLOC, log_dealloc},
                                  {TP_TRAVERSE, log_traverse},
                                  {TP_CLEAR, log_clear},
                                  {TP_METHODS, log_methods},
                                  {TP_MEMBERS, log_members},
                                  {SQ_LENGTH, log_length},
                                  {SQ_ITEM, log_item},
                                  {MP_LENGTH, log_length},
                                  {MP_SUBSCRIPT, log_subscript},
                                  {0, NULL}};
static struct type_spec log_spec = {"manycl.api.dispatch.compiled.CommandLog", sizeof(struct log), 0,
                                    DEFAULT_FLAGS | GARBAGE_COLLECTED, log_slots};

#endif
