/* What the runtime needs of the system, declared here: no header of any C library has to be there. Linux, 64 bits. */
#ifndef MANYCL_SYSTEM_H
#define MANYCL_SYSTEM_H

typedef __SIZE_TYPE__ size_t;
typedef __UINT64_TYPE__ u64;
typedef __UINT32_TYPE__ u32;

_Static_assert(sizeof(void *) == 8 && sizeof(long) == 8, "64 bits");
#define NULL ((void *)0)
/* What is seldom run: compiled with little effort, as most programs compile this once and never run it. */
#if __has_attribute(optnone)
#define COLD __attribute__((cold, noinline, optnone))
#else
#define COLD __attribute__((cold, noinline))
#endif

void *memcpy(void *, const void *, size_t);
void *memmove(void *, const void *, size_t);
void *memset(void *, int, size_t);
void *calloc(size_t, size_t);
void free(void *);
int posix_memalign(void **, size_t, size_t);

struct timespec {
    long seconds, nanoseconds;
};
int clock_gettime(int, struct timespec *);
int clock_nanosleep(int, int, const struct timespec *, struct timespec *);
long syscall(long, ...);
int *__errno_location(void);
int prctl(int, ...);
int sched_setaffinity(int, size_t, const void *);
int sched_getcpu(void);

typedef unsigned long thread_id;
typedef union {
    char bytes[128];
    long aligned;
} thread_attributes; /* glibc's and musl's are smaller */
typedef union {
    char bytes[128];
    long aligned;
} signal_set;
int pthread_create(thread_id *, const thread_attributes *, void *(*)(void *), void *);
int pthread_attr_init(thread_attributes *);
int pthread_attr_setstacksize(thread_attributes *, size_t);
int pthread_attr_setdetachstate(thread_attributes *, int);
int pthread_attr_destroy(thread_attributes *);
int pthread_sigmask(int, const signal_set *, signal_set *);
int sigfillset(signal_set *);
int sigdelset(signal_set *, int);
int sigismember(const signal_set *, int);

struct signal_info { /* of a signal that is sent with a value */
    int number, error, code, unused;
    union {
        struct {
            int process;
            u32 user;
        };
        u64 address; /* of a fault */
    };
    void *value;
    char others[96];
};
struct action { /* as glibc's and musl's are */
    void (*handler)(int, struct signal_info *, void *); /* NULL: what is usual */
    signal_set blocked;
    int flags;
    void (*restorer)(void);
};
_Static_assert(sizeof(struct signal_info) == 128, "the system's");
int sigaction(int, const struct action *, struct action *);
#define IGNORES ((void (*)(int, struct signal_info *, void *))1)
enum { ILL = 4, TRAP = 5, ABRT = 6, BUS = 7, FPE = 8, SEGV = 11, BY_THREAD = -6 };
enum { ON_STACK = 0x08000000, AGAIN = 0x40000000, ONCE = (int)0x80000000u, NOT_USED = 2 };
struct alternate {
    char *memory;
    int flags;
    size_t nbytes;
};
int sigaltstack(const struct alternate *, struct alternate *);
int pthread_key_create(u32 *, void (*)(void *));
int pthread_setspecific(u32, const void *);
void *pthread_getspecific(u32);
long write(int, const void *, size_t);

void *mmap(void *, size_t, int, int, int, long);
int mprotect(void *, size_t, int);
int munmap(void *, size_t);

enum { NO_ACCESS = 0, READ_WRITE = 3, PRIVATE_MEMORY = 0x4022 }; /* private, anonymous, not reserved */
enum { MONOTONIC = 1, OF_THREAD = 3, AT_A_TIME = 1, SET_NAME = 15, SET_TIMER_SLACK = 29, DETACHED = 1, SET_MASK = 2, INTERRUPTED = 4, TIMED_OUT = 110, WITH_INFO = 4, RESTARTS = 0x10000000 };
enum { FUTEX_WAIT_PRIVATE = 128, FUTEX_WAKE_PRIVATE = 129 };

#if defined(__x86_64__)
enum { SYS_FUTEX = 202, SYS_GETCPU = 309, SYS_GETPID = 39, SYS_GETTID = 186, SYS_SIGNAL_THREAD = 297, SYS_TELL_THREAD = 234 };
enum { STACK_POINTER = 160 }; /* bytes from the beginning of what a handler is given */
static inline void relax(void) { __builtin_ia32_pause(); }
#elif defined(__aarch64__)
enum { SYS_FUTEX = 98, SYS_GETCPU = 168, SYS_GETPID = 172, SYS_GETTID = 178, SYS_SIGNAL_THREAD = 240, SYS_TELL_THREAD = 131 };
enum { STACK_POINTER = 432 };
static inline void relax(void) { __asm__ volatile("isb" ::: "memory"); }
#else
#error "only x86-64 and AArch64 are known"
#endif

#define load(place) __atomic_load_n(place, __ATOMIC_ACQUIRE)
#define peek(place) __atomic_load_n(place, __ATOMIC_RELAXED)
#define store(place, value) __atomic_store_n(place, value, __ATOMIC_RELEASE)
#define add(place, value) __atomic_add_fetch(place, value, __ATOMIC_ACQ_REL)
#define least_of(a, b) ((a) < (b) ? (a) : (b))
#define most_of(a, b) ((a) > (b) ? (a) : (b))

static inline u64 clock_of(int clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (u64)t.seconds * 1000000000u + (u64)t.nanoseconds;
}

/* Nanoseconds of the clock of Python's time.perf_counter_ns. */
static inline u64 now(void) { return clock_of(MONOTONIC); }

/* Until a word is no longer `value`, or for no reason. */
static inline void futex_wait(u32 *word, u32 value) { syscall(SYS_FUTEX, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0); }

/* The same, for so many ns (less than a second) at most: whether a signal came, or none did in that time. */
static inline int futex_wait_until_signal(u32 *word, u32 value, long most) {
    struct timespec time = {0, most};
    if (!syscall(SYS_FUTEX, word, FUTEX_WAIT_PRIVATE, value, &time, NULL, 0)) return 0;
    return *__errno_location() == INTERRUPTED || *__errno_location() == TIMED_OUT;
}

static inline void futex_wake(u32 *word, int most) { syscall(SYS_FUTEX, word, FUTEX_WAKE_PRIVATE, most, NULL, NULL, 0); }

/* A lock: 0 free, 1 held, 2 held and somebody may sleep (U. Drepper, "Futexes are tricky", 2011, mutex 2). It is held for
   less than a microsecond, unless its holder is interrupted: so a short spin, then sleep. */
static inline void take(u32 *lock) {
    u32 state = 0;
    for (int turn = 0; turn < 100; turn++) {
        state = 0;
        if (__atomic_compare_exchange_n(lock, &state, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return;
        relax();
    }
    while (__atomic_exchange_n(lock, 2, __ATOMIC_ACQUIRE)) futex_wait(lock, 2);
}

static inline void give(u32 *lock) {
    if (__atomic_exchange_n(lock, 0, __ATOMIC_RELEASE) == 2) futex_wake(lock, 1);
}

#endif
