/* An entry of the launch cache: a launch of a kernel at one NDRange on a device, on arrays of certain types and sizes,
   with a kernel object of its own. */
#ifndef MANYCL_ENTRY_H
#define MANYCL_ENTRY_H

#include "log.h"

struct argument {
    object *known; /* the object that it was given last, if it has the same value as long as it is the same object */
    object *dtype; /* of an array; NULL for a number */
    ssize nbytes;  /* of an array */
    ssize word;    /* of an array, the word of its address in the block of arguments; its size is behind */
    object *allocation;
    char is_written;
};

struct entry {
    object head;
    object *rules;   /* CachedLaunch of manycl/api/dispatch/launch_cache.py: what it asks where numbers change */
    object *task;    /* the launch for which it was made */
    object *bound;   /* a list: the arguments, as the launch has them */
    object *kernel, *global_size, *local_size;
    double seconds;  /* that a launch is expected to take */
    ssize device;
    u64 batch; /* the one for which the known arrays are right, by its number */
    char is_retired;
    char is_busy; /* a launch is being given: Python, called for that, may launch the same kernel */
    ssize count;
    struct argument *arguments;
    void *shape; /* as the driver has it (DirectLaunch of manycl/drivers/driver.py); NULL: it is launched by Python */
    u64 *block;
    object *needs; /* what a launch needs until it is complete, besides the memory of its arrays */
    object *uses;  /* both; NULL where other arrays came */
};

static object *entry_type;

static void forget_arrays(object *self) {
    struct entry *entry = (struct entry *)self;
    entry->batch = 0;
    for (ssize i = 0; i < entry->count; i++)
        if (entry->arguments[i].dtype) put(&entry->arguments[i].known, NULL);
}

static object *entry_retire(object *self, object *nothing) {
    (void)nothing;
    ((struct entry *)self)->is_retired = 1;
    forget_arrays(self);
    return kept(NONE);
}

static int entry_traverse(object *self, visitor visit, void *what) {
    struct entry *entry = (struct entry *)self;
    object *all[] = {entry->rules,      entry->task,  entry->bound, entry->kernel, entry->global_size,
                     entry->local_size, entry->needs, entry->uses,  self->type};
    int found;
    for (u64 i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] && (found = visit(all[i], what))) return found;
    for (ssize i = 0; i < entry->count; i++) {
        const struct argument *at = &entry->arguments[i];
        if (at->known && (found = visit(at->known, what))) return found;
        if (at->dtype && (found = visit(at->dtype, what))) return found;
        if (at->allocation && (found = visit(at->allocation, what))) return found;
    }
    return 0;
}

static int entry_clear(object *self) {
    struct entry *entry = (struct entry *)self;
    object **all[] = {&entry->rules,      &entry->task,  &entry->bound, &entry->kernel, &entry->global_size,
                      &entry->local_size, &entry->needs, &entry->uses};
    struct argument *arguments = entry->arguments;
    ssize count = entry->count;
    entry->is_retired = 1, entry->arguments = NULL, entry->count = 0;
    for (u64 i = 0; i < sizeof all / sizeof *all; i++) put(all[i], NULL);
    for (ssize i = 0; i < count; i++) drop(arguments[i].known), drop(arguments[i].dtype), drop(arguments[i].allocation);
    PyMem_Free(arguments);
    return 0;
}

static void entry_dealloc(object *self) {
    object *type = self->type;
    PyObject_GC_UnTrack(self);
    entry_clear(self);
    PyObject_GC_Del(self);
    Py_DecRef(type);
}

/* Take the arguments: of each (known or None, dtype or None, nbytes, is_written). */
static int take_arguments(struct entry *entry, object *arguments) {
    ssize count = PyTuple_Size(arguments);
    if (count < 0 || !(entry->arguments = PyMem_Calloc((u64)count + 1, sizeof *entry->arguments))) return 0;
    for (entry->count = 0; entry->count < count; entry->count++) {
        struct argument *at = &entry->arguments[entry->count];
        object *known, *dtype;
        int is_written;
        object *given = PyTuple_GetItem(arguments, entry->count);
        if (!PyArg_ParseTuple(given, "OOnp", &known, &dtype, &at->nbytes, &is_written)) return 0;
        at->known = known == NONE ? NULL : kept(known), at->dtype = dtype == NONE ? NULL : kept(dtype);
        at->word = -1, at->is_written = (char)is_written;
    }
    return 1;
}

/* Take a DirectLaunch. */
static int take_direct(struct entry *entry, object *direct) {
    unsigned long long shape, block;
    object *words, *needs;
    if (!PyArg_ParseTuple(direct, "KKOO", &shape, &block, &words, &needs)) return 0;
    for (ssize i = 0; i < entry->count; i++) {
        object *word = PyTuple_GetItem(words, i);
        entry->arguments[i].word = word ? PyLong_AsSsize_t(word) : -1;
        if (PyErr_Occurred()) return 0;
    }
    entry->shape = (void *)shape, entry->block = (u64 *)block, entry->needs = kept(needs);
    return 1;
}

/* Entry(rules, launch, bound, device, kernel, global size, local size, arguments, direct) */
static object *entry_new(object *type, object *arguments, object *names) {
    (void)names;
    object *rules, *task, *bound, *kernel, *global_size, *local_size, *each, *direct;
    ssize device;
    if (!PyArg_ParseTuple(arguments, "OOOnOOOOO", &rules, &task, &bound, &device, &kernel, &global_size, &local_size,
                          &each, &direct))
        return NULL;
    struct entry *entry = (struct entry *)PyType_GenericAlloc(type, 0);
    if (!entry) return NULL;
    entry->rules = kept(rules), entry->task = kept(task), entry->bound = kept(bound), entry->kernel = kept(kernel);
    entry->global_size = kept(global_size), entry->local_size = kept(local_size), entry->device = device;
    if (!take_arguments(entry, each) || (direct != NONE && !take_direct(entry, direct))) put((object **)&entry, NULL);
    return (object *)entry;
}

#define ENTRY(name) __builtin_offsetof(struct entry, name)
static struct member entry_members[] = {{"seconds", T_DOUBLE, ENTRY(seconds), 0, NULL},
                                        {"bound", T_OBJECT, ENTRY(bound), READONLY, NULL},
                                        {"rules", T_OBJECT, ENTRY(rules), READONLY, NULL},
                                        {"is_retired", T_BOOL, ENTRY(is_retired), READONLY, NULL},
                                        {NULL, 0, 0, 0, NULL}};
static struct method entry_methods[] = {{"retire", entry_retire, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct slot entry_slots[] = {{TP_DOC, "An entry of the launch cache."},
                                    {TP_NEW, entry_new},
                                    {TP_DEALLOC, entry_dealloc},
                                    {TP_TRAVERSE, entry_traverse},
                                    {TP_CLEAR, entry_clear},
                                    {TP_METHODS, entry_methods},
                                    {TP_MEMBERS, entry_members},
                                    {0, NULL}};
static struct type_spec entry_spec = {"manycl.api.dispatch.compiled.Entry", sizeof(struct entry), 0,
                                      DEFAULT_FLAGS | GARBAGE_COLLECTED, entry_slots};

#endif
