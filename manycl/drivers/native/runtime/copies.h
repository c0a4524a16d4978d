/* Copies and fills: commands whose work-groups are pieces of at most PIECE bytes, or of some rows. */
#ifndef MANYCL_COPIES_H
#define MANYCL_COPIES_H

#include "device.h"

enum { PIECE = 1 << 17, PATTERN = 512 };

/* `rows` runs of `width` bytes, from `to` and `from` on, `pitch` apart; the first piece of it is number `piece`. Python
   writes the first five. */
struct rect {
    u64 to, from, width, pitch, rows;
    u64 piece;
};

struct copy {
    u64 rects;
    struct rect rect[];
};

struct fill {
    char *target;
    u64 nbytes;
    char pattern[PATTERN]; /* repeated */
};

static inline u64 pieces_of_row(const struct rect *rect) { return (rect->width + PIECE - 1) / PIECE; }
static inline u64 rows_of_piece(const struct rect *rect) { return rect->width >= PIECE ? 1 : PIECE / rect->width; }

/* How many pieces a rectangle is cut into: parts of long rows, or some short rows each. */
static inline u64 pieces(const struct rect *rect) {
    u64 rows = rows_of_piece(rect);
    return rect->width && rect->rows ? (rect->rows + rows - 1) / rows * pieces_of_row(rect) : 0;
}

static void copy_piece(const struct rect *rect, u64 piece) {
    u64 across = pieces_of_row(rect), rows = rows_of_piece(rect);
    u64 row = piece / across * rows, end = least_of(row + rows, rect->rows);
    u64 start = piece % across * PIECE, width = least_of(rect->width - start, (u64)PIECE);
    for (; row < end; row++) {
        u64 at = row * rect->pitch + start;
        memmove((char *)rect->to + at, (const char *)rect->from + at, width);
    }
}

void copy_entry(const void *const *args, const struct manycl_range *range, size_t first, size_t end, char *frame) {
    const struct copy *copy = (const struct copy *)args;
    (void)range, (void)frame;
    u64 low = 0, high = copy->rects; /* the rectangle of the first piece is among these */
    while (high - low > 1) {
        u64 middle = (low + high) / 2;
        if (copy->rect[middle].piece <= first)
            low = middle;
        else
            high = middle;
    }
    for (u64 piece = first; piece < end; piece++) {
        while (low + 1 < copy->rects && copy->rect[low + 1].piece <= piece) low++;
        copy_piece(&copy->rect[low], piece - copy->rect[low].piece);
    }
}

void fill_entry(const void *const *args, const struct manycl_range *range, size_t first, size_t end, char *frame) {
    const struct fill *fill = (const struct fill *)args;
    (void)range, (void)frame;
    u64 stop = least_of(end * PIECE, fill->nbytes);
    for (u64 at = first * PIECE; at < stop; at += PATTERN) /* a piece is a number of patterns */
        memcpy(fill->target + at, fill->pattern, least_of(stop - at, (u64)PATTERN));
}

#endif
