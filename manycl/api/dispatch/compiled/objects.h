/* What is done with Python's objects: references, slots, calls. */
#ifndef MANYCL_OBJECTS_H
#define MANYCL_OBJECTS_H

#include "python.h"

#define EXPORTED __attribute__((visibility("default")))
enum { MOST_ARGUMENTS = 32 };

/* Slots of classes that Python gives when the library is loaded; each class tells where they lie. */
#define CLASSES(_)                                                                                                     \
    _(array) _(buffer) _(buffers) _(driver_error) _(event) _(kernel) _(pool) _(queue) _(stream) _(submission) _(view)
#define SLOTS(_)                                                                                                       \
    _(array, _owned) _(array, argument) _(array, buffer) _(array, dtype) _(array, queue) _(array, shape)               \
    _(buffer, key) _(buffer, name) _(buffer, nbytes)                                                                   \
    _(buffers, _left) _(buffers, _resting)                                                                             \
    _(event, enqueued) _(event, node) _(event, queue)                                                                  \
    _(kernel, _key)                                                                                                    \
    _(pool, stage) _(pool, is_used)                                                                                    \
    _(queue, _buffers) _(queue, _extents) _(queue, _made) _(queue, enqueued) _(queue, launches) _(queue, mapped)       \
    _(queue, preparing) _(queue, session)                                                                              \
    _(stream, allocations) _(stream, arrays) _(stream, given) _(stream, uploads)                                       \
    _(submission, stream)

/* Methods that are called, and attributes that are set. */
#define NAMES(_)                                                                                                       \
    _(acquire) _(adopt) _(submitting) _(append) _(check_open) _(is_giving) _(join) _(numbers) _(pace) _(part)            \
    _(release) _(renew) _(set)

#define DECLARE_CLASS(name) static object *class_##name;
#define DECLARE_SLOT(of, name) static ssize at_##of##_##name;
#define DECLARE_NAME(name) static object *name_##name;
CLASSES(DECLARE_CLASS)
SLOTS(DECLARE_SLOT)
NAMES(DECLARE_NAME)

static inline object *kept(object *found) {
    if (found) Py_IncRef(found);
    return found;
}

static inline void drop(object *found) {
    if (found) Py_DecRef(found);
}

/* Another object, whose reference is given away, is in a place. */
static inline void put(object **place, object *value) {
    object *before = *place;
    *place = value;
    drop(before);
}

/* Whether an object is just of a class that Python has given. */
#define IS(found, name) ((found) && (found)->type == class_##name)

/* A slot of an object, which is of its class; NULL is there before Python has set it. */
#define SLOT(of, class, name) (*(object **)((char *)(of) + at_##class##_##name))

/* References to be given back together: what may go while Python is called. */
enum { MOST_HELD = 32 + 6 * MOST_ARGUMENTS };
struct held {
    ssize count;
    object *all[MOST_HELD];
};

static inline object *hold(struct held *held, object *found) {
    if (held->count == MOST_HELD) __builtin_trap(); /* rather than write behind it */
    if (found) held->all[held->count++] = found;
    return found;
}
#define GET(of, class, name) hold(held, kept(SLOT(of, class, name)))

static inline void give_back(struct held *held) {
    while (held->count) Py_DecRef(held->all[--held->count]);
}

/* A call of a method with up to three arguments, of which the first NULL ends them. */
static object *call(object *of, object *name, object *a, object *b, object *c) {
    object *arguments[] = {of, a, b, c};
    u64 count = 1 + !!a + (a && b) + (a && b && c);
    return PyObject_VectorcallMethod(name, arguments, count | FIRST_IS_FREE, NULL);
}

/* A method as Python has it. */
static object *in_python(object *method, object *self, object *const *arguments, ssize count, object *names) {
    ssize all = count + (names ? PyTuple_Size(names) : 0);
    object *few[MOST_ARGUMENTS], **given = few;
    if (all >= MOST_ARGUMENTS) given = PyMem_Malloc((u64)(all + 1) * sizeof *given);
    if (!given) return PyErr_NoMemory();
    given[0] = self;
    for (ssize i = 0; i < all; i++) given[i + 1] = arguments[i];
    object *found = PyObject_Vectorcall(method, given, (u64)count + 1, names);
    if (given != few) PyMem_Free(given);
    return found;
}

/* What a call returned is not needed: whether there was no error. */
static int done(object *returned) {
    drop(returned);
    return returned != NULL;
}

static int is_true(object *returned) {
    drop(returned);
    return returned == &_Py_TrueStruct;
}

static inline u64 number(object *of) { return PyLong_AsUnsignedLongLong(of); }

enum answer { WRONG = -1, LEFT = 0, DONE = 1 }; /* an error is set; Python has to do it; done */
#define NEED(what)                                                                                                    \
    if (!(what)) return PyErr_Occurred() ? WRONG : LEFT

/* The offset of a slot of a class, as its descriptor tells it: -1 where it has none. */
static ssize offset(object *class, const char *name) {
    struct member_descriptor *found = (void *)PyObject_GetAttrString(class, name);
    int is_slot = found && found->head.type == &PyMemberDescr_Type && found->member->type == T_OBJECT_EX;
    ssize at = is_slot ? found->member->offset : -1;
    drop((object *)found); /* the class has it, too */
    if (at < 0) PyErr_SetString(PyExc_TypeError, name);
    return at;
}

/* Take the classes from a tuple, in their order; they are never freed from now on. */
static int take_classes(object *classes) {
    ssize next = 0;
#define TAKE(name)                                                                                                    \
    if (!(class_##name = kept(PyTuple_GetItem(classes, next++)))) return 0;
    CLASSES(TAKE)
#define FIND(of, name)                                                                                                \
    if ((at_##of##_##name = offset(class_##of, #name)) < 0) return 0;
    SLOTS(FIND)
#define INTERN(name)                                                                                                  \
    if (!(name_##name = PyUnicode_InternFromString(#name))) return 0;
    NAMES(INTERN)
    return 1;
}

#endif
