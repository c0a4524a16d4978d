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
typedef int (*visitor)(object *, void *);

struct method { /* PyMethodDef */
    const char *name;
    void *function;
    int flags;
    const char *doc;
};
enum { METH_NOARGS = 0x04, METH_O = 0x08, METH_FASTCALL = 0x80, METH_FASTCALL_KEYWORDS = 0x82 };

struct member { /* PyMemberDef */
    const char *name;
    int type;
    ssize offset;
    int flags;
    const char *doc;
};
enum { T_DOUBLE = 4, T_OBJECT = 6, T_BOOL = 14, T_OBJECT_EX = 16, READONLY = 1 };

struct member_descriptor { /* PyMemberDescrObject: of a slot of a class */
    object head;
    object *type, *name, *qualified_name;
    struct member *member;
};

struct slot { /* PyType_Slot */
    int number;
    void *function;
};
enum {
    MP_LENGTH = 4, MP_SUBSCRIPT = 5, SQ_ITEM = 44, SQ_LENGTH = 45, TP_CLEAR = 51, TP_DEALLOC = 52, TP_DOC = 56,
    TP_METHODS = 64, TP_NEW = 65, TP_TRAVERSE = 71, TP_MEMBERS = 72
};

struct type_spec { /* PyType_Spec */
    const char *name;
    int size, item_size;
    unsigned int flags;
    struct slot *slots;
};
enum { GARBAGE_COLLECTED = 1 << 14, DEFAULT_FLAGS = 1 << 18 };

int PyArg_ParseTuple(object *, const char *, ...);
object *PyDescr_NewMethod(object *type, struct method *);
object *PyDict_GetItemWithError(object *, object *);
object *PyErr_NoMemory(void);
object *PyErr_Occurred(void);
int PyErr_ExceptionMatches(object *);
void PyErr_Clear(void);
void PyErr_Fetch(object **, object **, object **);
void PyErr_Restore(object *, object *, object *);
void PyErr_SetString(object *, const char *);
ssize PyDict_Size(object *);
ssize PyList_Size(object *);
object *PyList_New(ssize);
int PyList_Append(object *, object *);
object *PyList_GetSlice(object *, ssize, ssize);
object *PyList_GetItem(object *, ssize);
int PyList_SetItem(object *, ssize, object *);
int PyList_SetSlice(object *, ssize, ssize, object *);
object *PyLong_FromSsize_t(ssize);
object *PyLong_FromUnsignedLongLong(unsigned long long);
object *PyLong_FromVoidPtr(void *);
ssize PyLong_AsSsize_t(object *);
unsigned long long PyLong_AsUnsignedLongLong(object *);
ssize PyNumber_AsSsize_t(object *, object *);
void *PyMem_Malloc(u64);
void *PyMem_Calloc(u64, u64);
void *PyMem_Realloc(void *, u64);
void PyMem_Free(void *);
object *PyObject_GetAttr(object *, object *);
object *PyObject_GetAttrString(object *, const char *);
void PyObject_GC_Del(void *);
void PyObject_GC_UnTrack(void *);
int PyObject_SetAttr(object *, object *, object *);
ssize PyObject_Size(object *);
object *PyObject_Vectorcall(object *, object *const *, u64, object *);
object *PyObject_VectorcallMethod(object *name, object *const *, u64, object *);
int PySet_Add(object *, object *);
ssize PySlice_AdjustIndices(ssize, ssize *, ssize *, ssize);
int PySlice_Unpack(object *, ssize *, ssize *, ssize *);
object *PyTuple_GetItem(object *, ssize);
object *PyTuple_New(ssize);
object *PyTuple_Pack(ssize, ...);
int PyTuple_SetItem(object *, ssize, object *);
ssize PyTuple_Size(object *);
object *PyType_FromSpec(struct type_spec *);
object *PyType_GenericAlloc(object *type, ssize);
object *PyType_GenericNew(object *type, object *, object *);
object *PyUnicode_InternFromString(const char *);
void Py_IncRef(object *);
void Py_DecRef(object *);
extern object PyMemberDescr_Type, PySlice_Type, PyTuple_Type, _Py_FalseStruct, _Py_NoneStruct, _Py_TrueStruct;
extern object *PyExc_IndexError, *PyExc_TypeError;

#define NONE (&_Py_NoneStruct)
#define FIRST_IS_FREE (1ul << 63) /* PY_VECTORCALL_ARGUMENTS_OFFSET */

#endif
