/* Launches like one before on native devices, without Python's interpreter: what LaunchForm.again (manycl/api/dispatch/launch_cache.py)
   does where the kernel's arguments are those of the last time, or other arrays of the same type and size. It reads and
   writes the same attributes of the same objects, so either may do the next launch; whatever is not quite usual is left
   to Python, before anything was done. */
#include "arrays.h"
#include "objects.h"

enum { TIMES = 1024, TIDY = 256 }; /* as in manycl/drivers/native/queue.py */

typedef u64 (*launch_function)(void *queue, void *shape, const void *values, const void *waits, u64 count);

static object *call_slowly; /* Kernel.__call__ as Python has it */
static launch_function launch;

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
    object *directory = GET(at->flight, flight, _directory), *leg = GET(at->flight, flight, leg);
    object *bit = GET(at->flight, flight, _bit);
    NEED(IS(directory, directory) && IS(leg, leg) && bit);
    object *valid = GET(directory, directory, valid), *parts = GET(directory, directory, parts);
    object *lost = GET(directory, directory, _lost), *found = GET(leg, leg, found);
    NEED(valid && parts && lost && found);
    object *mask = hold(held, kept(PyDict_GetItemWithError(valid, key)));
    NEED(mask || !PyErr_Occurred());
    u64 places = mask ? number(mask) : 0;
    int is_undefined = !places && !PyDict_Size(parts) && !PyDict_Size(lost);
    if ((places & number(bit) || is_undefined) && PyDict_GetItemWithError(allocations, key)) {
        object *before = mask ? mask : hold(held, PyLong_FromUnsignedLongLong(0));
        if (!before || PyDict_SetItem(used, key, array) || PyDict_SetItem(found, key, before)) return WRONG;
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
    object *kinds = GET(at->form, form, _arrays), *used = NULL, *allocations = NULL;
    NEED(kinds);
    for (ssize i = 0; i < at->count; i++) {
        object *value = at->arguments[i];
        if (value == PyList_GetItem(known, i)) continue;
        object *kind = PyTuple_GetItem(kinds, i);
        NEED(kind && kind != NONE && IS(value, array));
        if (!used) {
            object *mapped = SEE(at->queue, queue, mapped);
            NEED(mapped && !PyObject_Size(mapped)); /* the host may be looking at it */
            used = GET(at->flight, flight, arrays), allocations = GET(at->flight, flight, allocations);
            NEED(used && allocations);
        }
        object *dtype = SEE(value, array, dtype), *buffer = GET(value, array, buffer);
        NEED(SEE(value, array, queue) == at->queue && dtype == PyTuple_GetItem(kind, 0) && IS(buffer, buffer));
        object *nbytes = SEE(buffer, buffer, nbytes), *key = SEE(buffer, buffer, key); /* (it is frozen) */
        NEED(nbytes && key && number(nbytes) == number(PyTuple_GetItem(kind, 1)));
        if (!PyDict_GetItemWithError(used, key)) {
            NEED(!PyErr_Occurred());
            enum answer adopted = adopt(at, value, key, used, allocations);
            if (adopted != DONE) return adopted;
        }
        object *allocation = hold(held, kept(PyDict_GetItemWithError(allocations, key)));
        NEED(IS(allocation, memory));
        others[(*count)++] = (struct other){i, value, GET(value, array, argument), allocation, buffer};
        NEED(others[*count - 1].argument);
    }
    return DONE;
}

