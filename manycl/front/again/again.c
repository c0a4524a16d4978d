/* Launches like one before on native devices, without Python's interpreter: what LaunchForm.again (manycl/front/forms.py)
   does where the kernel's arguments are those of the last time, or other arrays of the same type and size. It reads and
   writes the same attributes of the same objects, so either may do the next launch; whatever is not quite usual is left
   to Python, before anything was done. */
#include "python.h"

#define EXPORTED __attribute__((visibility("default")))

enum { MOST_ARGUMENTS = 32, TIMES = 1024, TIDY = 256 }; /* the latter two as in manycl/drivers/native/queue.py */

/* Names of attributes and methods. */
#define NAMES(_)                                                                                                      \
    _(_bit) _(_directory) _(_lost) _(found) _(parts) _(valid)                                                            \
    _(_arrays) _(_asked) _(_bound) _(_flight) _(_held) _(_key) _(_kernel) _(_known) _(_last) _(_launch) _(_leg) _(_over)  \
    _(_pointers) _(_ranges) _(_seconds) _(_uses) _(_values) _(_writing) _(__getitem__) _(acquire) _(address) _(adopt) _(ahead)          \
    _(allocations) _(append) _(argument) _(arrays) _(buffer) _(dtype) _(enqueued) _(flight) _(forms) _(given) _(held)     \
    _(is_giving) _(is_open) _(is_timed) _(kept) _(kernel) _(key) _(leg) _(limit) _(lock) _(mapped) _(nbytes) _(node)      \
    _(pace) _(preparing) _(queue) _(release) _(setter) _(shape) _(state) _(tidy) _(times) _(uploads) _(uses) _(values)    \
    _(written)

#define DECLARE(name) static object *of_##name;
NAMES(DECLARE)

typedef u64 (*launch_function)(void *queue, void *shape, const void *values, const void *waits, u64 count);

static object *slowly; /* Kernel.__call__ as Python has it */
static object *event_type, *array_type, *kernel_type, *queue_type, *memory_type;
static launch_function launch;

static inline object *kept(object *found) {
    if (found) Py_IncRef(found);
    return found;
}

static inline void drop(object *found) {
    if (found) Py_DecRef(found);
}

/* What a launch has asked for, given back together: some 60 objects, and 20 for each argument that is another one. */
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

#define GET(of, name) hold(held, PyObject_GetAttr(of, of_##name))

static inline int set(object *of, object *name, object *value) { return PyObject_SetAttr(of, name, value); }

static inline u64 number(object *of) { return PyLong_AsUnsignedLongLong(of); }

static inline object *call(object *name, object *of) {
    object *arguments[] = {of};
    return PyObject_VectorcallMethod(name, arguments, 1 | FIRST_IS_FREE, NULL);
}

static inline object *call_with(object *name, object *of, object *with) {
    object *arguments[] = {of, with};
    return PyObject_VectorcallMethod(name, arguments, 2 | FIRST_IS_FREE, NULL);
}

enum answer { WRONG = -1, LEFT = 0, DONE = 1 }; /* an error is set; Python has to do it; done */
#define NEED(what)                                                                                                    \
    if (!(what)) return PyErr_Occurred() ? WRONG : LEFT

/* A launch: who is asked, and what is found out on the way. */
struct launching {
    object *kernel, *queue, *global_size, *local_size; /* as Kernel.__call__ is given them */
    object *form, *enqueued, *flight;
    object *const *arguments;
    ssize count;
    struct held held;
};

/* An argument that is another one than the last time. */
struct other {
    ssize index;
    object *array, *argument, *allocation, *buffer;
};

/* An array is used from now on: Aboard.adopt, where nothing has to be brought or made. */
static enum answer adopt(struct launching *at, object *array, object *key, object *used, object *allocations) {
    struct held *held = &at->held;
    object *directory = GET(at->flight, _directory), *bit = GET(at->flight, _bit), *leg = GET(at->flight, leg);
    NEED(directory && bit && leg);
    object *valid = GET(directory, valid), *parts = GET(directory, parts), *lost = GET(directory, _lost);
    object *found = GET(leg, found), *nowhere = hold(held, PyLong_FromUnsignedLongLong(0));
    NEED(valid && parts && lost && found && nowhere);
    object *mask = hold(held, kept(PyDict_GetItemWithError(valid, key)));
    NEED(mask || !PyErr_Occurred());
    u64 places = mask ? number(mask) : 0;
    int is_undefined = !places && !PyObject_Size(parts) && !PyObject_Size(lost);
    if ((places & number(bit) || is_undefined) && PyDict_GetItemWithError(allocations, key)) {
        if (PyDict_SetItem(used, key, array) || PyDict_SetItem(found, key, mask ? mask : nowhere)) return WRONG;
        return DONE;
    }
    NEED(!PyErr_Occurred());
    object *taken = hold(held, call_with(of_adopt, at->flight, array));
    NEED(taken == &_Py_TrueStruct);
    return DONE;
}

