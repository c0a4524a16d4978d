/* Recorded sequences of commands, as Python writes them (manycl/drivers/native/recording.py). */
#ifndef MANYCL_RECORDING_H
#define MANYCL_RECORDING_H

#include "device.h"

enum { LAUNCH, COPY, FILL };

/* Bytes of the binding table, from `from` on, that come to `at` in a step's content. */
struct patch {
    u64 at, from, nbytes;
};

/* A command of a sequence, but for what the binding table says. `content`: of a launch the values of its arguments, of a
   copy a row of manycl_copy, of a fill a struct filled. `after`: steps before it that it waits for. */
struct step {
    struct queue *queue;
    u64 kind; /* LAUNCH, COPY or FILL */
    struct shape *shape;
    const char *content;
    const struct patch *patches;
    u64 npatches;
    const u64 *after;
    u64 nafter;
};

struct filled {
    char *target;
    u64 nbytes, length;
    char pattern[128];
};

static inline void patch(char *content, const struct step *step, const char *table) {
    for (u64 i = 0; i < step->npatches; i++)
        memcpy(content + step->patches[i].at, table + step->patches[i].from, step->patches[i].nbytes);
}

#endif
