/* The launch cache: a launch like one before is given to the device of an eager stream without Python's interpreter.
   The entries and the stream's log of commands are objects of this library; a driver hands over a function and a block
   of arguments, or launches are given to its `launch`. A miss is Python's: what is not quite usual is left to it before
   anything was done. */
#include "arrays.h"
#include "entry.h"

static object *call_slowly; /* Kernel.__call__ as Python has it */

/* A launch: who is asked, and what is found out on the way. */
struct launching {
    object *queue, *submission, *stream;
    struct entry *entry;
    struct log *log;
    object *const *arguments;
    ssize argument_count;
    u64 batch;
    ssize node; /* the command's number in the log */
    int is_new; /* the entry has not been used in the batch */
    ssize count; /* of the arrays that are others than the last time */
    ssize numbers; /* of the numbers that are */
    struct other {
        ssize index;
        object *value, *argument, *allocation, *key;
    } others[MOST_ARGUMENTS];
    ssize changed[MOST_ARGUMENTS];
    struct held held;
};

/* A view that is another one: Python knows where its bytes are. */
static enum answer look_at_view(struct launching *at, ssize index) {
    object *nth = hold(&at->held, PyLong_FromSsize_t(index));
    object *arguments[] = {at->entry->rules, at->queue, at->stream, nth, at->arguments[index]};
    NEED(nth);
    object *found = hold(&at->held, PyObject_VectorcallMethod(name_part, arguments, 5 | FIRST_IS_FREE, NULL));
    NEED(found && found != NONE);
    struct other *other = &at->others[at->count++];
    other->index = index, other->value = at->arguments[index];
    return PyArg_ParseTuple(found, "OOO", &other->key, &other->argument, &other->allocation) ? DONE : WRONG;
}

/* An array that is another one than the last time. */
static enum answer look_at_array(struct launching *at, ssize index) {
    struct held *held = &at->held;
    const struct argument *before = &at->entry->arguments[index];
    object *value = at->arguments[index], *mapped = SLOT(at->queue, queue, mapped);
    if (IS(value, view)) return look_at_view(at, index);
    NEED(IS(value, array) && mapped && !PyObject_Size(mapped)); /* the host may be looking at it */
    object *dtype = SLOT(value, array, dtype), *buffer = GET(value, array, buffer);
    NEED(SLOT(value, array, queue) == at->queue && dtype == before->dtype && IS(buffer, buffer));
    object *key = GET(buffer, buffer, key), *argument = GET(value, array, argument);
    NEED(key && argument && (ssize)number(SLOT(buffer, buffer, nbytes)) == before->nbytes);
    object *used = SLOT(at->stream, stream, arrays);
    NEED(used);
    if (!PyDict_GetItemWithError(used, key))
        NEED(!PyErr_Occurred() && is_true(call(at->stream, name_adopt, value, NULL, NULL)));
    object *allocations = SLOT(at->stream, stream, allocations);
    object *allocation = allocations ? hold(held, kept(PyDict_GetItemWithError(allocations, key))) : NULL;
    NEED(allocation);
    at->others[at->count++] = (struct other){index, value, argument, allocation, key};
    return DONE;
}

/* Find the arguments that are others than the last time. */
static enum answer look(struct launching *at) {
    for (ssize i = 0; i < at->entry->count; i++) {
        const struct argument *before = &at->entry->arguments[i];
        if (at->arguments[i] == before->known && !(at->is_new && before->dtype)) continue;
        if (!before->dtype) {
            at->changed[at->numbers++] = i;
            continue;
        }
        enum answer answer = look_at_array(at, i);
        if (answer != DONE) return answer;
        object *memory = at->others[at->count - 1].allocation;
        NEED(!at->entry->shape || (memory->type == at->log->memory && before->word >= 0));
    }
    return DONE;
}

/* The numbers that have changed are checked, and put among the bound arguments: what is to be known of them. */
static object *checked(struct launching *at, object *bound) {
    struct held *held = &at->held;
    object *all = hold(held, PyTuple_New(at->entry->count)), *indices = hold(held, PyTuple_New(at->numbers));
    if (!all || !indices) return NULL;
    for (ssize i = 0; i < at->entry->count; i++) PyTuple_SetItem(all, i, kept(at->arguments[i]));
    for (ssize i = 0; i < at->numbers; i++) PyTuple_SetItem(indices, i, PyLong_FromSsize_t(at->changed[i]));
    object *arguments[] = {at->entry->rules, at->stream, all, indices, bound};
    return hold(held, PyObject_VectorcallMethod(name_numbers, arguments, 5 | FIRST_IS_FREE, NULL));
}

