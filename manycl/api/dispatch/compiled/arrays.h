/* Arrays with undefined contents: what Queue.empty does where the shape and the type are the very objects of an array
   before, and one of that size has been left behind. */
#ifndef MANYCL_ARRAYS_H
#define MANYCL_ARRAYS_H

#include "objects.h"

static object *empty_slowly, *usual_type; /* Queue.empty as Python has it, and its type where none is given */

/* A buffer without a name that waits for an array of such a size: Memory.again. NULL with no error set if none does. */
static object *waiting(struct held *held, object *buffers, object *nbytes) {
    object *pool = GET(buffers, buffers, _resting);
    object *kinds = IS(pool, pool) ? SLOT(pool, pool, stage) : NULL;
    object *lists = kinds ? hold(held, kept(PyDict_GetItemWithError(kinds, nbytes))) : NULL;
    for (ssize i = 0; lists && i < 2; i++) { /* rather one without a copy on the host */
        object *list = hold(held, kept(PyTuple_GetItem(lists, i)));
        ssize count = list ? PyList_Size(list) : -1;
        if (count < 0) return NULL;
        if (!count) continue;
        object *whole = hold(held, kept(PyList_GetItem(list, count - 1)));
        object *buffer = whole ? PyTuple_GetItem(whole, 0) : NULL;
        object *name = IS(buffer, buffer) ? SLOT(buffer, buffer, name) : NULL;
        if (!name || PyObject_Size(name) || PyList_SetSlice(list, count - 1, count, NULL)) return NULL;
        put(&SLOT(pool, pool, is_used), kept(&_Py_TrueStruct));
        return whole;
    }
    return NULL;
}

/* NULL with no error set where Python has to do it. */
static object *emptied(struct held *held, object *queue, object *shape, object *dtype) {
    object *made = SLOT(queue, queue, _made), *known = GET(queue, queue, _extents);
    object *buffers = GET(queue, queue, _buffers), *session = GET(queue, queue, session);
    if (!made || !known || !session || !IS(buffers, buffers) || PyObject_Size(made)) return NULL;
    object *key = hold(held, PyLong_FromVoidPtr(shape));
    object *extents = key ? hold(held, kept(PyDict_GetItemWithError(known, key))) : NULL;
    if (!extents || PyTuple_GetItem(extents, 0) != shape || PyTuple_GetItem(extents, 1) != dtype) return NULL;
    object *left = SLOT(buffers, buffers, _left); /* what was left behind is looked at first */
    if (!left || PyObject_Size(left) || !done(call(session, name_check_open, NULL, NULL, NULL))) return NULL;
    object *whole = waiting(held, buffers, PyTuple_GetItem(extents, 4));
    if (!whole) return NULL;
    object *array = PyType_GenericNew(class_array, NULL, NULL);
    if (!array) return NULL;
    put(&SLOT(array, array, queue), kept(queue));
    put(&SLOT(array, array, shape), kept(PyTuple_GetItem(extents, 2)));
    put(&SLOT(array, array, dtype), kept(PyTuple_GetItem(extents, 3)));
    put(&SLOT(array, array, _owned), kept(whole));
    put(&SLOT(array, array, buffer), kept(PyTuple_GetItem(whole, 0)));
    put(&SLOT(array, array, argument), kept(PyTuple_GetItem(whole, 1)));
    return array;
}

static object *call_empty(object *self, object *const *arguments, ssize count, object *names) {
    if (names || count < 1 || count > 2 || !IS(self, queue))
        return in_python(empty_slowly, self, arguments, count, names);
    struct held held;
    held.count = 0;
    object *array = emptied(&held, self, arguments[0], count == 2 ? arguments[1] : usual_type);
    give_back(&held);
    return array || PyErr_Occurred() ? array : in_python(empty_slowly, self, arguments, count, names);
}

#endif
