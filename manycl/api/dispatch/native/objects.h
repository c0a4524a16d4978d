/* What is done with Python's objects here. */
#ifndef MANYCL_OBJECTS_H
#define MANYCL_OBJECTS_H

#include "slots.h"

enum { MOST_ARGUMENTS = 32 };

/* Names of methods, and of what has no slots. */
#define NAMES(_)                                                                                                      \
    _(__getitem__) _(acquire) _(adopt) _(append) _(check_open) _(pace) _(release) _(tidy) _(uses)

#define DECLARE(name) static object *of_##name;
NAMES(DECLARE)

static inline object *kept(object *found) {
    if (found) Py_IncRef(found);
    return found;
}

static inline void drop(object *found) {
    if (found) Py_DecRef(found);
}

/* What has been asked for and may be used, whatever Python does meanwhile (memory that is allocated may have garbage
   collected, whose destructors may let other threads go on); given back together: some 60 objects of a launch, and 16
   for each argument that is another one. */
enum { MOST_HELD = 128 + 24 * MOST_ARGUMENTS };
struct held {
    ssize count;
    object *all[MOST_HELD];
};

static inline object *hold(struct held *held, object *found) {
    if (held->count == MOST_HELD) __builtin_trap(); /* rather than write behind it */
    if (found) held->all[held->count++] = found;
    return found;
}

static inline void give_back(struct held *held) {
    while (held->count) Py_DecRef(held->all[--held->count]);
}

/* A slot of an object, which is of its class. */
#define SEE(of, type, name) (*PLACE(of, type, name))
#define GET(of, type, name) hold(held, kept(SEE(of, type, name)))

/* Another object is in a slot. */
static inline void put(object **place, object *value) {
    object *before = *place;
    *place = kept(value);
    drop(before);
}
#define PUT(of, type, name, value) put(PLACE(of, type, name), value)

static inline u64 number(object *of) { return PyLong_AsUnsignedLongLong(of); }

static inline object *call(object *name, object *of) {
    object *arguments[] = {of};
    return PyObject_VectorcallMethod(name, arguments, 1 | FIRST_IS_FREE, NULL);
}

static inline object *call_with(object *name, object *of, object *with) {
    object *arguments[] = {of, with};
    return PyObject_VectorcallMethod(name, arguments, 2 | FIRST_IS_FREE, NULL);
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

enum answer { WRONG = -1, LEFT = 0, DONE = 1 }; /* an error is set; Python has to do it; done */
#define NEED(what)                                                                                                    \
    if (!(what)) return PyErr_Occurred() ? WRONG : LEFT

#endif
