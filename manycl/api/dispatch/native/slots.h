/* Slots of Python's objects, which are read and written where they lie: Python finds out where that is before anything
   here is called (places.py). */
#ifndef MANYCL_SLOTS_H
#define MANYCL_SLOTS_H

#include "python.h"

#define EXPORTED __attribute__((visibility("default")))

/* Classes, by what they are called here. */
#define TYPES(_)                                                                                                       \
    _(kernel) _(queue) _(enqueued) _(flight) _(form) _(leg) _(directory) _(array) _(buffer) _(event) _(setter) _(buffers)  \
    _(resting) _(compiled) _(commands) _(memory)

#define SLOTS(_)                                                                                                       \
    _(kernel, _key)                                                                                                    \
    _(queue, _buffers) _(queue, _extents) _(queue, _made) _(queue, enqueued) _(queue, forms) _(queue, mapped)             \
    _(queue, preparing) _(queue, session)                                                                              \
    _(enqueued, flight)                                                                                                \
    _(flight, _bit) _(flight, _directory) _(flight, _over) _(flight, ahead) _(flight, allocations) _(flight, arrays)      \
    _(flight, given) _(flight, is_giving) _(flight, is_open) _(flight, leg) _(flight, limit) _(flight, lock)              \
    _(flight, queue) _(flight, uploads)                                                                                \
    _(form, _arrays) _(form, _bound) _(form, _kernel) _(form, _known) _(form, _launch) _(form, _leg) _(form, _ranges)     \
    _(form, _seconds) _(form, _values) _(form, _writing)                                                               \
    _(leg, found) _(leg, written)                                                                                      \
    _(directory, _lost) _(directory, parts) _(directory, valid)                                                        \
    _(array, _owned) _(array, argument) _(array, buffer) _(array, dtype) _(array, queue) _(array, shape)                  \
    _(buffer, key) _(buffer, name) _(buffer, nbytes)                                                                   \
    _(event, enqueued) _(event, node) _(event, queue)                                                                  \
    _(setter, held) _(setter, kernel) _(setter, setter)                                                                \
    _(buffers, _left) _(buffers, _resting)                                                                             \
    _(resting, _waiting) _(resting, is_used)                                                                           \
    _(compiled, _asked) _(compiled, _extents) _(compiled, _held) _(compiled, _last) _(compiled, _pointers)                \
    _(compiled, _uses) _(compiled, kernel) _(compiled, values)                                                                                \
    _(commands, address) _(commands, is_timed) _(commands, kept) _(commands, state) _(commands, times)                    \
    _(memory, address) _(memory, nbytes)

#define NUMBER_OF_TYPE(name) TYPE_##name,
#define NUMBER_OF_SLOT(type, name) SLOT_##type##_##name,
enum { TYPES(NUMBER_OF_TYPE) TYPE_COUNT };
enum { SLOTS(NUMBER_OF_SLOT) SLOT_COUNT };

struct type {
    const char *name;
    object *is; /* kept by Python */
};

struct slot {
    const char *type, *name;
    ssize at; /* bytes from where an object begins */
};

#define TYPE(name) {#name, NULL},
#define SLOT(type, name) {#type, #name, 0},
/* Each ends with one that has no name. */
EXPORTED struct type manycl_types[] = {TYPES(TYPE){NULL, NULL}};
EXPORTED struct slot manycl_slots[] = {SLOTS(SLOT){NULL, NULL, 0}};

static inline int is(const object *found, int type) { return found && found->type == manycl_types[type].is; }

/* Whether an object is just of such a class. */
#define IS(found, name) is(found, TYPE_##name)

/* The place of a slot in an object, which is of its class. NULL is there before Python has set it. */
#define PLACE(of, type, name) ((object **)((char *)(of) + manycl_slots[SLOT_##type##_##name].at))

#endif
