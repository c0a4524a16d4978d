/* What kernels with checks call (checks.py). One thread runs work-groups then. The first access outside of its array is
   told of and not made: it ends the work-group, and those that follow are not run until Python has read the words. */
struct manycl_object { ulong at, bytes, each, from; const char *name; struct manycl_object *next; };
static struct { ulong slot, value; struct manycl_object *object; } manycl_slots[4096];
static struct manycl_object *manycl_all, manycl_range, manycl_frame;
char manycl_fault[1024]; /* "": none */
const char *manycl_place; /* text: where in the source what runs is */
static ulong manycl_mark[64];
int _setjmp(ulong *) __attribute__((returns_twice));
void longjmp(ulong *, int) __attribute__((noreturn));
void manycl_unchecked(const void *, const ulong *, ulong, ulong, char *) __asm__("manycl_unchecked_entry");
#define MANYCL_TEXT(words) ((const char *)(ulong)words)

/* An array lies here from now on. `each`: bytes of an element, 0: nobody knows. Elements are counted `from` there: what
   is at hand of a larger buffer has a pointer that is moved back to that one's beginning. */
__attribute__((noinline)) const void *manycl_object(struct manycl_object *object, const void *at, ulong bytes,
                                                    ulong each, const char *name) {
  if (!object->name) object->next = manycl_all, manycl_all = object;
  object->at = object->from = (ulong)at, object->bytes = bytes, object->each = each, object->name = name;
  return at;
}

void manycl_move(struct manycl_object *object, const void *from) {
  if (object) object->from = (ulong)from;
}

/* A pointer into an array (0: nobody knows into which) is put in a slot: a variable, or the place of an argument. What
   another slot has in the same place of the table is forgotten. */
__attribute__((noinline)) void manycl_keep(const void *slot, const void *value, struct manycl_object *object) {
  const ulong i = (ulong)slot / 8 % 4096;
  manycl_slots[i].slot = (ulong)slot, manycl_slots[i].value = (ulong)value, manycl_slots[i].object = object;
}

__attribute__((noinline)) struct manycl_object *manycl_kept(const void *slot, const void *value) {
  const ulong i = (ulong)slot / 8 % 4096;
  return manycl_slots[i].slot == (ulong)slot && manycl_slots[i].value == (ulong)value ? manycl_slots[i].object : 0;
}

static char *manycl_say(char *to, const char *words) {
  while (*words && to < manycl_fault + 900) *to++ = *words++;
  return to;
}

static char *manycl_number(char *to, long number) {
  char digits[24], *at = digits + 23;
  ulong left = number < 0 ? -(ulong)number : number;
  *at = 0;
  do *--at = '0' + left % 10;
  while (left /= 10);
  if (number < 0) *--at = '-';
  return manycl_say(to, at);
}

static char *manycl_does(const char *does) { return manycl_say(manycl_say(manycl_fault, MANYCL_TEXT("it ")), does); }

static void manycl_end(char *to) {
  if (manycl_place) manycl_say(manycl_say(to, MANYCL_TEXT(", in ")), manycl_place);
  longjmp(manycl_mark, 1);
}

static void manycl_fail(const char *does, long index, const char *name, ulong count) {
  char *to = manycl_number(manycl_say(manycl_does(does), MANYCL_TEXT(" element ")), index);
  to = manycl_say(manycl_say(manycl_say(to, MANYCL_TEXT(" of ")), name), MANYCL_TEXT(", which has "));
  manycl_end(manycl_say(manycl_number(to, count), count == 1 ? MANYCL_TEXT(" element") : MANYCL_TEXT(" elements")));
}

__attribute__((noinline)) void manycl_index(ulong index, ulong count, const char *name, const char *does) {
  if (index >= count) manycl_fail(does, index, name, count);
}

/* Bytes at an address, which belongs to an array of elements of `each` bytes (0: nobody knows). */
__attribute__((noinline)) void manycl_check(struct manycl_object *object, const void *to, ulong bytes, ulong each,
                                            const char *does) {
  const ulong at = (ulong)to;
  if (!bytes) return;
  if (!object) { /* nobody knows: it may be any, so that nothing is told that is not certain; what is near is named */
    ulong least = 1 << 20;
    for (struct manycl_object *one = manycl_all; one; one = one->next) {
      const ulong away = at < one->at ? one->at - at : at - one->at < one->bytes ? 0 : at - one->at - one->bytes + 1;
      if (away < least) least = away, object = one;
    }
  }
  if (!object) manycl_end(manycl_say(manycl_does(does), MANYCL_TEXT(" what is in no array")));
  ulong first = at - object->at, size = each ? each : object->each ? object->each : bytes;
  if (first <= object->bytes && bytes <= object->bytes - first) return;
  if (first < object->bytes) first = object->bytes;
  const long from = object->at + first - object->from, count = object->at + object->bytes - object->from;
  manycl_fail(does, from < 0 ? -(long)((size - 1 - from) / size) : from / size, object->name, count / size);
}

void manycl_entry(const void *args, const ulong *range, ulong first, ulong end, char *frame) {
  manycl_object(&manycl_range, range, 104, 8, MANYCL_TEXT("the NDRange"));
  if (frame) manycl_object(&manycl_frame, frame, 1 << 28, 1, MANYCL_TEXT("local memory"));
  if (!*manycl_fault && !_setjmp(manycl_mark)) manycl_unchecked(args, range, first, end, frame);
}
#define manycl_entry manycl_unchecked_entry
#define MANYCL_OBJECT(p, n, s, extent, at) ({ static struct manycl_object object extent; \
  (__typeof__(p))manycl_object(&object at, (const void *)(ulong)(p), n, sizeof *(p), MANYCL_TEXT(s)); })
#define manycl_own(n) 0
#define manycl_given(p, n, s) MANYCL_OBJECT(p, n, s, , )
#define manycl_placed(p, s, extent, at) MANYCL_OBJECT(p, sizeof *(p), s, extent, at)