static enum answer set(struct launching *at, ssize index, object *value) {
    object *nth = hold(&at->held, PyLong_FromSsize_t(index));
    NEED(nth && done(call(at->entry->kernel, name_set, nth, value, NULL)));
    return DONE;
}

/* Have the entry's kernel take an array. */
static enum answer take(struct launching *at, const struct other *other) {
    struct argument *argument = &at->entry->arguments[other->index];
    if (argument->allocation != other->allocation) {
        if (at->entry->shape) {
            object *word = hold(&at->held, PyObject_GetAttr(other->allocation, at->log->word)), *nbytes = NULL;
            NEED(word);
            if (at->log->nbytes) NEED(nbytes = hold(&at->held, PyObject_GetAttr(other->allocation, at->log->nbytes)));
            u64 *block = at->entry->block + argument->word;
            block[0] = number(word);
            if (nbytes) block[1] = number(nbytes);
            NEED(!PyErr_Occurred());
        } else {
            enum answer answer = set(at, other->index, other->allocation);
            if (answer != DONE) return answer;
        }
        put(&argument->allocation, kept(other->allocation));
        put(&at->entry->uses, NULL);
    }
    put(&argument->known, kept(other->value));
    if (argument->is_written && PySet_Add(at->log->written, other->key)) return WRONG;
    return DONE;
}

/* Have the entry's kernel take all arguments that have changed. Where that fails in between, the entry is not used any
   more. */
static enum answer take_all(struct launching *at, object *bound, object *known) {
    struct entry *entry = at->entry;
    enum answer answer = DONE;
    entry->is_retired = 1;
    for (ssize i = 0; i < at->numbers && answer == DONE; i++) {
        ssize index = at->changed[i];
        object *remembered = kept(PyTuple_GetItem(known, i));
        put(&entry->arguments[index].known, NULL);
        answer = remembered ? set(at, index, PyList_GetItem(bound, index)) : WRONG;
        put(&entry->arguments[index].known, remembered);
    }
    for (ssize i = 0; i < at->count && answer == DONE; i++) answer = take(at, &at->others[i]);
    if (answer == DONE) entry->is_retired = 0;
    return answer;
}

/* Have the entry's kernel set to the arguments, of which some are others. */
static enum answer bind(struct launching *at) {
    struct entry *entry = at->entry;
    object *bound = hold(&at->held, PyList_GetSlice(entry->bound, 0, entry->count)), *known = NULL;
    NEED(bound);
    for (ssize i = 0; i < at->count; i++)
        if (PyList_SetItem(bound, at->others[i].index, kept(at->others[i].argument))) return WRONG;
    if (at->numbers) NEED((known = checked(at, bound)) && known != NONE);
    if (at->is_new) {
        NEED(done(call(at->stream, name_join, entry->rules, NULL, NULL)));
        if (PyList_Append(at->log->entries, (object *)entry)) return WRONG;
    }
    NEED(at->batch == at->log->batch); /* a number's own method may have waited for all */
    enum answer answer = take_all(at, bound, known);
    if (answer != DONE) return answer;
    put(&entry->bound, kept(bound));
    entry->batch = at->log->batch;
    return DONE;
}

/* What a command of the entry needs until it is complete. */
static object *uses(struct entry *entry) {
    if (entry->uses) return entry->uses;
    object *all = PyTuple_New(1 + entry->count);
    if (!all) return NULL;
    PyTuple_SetItem(all, 0, kept(entry->needs));
    for (ssize i = 0; i < entry->count; i++) {
        object *allocation = entry->arguments[i].allocation;
        PyTuple_SetItem(all, 1 + i, kept(allocation ? allocation : NONE));
    }
    return entry->uses = all;
}

