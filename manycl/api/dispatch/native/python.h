/* What is used of Python's C interface (https://docs.python.org/3/c-api/), declared here: no header has to be there. All
   of it is what every CPython from 3.11 on exports to extension modules; 64 bits, with the interpreter's lock. */
#ifndef MANYCL_PYTHON_H
#define MANYCL_PYTHON_H

typedef __UINT64_TYPE__ u64;
typedef __PTRDIFF_TYPE__ ssize;
#define NULL ((void *)0)

_Static_assert(sizeof(void *) == 8 && sizeof(long) == 8, "64 bits");

/* An object begins so (PEP 384). */
typedef struct object {
    ssize references;
    struct object *type;
} object;

typedef object *(*fast_method)(object *, object *const *, ssize, object *);

struct method {
    const char *name;
    fast_method function;
    int flags;
    const char *doc;
};
enum { FASTCALL_WITH_KEYWORDS = 0x80 | 0x02 };

void Py_IncRef(object *);
void Py_DecRef(object *);
object *PyDescr_NewMethod(object *type, struct method *);
object *PyDict_GetItemWithError(object *, object *);
object *PyErr_NoMemory(void);
object *PyErr_Occurred(void);
void PyErr_Clear(void);
void PyErr_Fetch(object **, object **, object **);
void PyErr_Restore(object *, object *, object *);
int PyDict_Next(object *, ssize *, object **, object **);
int PyDict_SetItem(object *, object *, object *);
ssize PyDict_Size(object *);
double PyFloat_AsDouble(object *);
object *PyFloat_FromDouble(double);
int PyList_Append(object *, object *);
object *PyList_GetItem(object *, ssize);
object *PyList_GetSlice(object *, ssize, ssize);
int PyList_SetItem(object *, ssize, object *);
int PyList_SetSlice(object *, ssize, ssize, object *);
ssize PyList_Size(object *);
object *PyLong_FromUnsignedLongLong(unsigned long long);
object *PyLong_FromVoidPtr(void *);
ssize PyLong_AsSsize_t(object *);
unsigned long long PyLong_AsUnsignedLongLong(object *);
ssize PyObject_Size(object *);
object *PyObject_Vectorcall(object *, object *const *, u64, object *);
object *PyObject_VectorcallMethod(object *name, object *const *, u64, object *);
int PySet_Add(object *, object *);
object *PyTuple_GetItem(object *, ssize);
object *PyTuple_New(ssize);
object *PyTuple_Pack(ssize, ...);
int PyTuple_SetItem(object *, ssize, object *);
void PyMem_Free(void *);
void *PyMem_Malloc(u64);
ssize PyTuple_Size(object *);
object *PyType_GenericNew(object *type, object *, object *);
object *PyUnicode_InternFromString(const char *);
extern object PyMemoryView_Type, _Py_NoneStruct, _Py_TrueStruct;

#define NONE (&_Py_NoneStruct)
#define FIRST_IS_FREE (1ul << 63) /* PY_VECTORCALL_ARGUMENTS_OFFSET */

#endif