/* Have the kernel take them. An error leaves it to be set anew. */
static enum answer bind(struct launching *at, object *setter, object *known, const struct other *others, ssize count) {
    struct held *held = &at->held;
    object *form = at->form, *before = GET(form, form, _bound), *values = GET(form, form, _values);
    object *taken = GET(setter, setter, held), *compiled = GET(setter, setter, kernel);
    object *writing = GET(form, form, _writing), *leg = GET(at->flight, flight, leg);
    NEED(before && values && taken && IS(compiled, compiled) && writing && IS(leg, leg));
    object *written = GET(leg, leg, written), *memories = GET(compiled, compiled, _held);
    object *words = GET(compiled, compiled, _pointers), *place = SEE(compiled, compiled, values);
    object *bound = hold(held, PyList_GetSlice(before, 0, PyList_Size(before)));
    NEED(written && memories && words && place && bound);
    u64 *bytes = (u64 *)number(place); /* as long as the kernel is there */
    for (ssize i = 0; i < count; i++) { /* before anything is changed */
        object *index = hold(held, PyLong_FromUnsignedLongLong((u64)others[i].index));
        NEED(index && PyDict_GetItemWithError(words, index));
    }
    PUT(setter, setter, setter, NONE);
    for (ssize i = 0; i < count; i++) {
        const struct other *other = &others[i];
        object *index = hold(held, PyLong_FromUnsignedLongLong((u64)other->index));
        object *address = SEE(other->allocation, memory, address), *nbytes = SEE(other->allocation, memory, nbytes);
        if (!index || !address || !nbytes) return WRONG;
        if (PyList_SetItem(taken, other->index, kept(NONE))) return WRONG;
        u64 *place_of = &bytes[number(PyDict_GetItemWithError(words, index))];
        place_of[0] = number(address), place_of[1] = number(nbytes);
        if (PyDict_SetItem(memories, index, other->allocation)) return WRONG;
        if (PyList_SetItem(values, other->index, kept(other->allocation))) return WRONG;
        if (PyList_SetItem(bound, other->index, kept(other->argument))) return WRONG;
        if (PyList_SetItem(known, other->index, kept(other->array))) return WRONG;
        if (PyList_SetItem(taken, other->index, kept(other->allocation))) return WRONG;
    }
    PUT(compiled, compiled, _uses, NONE);
    PUT(form, form, _bound, bound);
    for (ssize i = 0, n = PyTuple_Size(writing); i < n; i++) {
        ssize wanted = PyLong_AsSsize_t(PyTuple_GetItem(writing, i));
        for (ssize j = 0; j < count; j++) {
            if (others[j].index != wanted) continue;
            object *key = SEE(others[j].buffer, buffer, key);
            if (!key || PySet_Add(written, key)) return WRONG;
        }
    }
    PUT(setter, setter, setter, form);
    return DONE;
}

/* Whether a launch of a kernel whose arguments are set is on the NDRange of the form: its shape. */
static object *shape_of(struct launching *at, object *compiled) {
    struct held *held = &at->held;
    object *ranges = SEE(at->form, form, _ranges), *asked = SEE(compiled, compiled, _asked);
    if (!ranges || !asked) return NULL;
    object *items = PyTuple_GetItem(ranges, 0), *each = PyTuple_GetItem(ranges, 1), *shape = PyTuple_GetItem(asked, 3);
    if (!items || !each || !shape || shape == NONE || shape != SEE(compiled, compiled, _last)) return NULL;
    int is_same = items == PyTuple_GetItem(asked, 0) && each == PyTuple_GetItem(asked, 1);
    return is_same && PyTuple_GetItem(asked, 2) == NONE ? hold(held, kept(shape)) : NULL;
}

/* What a queue has to keep for its next command, behind its number: what SetKernel.uses says. */
static object *used_by(struct held *held, object *compiled, object *shape, object *nth) {
    object *extents = SEE(compiled, compiled, _extents), *kernel = GET(compiled, compiled, kernel);
    object *memories = GET(compiled, compiled, _held), *index, *memory;
    if (!extents || !kernel || !memories) return NULL;
    if (PyObject_Size(extents)) {
        object *uses = hold(held, call(of_uses, compiled));
        return uses ? hold(held, PyTuple_Pack(2, nth, uses)) : NULL;
    }
    ssize count = PyDict_Size(memories), at = 0;
    object *used = hold(held, PyTuple_New(3 + count));
    if (!used || PyDict_Size(memories) != count) return NULL;
    object *first[] = {nth, shape, kernel};
    for (ssize i = 0; i < 3; i++)
        if (PyTuple_SetItem(used, i, kept(first[i]))) return NULL;
    for (ssize i = 3; PyDict_Next(memories, &at, &index, &memory); i++)
        if (PyTuple_SetItem(used, i, kept(memory))) return NULL;
    return used;
}