/* Have the driver keep what the next command needs, if it does not do so by itself. */
static enum answer keep(struct launching *at) {
    struct log *log = at->log;
    u64 next = *log->given + 1;
    if (next > log->renewed) { /* copies may have begun a block of times, too, so blocks are told by numbers */
        object *times = call(log->queue, name_renew, NULL, NULL, NULL);
        NEED(times);
        put(&log->times, times);
        next = *log->given + 1;
        log->renewed = (next - 1) / RENEWED * RENEWED + RENEWED;
    }
    object *nth = hold(&at->held, PyLong_FromUnsignedLongLong(next)), *needed = uses(at->entry);
    object *item = nth && needed ? hold(&at->held, PyTuple_Pack(2, nth, needed)) : NULL;
    NEED(item && done(call(log->keep, name_append, item, NULL, NULL)));
    NEED(*log->given + 1 == next); /* nobody came between */
    return DONE;
}

/* Enqueue it by the driver's own function. */
static enum answer give_directly(struct launching *at) {
    struct log *log = at->log;
    struct entry *entry = at->entry;
    enum answer answer = log->given ? keep(at) : DONE;
    if (answer != DONE) return answer;
    NEED(grow(log) && log->is_open);
    u64 got = log->enqueue(log->address, entry->shape, entry->block, NULL, 0);
    NEED(got); /* the error is told when it is tried again */
    append(log, entry->task, entry->bound, log->times ? log->times : NONE, got);
    return DONE;
}

/* Enqueue it by the driver's method. */
static enum answer give_by_python(struct launching *at) {
    struct log *log = at->log;
    struct entry *entry = at->entry;
    object *arguments[] = {NULL, log->queue, entry->kernel, entry->global_size, entry->local_size, NONE, NONE};
    if (PyObject_SetAttr(at->stream, name_is_giving, &_Py_TrueStruct)) return WRONG;
    object *event = hold(&at->held, PyObject_Vectorcall(log->launch, arguments + 1, 6 | FIRST_IS_FREE, NULL));
    if (!event || !grow(log)) return WRONG;
    append(log, entry->task, entry->bound, event, 0);
    return PyObject_SetAttr(at->stream, name_is_giving, &_Py_FalseStruct) ? WRONG : DONE;
}

/* Whether the device may be given a command now. */
static enum answer is_ready(struct launching *at) {
    object *uploads = SLOT(at->stream, stream, uploads);
    NEED(uploads && !PyList_Size(uploads) && at->log->is_open && at->batch == at->log->batch);
    return DONE;
}

/* The launch, with the stream's lock, by an entry that nobody else uses. Python, where it is called, may give the device
   other commands, or wait for all: a number's own method may, and so may finalizers when garbage is collected. */
static enum answer give(struct launching *at) {
    struct log *log = at->log;
    struct entry *entry = at->entry;
    at->batch = log->batch;
    at->is_new = entry->batch != log->batch;
    enum answer answer = look(at);
    if (answer != DONE || (answer = is_ready(at)) != DONE) return answer;
    if ((at->count || at->numbers || at->is_new) && (answer = bind(at)) != DONE) return answer;
    if ((answer = is_ready(at)) != DONE) return answer;
    answer = entry->shape ? give_directly(at) : give_by_python(at);
    if (answer != DONE) return answer;
    at->node = log->count - 1;
    log->ahead += entry->seconds;
    if (log->ahead > log->limit && !done(call(at->stream, name_pace, NULL, NULL, NULL))) return WRONG;
    return DONE;
}

static enum answer again(struct launching *at) {
    struct entry *entry = at->entry;
    NEED(at->log->is_open && !entry->is_retired && !entry->is_busy && entry->count == at->argument_count);
    NEED(!entry->shape || at->log->enqueue);
    entry->is_busy = 1;
    enum answer answer = give(at);
    entry->is_busy = 0;
    return answer;
}

/* The same, where a driver's error is left to Python, which tries again and raises it. */
static enum answer again_or_left(struct launching *at) {
    enum answer answer = again(at);
    if (answer == WRONG && PyErr_ExceptionMatches(class_driver_error)) {
        PyErr_Clear();
        PyObject_SetAttr(at->stream, name_is_giving, &_Py_FalseStruct);
        return LEFT;
    }
    return answer;
}

static object *event_of(struct launching *at) {
    struct held *held = &at->held;
    object *event = hold(held, PyType_GenericNew(class_event, NULL, NULL));
    object *index = hold(held, PyLong_FromSsize_t(at->node));
    if (!event || !index) return NULL;
    put(&SLOT(event, event, queue), kept(at->queue));
    put(&SLOT(event, event, enqueued), kept(at->submission));
    put(&SLOT(event, event, node), kept(index));
    return kept(event);
}