/* The arguments that are others, as far as they are arrays like those before: LEFT for anything else. */
static enum answer look(struct launching *at, object *known, struct other *others, ssize *count) {
    struct held *held = &at->held;
    object *kinds = GET(at->form, _arrays), *used = NULL, *allocations = NULL;
    NEED(kinds);
    for (ssize i = 0; i < at->count; i++) {
        object *value = at->arguments[i];
        if (value == PyList_GetItem(known, i)) continue;
        object *kind = PyTuple_GetItem(kinds, i);
        NEED(kind && kind != NONE && value->type == array_type);
        if (!used) {
            object *mapped = GET(at->queue, mapped);
            NEED(mapped && !PyObject_Size(mapped)); /* the host may be looking at it */
            used = GET(at->flight, arrays), allocations = GET(at->flight, allocations);
            NEED(used && allocations);
        }
        object *of = GET(value, queue), *dtype = GET(value, dtype), *buffer = GET(value, buffer);
        NEED(of == at->queue && dtype == PyTuple_GetItem(kind, 0) && buffer);
        object *nbytes = GET(buffer, nbytes), *key = GET(buffer, key);
        NEED(nbytes && key && number(nbytes) == number(PyTuple_GetItem(kind, 1)));
        if (!PyDict_GetItemWithError(used, key)) {
            NEED(!PyErr_Occurred());
            enum answer adopted = adopt(at, value, key, used, allocations);
            if (adopted != DONE) return adopted;
        }
        object *allocation = hold(held, kept(PyDict_GetItemWithError(allocations, key)));
        NEED(allocation && allocation->type == memory_type);
        others[(*count)++] = (struct other){i, value, GET(value, argument), allocation, buffer};
        NEED(others[*count - 1].argument);
    }
    return DONE;
}

/* Have the kernel take them. An error leaves it to be set anew. */
static enum answer bind(struct launching *at, object *setter, object *known, const struct other *others, ssize count) {
    struct held *held = &at->held;
    object *before = GET(at->form, _bound), *values = GET(at->form, _values), *taken = GET(setter, held);
    object *compiled = GET(setter, kernel), *writing = GET(at->form, _writing), *leg = GET(at->flight, leg);
    NEED(before && values && taken && compiled && writing && leg);
    object *written = GET(leg, written), *memories = GET(compiled, _held), *words = GET(compiled, _pointers);
    object *place = GET(compiled, values);
    object *bound = hold(held, PyList_GetSlice(before, 0, PyList_Size(before)));
    NEED(written && memories && words && place && bound);
    u64 *bytes = (u64 *)number(place);
    for (ssize i = 0; i < count; i++) { /* before anything is changed */
        object *index = hold(held, PyLong_FromUnsignedLongLong((u64)others[i].index));
        NEED(index && PyDict_GetItemWithError(words, index));
    }
    if (set(setter, of_setter, NONE)) return WRONG;
    for (ssize i = 0; i < count; i++) {
        const struct other *other = &others[i];
        object *index = hold(held, PyLong_FromUnsignedLongLong((u64)other->index));
        object *address = GET(other->allocation, address);
        if (!index || !address) return WRONG;
        if (PyList_SetItem(taken, other->index, kept(NONE))) return WRONG;
        bytes[number(PyDict_GetItemWithError(words, index))] = number(address);
        if (PyDict_SetItem(memories, index, other->allocation)) return WRONG;
        if (PyList_SetItem(values, other->index, kept(other->allocation))) return WRONG;
        if (PyList_SetItem(bound, other->index, kept(other->argument))) return WRONG;
        if (PyList_SetItem(known, other->index, kept(other->array))) return WRONG;
        if (PyList_SetItem(taken, other->index, kept(other->allocation))) return WRONG;
    }
    if (set(compiled, of__uses, NONE) || set(at->form, of__bound, bound)) return WRONG;
    for (ssize i = 0, n = PyTuple_Size(writing); i < n; i++) {
        ssize wanted = PyLong_AsSsize_t(PyTuple_GetItem(writing, i));
        for (ssize j = 0; j < count; j++) {
            if (others[j].index != wanted) continue;
            object *key = GET(others[j].buffer, key);
            if (!key || PySet_Add(written, key)) return WRONG;
        }
    }
    return set(setter, of_setter, at->form) ? WRONG : DONE;
}