/* Have it kept: NativeQueue.keep. */
static enum answer keep(struct held *held, object *commands, object *kept_by, object *used, u64 completed) {
    NEED(used && hold(held, call_with(of_append, kept_by, used)));
    if (PyObject_Size(kept_by) <= TIDY) return DONE;
    object *middle[] = {kept_by, hold(held, PyLong_FromUnsignedLongLong(TIDY / 2))};
    object *old = hold(held, PyObject_VectorcallMethod(of___getitem__, middle, 2 | FIRST_IS_FREE, NULL));
    NEED(old);
    if (number(PyTuple_GetItem(old, 0)) <= completed) NEED(hold(held, call(of_tidy, commands)));
    return DONE;
}

/* Enqueue it: NativeDriver.launch, and what LaunchForm.again does with its event. */
static enum answer give(struct launching *at, object *compiled) {
    struct held *held = &at->held;
    object *form = at->form, *flight = at->flight, *shape = shape_of(at, compiled), *queue = GET(flight, flight, queue);
    NEED(shape && IS(queue, commands));
    object *state = GET(queue, commands, state), *kept_by = GET(queue, commands, kept);
    object *address = SEE(queue, commands, address), *place = SEE(compiled, compiled, values);
    object *is_timed = SEE(queue, commands, is_timed), *times = GET(queue, commands, times);
    NEED(state && state->type == &PyMemoryView_Type && kept_by && address && place && is_timed && times);
    u64 *words = (u64 *)number(address), next = words[2] + 1; /* COMPLETED, FAILED, GIVEN */
    const void *arguments = (const void *)number(place);
    NEED(is_timed != &_Py_TrueStruct || (next - 1) % TIMES); /* else there is a new array for times */
    object *given = GET(flight, flight, given), *launched = GET(form, form, _launch), *bound = GET(form, form, _bound);
    object *seconds = GET(form, form, _seconds), *nth = hold(held, PyLong_FromUnsignedLongLong(next));
    NEED(given && launched && bound && seconds && nth);
    object *event = hold(held, PyTuple_Pack(3, queue, nth, times));
    object *entry = event ? hold(held, PyTuple_Pack(3, launched, bound, event)) : NULL;
    NEED(entry);
    enum answer answer = keep(held, queue, kept_by, used_by(held, compiled, shape, nth), words[0]);
    if (answer != DONE) return answer;
    NEED(words[2] + 1 == next); /* nobody came between */
    u64 got = launch(words, (void *)number(PyTuple_GetItem(shape, 0)), arguments, NULL, 0);
    NEED(got); /* the error is told when it is tried again */
    if (PyList_Append(given, entry)) { /* no memory: it is under way, and nobody knows */
        PUT(flight, flight, is_giving, &_Py_TrueStruct);
        return WRONG;
    }
    object *ahead = SEE(flight, flight, ahead), *limit = SEE(flight, flight, limit);
    if (!ahead || !limit) return WRONG;
    double now = PyFloat_AsDouble(ahead) + PyFloat_AsDouble(seconds), most = PyFloat_AsDouble(limit);
    ahead = hold(held, PyFloat_FromDouble(now));
    if (!ahead) return WRONG;
    PUT(flight, flight, ahead, ahead);
    if (now > most && !hold(held, call(of_pace, flight))) return WRONG;
    return DONE;
}

/* LaunchForm.again, with the flight's lock. */
static enum answer again(struct launching *at) {
    struct held *held = &at->held;
    object *leg = SEE(at->flight, flight, leg), *uploads = GET(at->flight, flight, uploads);
    object *known = GET(at->form, form, _known), *setter = GET(at->form, form, _kernel);
    NEED(SEE(at->flight, flight, is_open) == &_Py_TrueStruct && leg && leg == SEE(at->form, form, _leg));
    NEED(known && IS(setter, setter) && uploads);
    object *compiled = GET(setter, setter, kernel);
    NEED(SEE(setter, setter, setter) == at->form && IS(compiled, compiled) && PyList_Size(known) == at->count);
    struct other others[MOST_ARGUMENTS];
    ssize count = 0;
    enum answer found = look(at, known, others, &count);
    if (found != DONE) return found;
    NEED(!PyList_Size(uploads));
    if (count && (found = bind(at, setter, known, others, count)) != DONE) return found;
    return give(at, compiled);
}