/* Find the log that takes commands: whether there is one, on the entry's device. */
static int find_log(struct launching *at) {
    struct held *held = &at->held;
    at->submission = GET(at->queue, queue, enqueued);
    if (!IS(at->submission, submission)) return 0;
    at->stream = GET(at->submission, submission, stream);
    object *log = IS(at->stream, stream) ? GET(at->stream, stream, given) : NULL;
    if (!log || log->type != log_type) return 0;
    at->log = (struct log *)log;
    return at->log->is_open && at->log->device == at->entry->device;
}

/* Find the entry, and the log: whether there are some. */
static int find(struct launching *at, object *kernel, object *global_size, object *local_size) {
    struct held *held = &at->held;
    object *launches = GET(at->queue, queue, launches), *key = SLOT(kernel, kernel, _key);
    object *preparing = SLOT(at->queue, queue, preparing);
    if (!launches || !key || !preparing || PyDict_Size(preparing)) return 0;
    object *question = hold(held, PyTuple_Pack(3, key, global_size, local_size));
    object *entry = question ? hold(held, kept(PyDict_GetItemWithError(launches, question))) : NULL;
    if (!entry || entry->type != entry_type) return 0;
    at->entry = (struct entry *)entry;
    return find_log(at) || (done(call(at->queue, name_submitting, at->entry->task, NULL, NULL)) && find_log(at));
}

/* The event of a launch like one before; NULL with no error set where Python has to look. */
static object *launched(struct launching *at, object *kernel, object *global_size, object *local_size) {
    if (!find(at, kernel, global_size, local_size)) {
        PyErr_Clear(); /* of what cannot be looked up: Python says so */
        return NULL;
    }
    object *lock = hold(&at->held, kept(at->log->lock));
    if (!done(call(lock, name_acquire, NULL, NULL, NULL))) return NULL;
    object *event = again_or_left(at) == DONE ? event_of(at) : NULL;
    object *error[3];
    PyErr_Fetch(&error[0], &error[1], &error[2]); /* nothing may be called with one */
    drop(call(lock, name_release, NULL, NULL, NULL));
    PyErr_Restore(error[0], error[1], error[2]);
    return event;
}

static object *call_kernel(object *self, object *const *arguments, ssize count, object *names) {
    if (names || count < 3 || count - 3 > MOST_ARGUMENTS || !IS(self, kernel) || !IS(arguments[0], queue))
        return in_python(call_slowly, self, arguments, count, names);
    struct launching at; /* (not all of it is to be cleared) */
    at.queue = arguments[0], at.arguments = arguments + 3, at.argument_count = count - 3;
    at.count = at.numbers = at.held.count = 0;
    object *event = launched(&at, self, arguments[1], arguments[2]);
    give_back(&at.held);
    return event || PyErr_Occurred() ? event : in_python(call_slowly, self, arguments, count, names);
}

/* The classes of this library, and what Kernel.__call__ and Queue.empty are to be, which are given as Python has them.
   `classes`: as in objects.h; `usual`: the type of arrays where none is given. */
EXPORTED object *manycl_dispatch(object *classes, object *call, object *empty, object *usual) {
    static struct method launches = {
        "__call__", call_kernel, METH_FASTCALL_KEYWORDS,
        "__call__($self, queue, global_size, local_size, /, *args, global_offset=None, wait_for=None, g_times_l=False, "
        "device='', rank=None)\n--\n\nEnqueue a launch; nothing runs until a result is asked for or the queue is finished."};
    static struct method makes = {"empty", call_empty, METH_FASTCALL_KEYWORDS,
                                  "empty($self, shape, dtype=numpy.float32, *, name='')\n--\n\nReturn an array with "
                                  "undefined contents: for results; costs no transfer."};
    call_slowly = kept(call), empty_slowly = kept(empty), usual_type = kept(usual);
    if (!take_classes(classes)) return NULL;
    if (!(log_type = PyType_FromSpec(&log_spec)) || !(entry_type = PyType_FromSpec(&entry_spec))) return NULL;
    object *launch = PyDescr_NewMethod(class_kernel, &launches), *make = PyDescr_NewMethod(class_queue, &makes);
    return launch && make ? PyTuple_Pack(4, log_type, entry_type, launch, make) : NULL;
}