/* Whether a launch of a kernel whose arguments are set is on the NDRange of the form: its shape. */
static object *shape_of(struct launching *at, object *compiled) {
    struct held *held = &at->held;
    object *ranges = GET(at->form, _ranges), *asked = GET(compiled, _asked), *last = GET(compiled, _last);
    if (!ranges || !asked || !last) return NULL;
    object *items = PyTuple_GetItem(ranges, 0), *each = PyTuple_GetItem(ranges, 1), *shape = PyTuple_GetItem(asked, 3);
    if (!items || !each || !shape || shape == NONE || shape != last) return NULL;
    int is_same = items == PyTuple_GetItem(asked, 0) && each == PyTuple_GetItem(asked, 1);
    return is_same && PyTuple_GetItem(asked, 2) == NONE ? shape : NULL;
}

/* Enqueue it: NativeDriver.launch, and what LaunchForm.again does with its event. */
static enum answer give(struct launching *at, object *compiled) {
    struct held *held = &at->held;
    object *shape = shape_of(at, compiled), *queue = GET(at->flight, queue), *form = at->form, *flight = at->flight;
    NEED(shape && queue && queue->type == queue_type);
    object *state = GET(queue, state), *kept_by = GET(queue, kept), *address = GET(queue, address);
    object *is_timed = GET(queue, is_timed), *uses = GET(compiled, _uses), *place = GET(compiled, values);
    NEED(state && state->type == &PyMemoryView_Type && kept_by && address && is_timed && uses && place);
    u64 *words = (u64 *)number(address), next = words[2] + 1; /* COMPLETED, FAILED, GIVEN */
    NEED(is_timed != &_Py_TrueStruct || (next - 1) % TIMES); /* else there is a new array for times */
    object *times = GET(queue, times), *given = GET(flight, given), *launched = GET(form, _launch);
    object *bound = GET(form, _bound), *seconds = GET(form, _seconds);
    if (uses == NONE) uses = hold(held, call(of_uses, compiled));
    object *nth = hold(held, PyLong_FromUnsignedLongLong(next));
    NEED(times && given && launched && bound && seconds && uses && nth);
    object *event = hold(held, PyTuple_Pack(3, queue, nth, times));
    object *entry = event ? hold(held, PyTuple_Pack(3, launched, bound, event)) : NULL;
    object *used = hold(held, PyTuple_Pack(2, nth, uses));
    NEED(entry && used && hold(held, call_with(of_append, kept_by, used)));
    if (PyObject_Size(kept_by) > TIDY) {
        object *first[] = {kept_by, hold(held, PyLong_FromUnsignedLongLong(0))};
        object *oldest = hold(held, PyObject_VectorcallMethod(of___getitem__, first, 2 | FIRST_IS_FREE, NULL));
        NEED(oldest);
        if (number(PyTuple_GetItem(oldest, 0)) <= words[0]) NEED(hold(held, call(of_tidy, queue)));
    }
    void *structure = (void *)number(PyTuple_GetItem(shape, 0));
    NEED(words[2] + 1 == next); /* nobody came between */
    u64 got = launch(words, structure, (const void *)number(place), NULL, 0);
    NEED(got); /* the error is told when it is tried again */
    if (PyList_Append(given, entry)) { /* no memory: it is under way, and nobody knows */
        set(flight, of_is_giving, &_Py_TrueStruct);
        return WRONG;
    }
    object *ahead = GET(flight, ahead), *limit = GET(flight, limit);
    if (!ahead || !limit) return WRONG;
    double now = PyFloat_AsDouble(ahead) + PyFloat_AsDouble(seconds);
    ahead = hold(held, PyFloat_FromDouble(now));
    if (!ahead || set(flight, of_ahead, ahead)) return WRONG;
    if (now > PyFloat_AsDouble(limit) && !hold(held, call(of_pace, flight))) return WRONG;
    return DONE;
}

/* LaunchForm.again, with the flight's lock. */
static enum answer again(struct launching *at) {
    struct held *held = &at->held;
    object *is_open = GET(at->flight, is_open), *leg = GET(at->flight, leg), *uploads = GET(at->flight, uploads);
    object *mine = GET(at->form, _leg), *known = GET(at->form, _known), *setter = GET(at->form, _kernel);
    NEED(is_open == &_Py_TrueStruct && leg && leg == mine && known && setter && uploads);
    object *last = GET(setter, setter), *compiled = GET(setter, kernel);
    NEED(last == at->form && compiled && compiled->type == kernel_type && PyList_Size(known) == at->count);
    struct other others[MOST_ARGUMENTS];
    ssize count = 0;
    enum answer found = look(at, known, others, &count);
    if (found != DONE) return found;
    NEED(!PyObject_Size(uploads));
    if (count && (found = bind(at, setter, known, others, count)) != DONE) return found;
    return give(at, compiled);
}