static object *event_of(struct launching *at) {
    struct held *held = &at->held;
    object *event = hold(held, PyType_GenericNew(manycl_types[TYPE_event].is, NULL, NULL));
    object *given = SEE(at->flight, flight, given);
    object *index = given ? hold(held, PyLong_FromUnsignedLongLong((u64)PyList_Size(given) - 1)) : NULL;
    if (!event || !index) return NULL;
    PUT(event, event, queue, at->queue);
    PUT(event, event, enqueued, at->enqueued);
    PUT(event, event, node, index);
    return kept(event);
}

/* What is launched again by a call of Kernel.__call__, if it may be: NULL with no error set where Python has to look. */
static object *look_up(struct launching *at) {
    struct held *held = &at->held;
    object *queue = at->queue, *forms = GET(queue, queue, forms), *key = GET(at->kernel, kernel, _key);
    if (!forms || !key) return NULL;
    object *question = hold(held, PyTuple_Pack(3, key, at->global_size, at->local_size));
    object *form = at->form = question ? hold(held, kept(PyDict_GetItemWithError(forms, question))) : NULL;
    object *preparing = SEE(queue, queue, preparing), *enqueued = at->enqueued = GET(queue, queue, enqueued);
    if (!IS(form, form) || !preparing || PyObject_Size(preparing) || !IS(enqueued, enqueued)) return NULL;
    object *flight = at->flight = GET(enqueued, enqueued, flight);
    return IS(flight, flight) && SEE(flight, flight, _over) == NONE ? GET(flight, flight, lock) : NULL;
}

/* Its event; NULL with no error set where Python has to look. */
static object *launched(struct launching *at) {
    object *lock = look_up(at);
    if (!lock) {
        PyErr_Clear(); /* of what cannot be looked up: Python says so */
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

static object *call_kernel(object *self, object *const *arguments, ssize count, object *names) {
    if (names || count < 3 || count - 3 > MOST_ARGUMENTS || !IS(self, kernel) || !IS(arguments[0], queue))
        return in_python(call_slowly, self, arguments, count, names);
    struct launching at; /* (not all of what it holds is to be cleared) */
    at.kernel = self, at.queue = arguments[0], at.global_size = arguments[1], at.local_size = arguments[2];
    at.arguments = arguments + 3, at.count = count - 3, at.held.count = 0;
    object *event = launched(&at);
    give_back(&at.held);
    return event || PyErr_Occurred() ? event : in_python(call_slowly, self, arguments, count, names);
}

/* What Kernel.__call__ is to be. `call`: as Python has it. */
EXPORTED object *manycl_again(object *call, u64 launch_at) {
    static struct method method = {
        "__call__", call_kernel, FASTCALL_WITH_KEYWORDS,
        "__call__($self, queue, global_size, local_size, /, *args, global_offset=None, wait_for=None, g_times_l=False, "
        "device='', rank=None)\n--\n\nEnqueue a launch; nothing runs until a result is asked for or the queue is finished."};
#define INTERN(name)                                                                                                  \
    if (!of_##name && !(of_##name = PyUnicode_InternFromString(#name))) return NULL;
    NAMES(INTERN)
    call_slowly = kept(call);
    launch = (launch_function)launch_at;
    return PyDescr_NewMethod(manycl_types[TYPE_kernel].is, &method);
}

/* What Queue.empty is to be. `call`: as Python has it; `usual`: its type where none is given. */
EXPORTED object *manycl_empty(object *call, object *usual) {
    static struct method method = {"empty", call_empty, FASTCALL_WITH_KEYWORDS,
                                   "empty($self, shape, dtype=numpy.float32, *, name='')\n--\n\nAn array with undefined "
                                   "contents: for results; costs no transfer."};
    empty_slowly = kept(call), usual_type = kept(usual);
    return PyDescr_NewMethod(manycl_types[TYPE_queue].is, &method);
}