static object *event_of(struct launching *at) {
    struct held *held = &at->held;
    object *event = PyType_GenericNew(event_type, NULL, NULL), *given = GET(at->flight, given);
    object *index = given ? hold(held, PyLong_FromUnsignedLongLong((u64)PyList_Size(given) - 1)) : NULL;
    if (event && index && !set(event, of_queue, at->queue) && !set(event, of_enqueued, at->enqueued) &&
        !set(event, of_node, index))
        return event;
    drop(event);
    return NULL;
}

/* What is launched again by a call of Kernel.__call__, if it may be: NULL with no error set where Python has to look. */
static object *look_up(struct launching *at) {
    struct held *held = &at->held;
    object *forms = GET(at->queue, forms), *key = GET(at->kernel, _key), *preparing = GET(at->queue, preparing);
    object *enqueued = at->enqueued = GET(at->queue, enqueued);
    if (!forms || !key || !preparing || !enqueued || PyObject_Size(preparing)) return NULL;
    object *question = hold(held, PyTuple_Pack(3, key, at->global_size, at->local_size));
    object *form = at->form = question ? hold(held, kept(PyDict_GetItemWithError(forms, question))) : NULL;
    object *flight = at->flight = form ? GET(enqueued, flight) : NULL;
    if (!flight || flight == NONE) return NULL;
    object *over = GET(flight, _over);
    return over == NONE ? GET(flight, lock) : NULL;
}

/* Its event; NULL with no error set where Python has to look. */
static object *launched(struct launching *at) {
    object *lock = look_up(at);
    if (!lock) {
        PyErr_Clear(); /* of what is no queue, or cannot be looked up: Python says so */
        return NULL;
    }
    if (!hold(&at->held, call(of_acquire, lock))) return NULL;
    object *event = again(at) == DONE ? event_of(at) : NULL;
    object *error[3];
    PyErr_Fetch(&error[0], &error[1], &error[2]); /* nothing may be called with one */
    drop(call(of_release, lock));
    PyErr_Restore(error[0], error[1], error[2]);
    return event;
}

/* Kernel.__call__ as Python has it. */
static object *in_python(object *self, object *const *arguments, ssize count, object *names) {
    ssize all = count + (names ? PyTuple_Size(names) : 0);
    object *few[MOST_ARGUMENTS], **given = few;
    if (all >= MOST_ARGUMENTS) given = PyMem_Malloc((u64)(all + 1) * sizeof *given);
    if (!given) return PyErr_NoMemory();
    given[0] = self;
    for (ssize i = 0; i < all; i++) given[i + 1] = arguments[i];
    object *found = PyObject_Vectorcall(slowly, given, (u64)count + 1, names);
    if (given != few) PyMem_Free(given);
    return found;
}

static object *call_kernel(object *self, object *const *arguments, ssize count, object *names) {
    if (names || count < 3 || count - 3 > MOST_ARGUMENTS) return in_python(self, arguments, count, names);
    struct launching at; /* (not all of what it holds is to be cleared) */
    at.kernel = self, at.queue = arguments[0], at.global_size = arguments[1], at.local_size = arguments[2];
    at.arguments = arguments + 3, at.count = count - 3, at.held.count = 0;
    object *event = launched(&at);
    while (at.held.count) Py_DecRef(at.held.all[--at.held.count]);
    return event || PyErr_Occurred() ? event : in_python(self, arguments, count, names);
}

/* What Kernel.__call__ is to be. `types`: those of kernels, events, arrays, kernels, queues and memories of native
   devices; `call`: as Python has it. */
EXPORTED object *manycl_again(object *types, object *call, u64 launch_at) {
    static struct method method = {
        "__call__", call_kernel, FASTCALL_WITH_KEYWORDS,
        "__call__($self, queue, global_size, local_size, /, *args, global_offset=None, wait_for=None, g_times_l=False, "
        "device='', rank=None)\n--\n\nEnqueue a launch; nothing runs until a result is asked for or the queue is finished."};
    object **places[] = {&event_type, &array_type, &kernel_type, &queue_type, &memory_type};
    for (ssize i = 0; i < 5; i++) *places[i] = kept(PyTuple_GetItem(types, i + 1));
#define INTERN(name)                                                                                                  \
    if (!of_##name && !(of_##name = PyUnicode_InternFromString(#name))) return NULL;
    NAMES(INTERN)
    slowly = kept(call);
    launch = (launch_function)launch_at;
    return PyDescr_NewMethod(PyTuple_GetItem(types, 0), &method);
}
