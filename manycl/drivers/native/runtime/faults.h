/* The last words of a process that a kernel ends. A fault (an address that is not there, an instruction that is none, an
   abort) is a signal to the thread that runs the kernel: its handler, on a stack of its own, says which kernel that was,
   which of its work-groups ran, and which argument the address is near. Then whatever handled the signal before does what
   it does, so the process ends as it would have. Of faults elsewhere nothing is said, but for those that other drivers'
   threads have while these drivers run kernels (`watched`). Nothing here but what signal handlers may call. */
#ifndef MANYCL_FAULTS_H
#define MANYCL_FAULTS_H

#include "device.h"
#include "stack.h"

enum {
    HANDLER_STACK = 1 << 16, /* bytes: handlers that were there before need some, too */
    NEAR = 1 << 20,          /* bytes: so near to an argument an address has to be, or as near as its size */
    LONGEST = 4096,          /* bytes of the words */
    WATCHED = 16,            /* lines of what other drivers' threads run */
    PAGE = 4096,
};

/* What a thread that runs kernels has for the case of a fault, at the beginning of its handlers' stack. */
struct thread {
    struct worker *worker; /* in whose place it is (NULL: none) */
    char *top;             /* of the stack that kernels run on */
};

static const struct fault {
    int number, is_told_where; /* whether it has an address */
    const char *name, *words;
} faults[] = {
    {SEGV, 1, "SIGSEGV", "segmentation fault"},
    {BUS, 1, "SIGBUS", "bus error"},
    {ILL, 0, "SIGILL", "illegal instruction"},
    {TRAP, 0, "SIGTRAP", "trap"},
    {FPE, 0, "SIGFPE", "arithmetic exception"},
    {ABRT, 0, "SIGABRT", "abort"},
};
#define NOBODY (~(u32)0)
enum { FAULTS = sizeof faults / sizeof *faults };
static struct action before[FAULTS];  /* what handled them */
static u32 is_installed;
static u32 speaker; /* the thread that has the last words (NOBODY: they have been said) */
static u32 known_by;                  /* key of each thread's struct */
static const int *words_to;           /* file descriptor; Python's, as is ... */
static const char *const *watched;    /* ... what other drivers' threads run: lines of text, some NULL or empty */

struct words {
    u64 length;
    char text[LONGEST];
};

/* Add a text as printf makes it, of %s (text), %u and %x (each a u64) alone. */
COLD static void say(struct words *words, const char *form, ...) {
    __builtin_va_list given;
    __builtin_va_start(given, form);
    for (; *form; form++) {
        char digits[24], *at = digits + sizeof digits - 1;
        *at = 0;
        if (*form != '%') {
            *--at = *form;
        } else if (*++form == 's') {
            at = __builtin_va_arg(given, char *);
        } else {
            u64 number = __builtin_va_arg(given, u64), base = *form == 'x' ? 16 : 10;
            do *--at = "0123456789abcdef"[number % base];
            while (number /= base);
        }
        for (; *at && words->length < LONGEST; at++) words->text[words->length++] = *at;
    }
    __builtin_va_end(given);
}

COLD static void say_sizes(struct words *words, const size_t *sizes, u32 count) {
    for (u32 i = 0; i < count; i++) say(words, i ? ", %u" : "(%u", (u64)sizes[i]);
    say(words, count == 1 ? ",)" : ")");
}

static const char too_deep[] = "\n  its work-items need more private memory than the thread's stack has: choose a smaller work-group\n";

COLD static const char *next(const char *text) {
    while (*text) text++;
    return text + 1;
}

/* The argument that an address is nearest to, if that is near. */
COLD static void say_place(struct words *words, const struct command *command, u64 address, const char *argument) {
    const char *found = NULL;
    u64 least = ~(u64)0, nbytes = 0;
    int is_before = 0, is_inside = 0;
    for (u64 i = 0; *argument; i++, argument = next(argument)) {
        if (*argument != '*') continue;
        const u64 *memory = command->args[i]; /* its address, and bytes */
        u64 end = memory[0] + memory[1], low = address < memory[0];
        u64 distance = low ? memory[0] - address : address < end ? 0 : address - end;
        if (!memory[0] || distance >= least || distance > most_of((u64)NEAR, memory[1])) continue;
        found = argument + 1, least = distance, nbytes = memory[1], is_before = (int)low, is_inside = address - memory[0] < nbytes;
    }
    say(words, "\n  address: 0x%x", address);
    if (address < PAGE) say(words, ", which is a null pointer's or near, or no address at all");
    if (!found || address < PAGE) return;
    const char *side = is_inside ? "outside" : is_before ? "before the beginning" : "behind the end";
    say(words, ", %u bytes %s of %s (%u bytes)", is_inside ? (u64)0 : least, side, found, nbytes);
}

COLD static const char *say_launch(struct words *words, const struct worker *worker, const struct thread *thread, u64 pointer,
                              const struct signal_info *info, const struct fault *fault) {
    const struct command *command = worker->command;
    const struct manycl_range *range = command->range;
    const char *device = (const char *)&command->shape->at[command->shape->nargs], *kernel = next(device);
    say(words, "kernel %s on %s\n  launch: global size ", kernel, device);
    say_sizes(words, range->global_size, range->dims);
    say(words, ", work-groups of ");
    say_sizes(words, range->local_size, range->dims);
    say(words, "; it ran work-groups %u to %u of %u", worker->first, worker->end - 1, command->shape->groups);
    if ((u64)thread->top - pointer > STACK - 2 * PAGE) return too_deep;
    if (fault->is_told_where && info->code > 0) say_place(words, command, info->address, next(kernel));
    if (fault->number == ABRT) return "\n  an array of the kernel's own, in private or local memory, was written outside of its bounds";
    if (fault->number == ILL || fault->number == TRAP)
        return "\n  it always comes to where it leaves an array of its own, or does something else that OpenCL C does not define";
    return "";
}

/* What other drivers' threads run: how many lines there are. */
COLD static u32 say_watched(struct words *words) {
    u32 count = 0;
    for (u32 i = 0; i < WATCHED; i++) {
        if (!watched[i] || !*watched[i]) continue;
        if (!count++) say(words, "a thread that is not manycl's, while this ran:");
        say(words, "\n  %s", watched[i]);
    }
    return count;
}

/* What is told of a fault of this thread; nothing of one that is not a kernel's. */
COLD static void find_words(struct words *words, const struct fault *fault, const struct signal_info *info, const void *context) {
    const struct thread *thread = pthread_getspecific(known_by);
    const struct worker *worker = thread ? thread->worker : NULL;
    const struct command *command = worker && peek(&worker->is_running) ? worker->command : NULL;
    int is_ours = command && !(command->shape && command->shape->reports);
    say(words, "manycl: %s (%s) in ", fault->words, fault->name);
    u64 start = words->length;
    if (is_ours && !command->shape) {
        say(words, "a copy or fill of manycl's: memory that it was given is gone, or its file is shorter now\n");
        return;
    }
    if (is_ours) {
        const char *cause = say_launch(words, worker, thread, *(const u64 *)((const char *)context + STACK_POINTER), info, fault);
        say(words, "%s", cause);
        if (cause == too_deep) return;
    }
    if (!is_ours && fault->number != FPE && say_watched(words)) /* (PoCL goes on behind an FPE) */
        say(words, "\n  hint: it may be a kernel that leaves its buffers (native devices find it: --check-bounds), or a"
                   " damaged file of PoCL's cache: remove that (POCL_CACHE_DIR, else pocl in the cache folder)\n");
    else if (words->length > start)
        say(words, "\n  hint: MANYCL_CHECK=bounds checks every access, and names the array, the index and the line\n");
    else
        words->length = 0;
}

/* Tell of a fault of this thread, unless one is told of: then wait until it has been, as the process ends behind this. */
COLD static void tell(const struct fault *fault, const struct signal_info *info, const void *context) {
    u32 here = (u32)syscall(SYS_GETTID), other = 0;
    while (!__atomic_compare_exchange_n(&speaker, &other, here, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        if (other == here || other == NOBODY) return; /* a fault in here, or all has been said */
        futex_wait(&speaker, other);
        other = 0;
    }
    struct words words = {0};
    find_words(&words, fault, info, context);
    for (long at = 0, done = 1; at < (long)words.length && done > 0; at += done)
        done = write(*words_to, words.text + at, words.length - (u64)at);
    store(&speaker, words.length ? NOBODY : 0);
    futex_wake(&speaker, 1 << 20);
}

COLD static void handle_fault(int number, struct signal_info *info, void *context) {
    int *error = __errno_location(), kept = *error, i = 0;
    while (i < FAULTS - 1 && faults[i].number != number) i++;
    struct thread *thread = pthread_getspecific(known_by);
    int may_be_kernel = thread && thread->worker ? 1 : syscall(SYS_GETTID) != syscall(SYS_GETPID);
    if (may_be_kernel && (info->code > 0 || info->code == BY_THREAD)) tell(&faults[i], info, context);
    *error = kept;
    struct action usual = {0}, *action = &before[i];
    if (action->handler == IGNORES && info->code <= 0) return;
    if (action->handler && action->handler != IGNORES) {
        if (action->flags & ONCE) sigaction(number, &usual, NULL);
        action->handler(number, info, context); /* (one that takes but one argument does not mind the others) */
        return;
    }
    sigaction(number, &usual, NULL); /* what has failed is tried again */
    if (info->code <= 0) syscall(SYS_TELL_THREAD, syscall(SYS_GETPID), syscall(SYS_GETTID), number);
}

COLD static void leave_thread(void *known) {
    struct thread *thread = known;
    struct alternate found = {0}, none = {.flags = NOT_USED};
    if (!sigaltstack(NULL, &found) && found.memory == (char *)(thread + 1)) sigaltstack(&none, NULL);
    munmap(thread, HANDLER_STACK);
}

/* This thread is about to run kernels in the place of a worker, on a stack with this top; NULL: no more. */
static void run_kernels_as(struct worker *worker, char *top) {
    if (!is_installed) return;
    struct thread *thread = pthread_getspecific(known_by);
    if (!thread) {
        if (!worker) return;
        thread = mmap(NULL, HANDLER_STACK, READ_WRITE, PRIVATE_MEMORY, -1, 0);
        if (thread == (struct thread *)-1) return;
        if (pthread_setspecific(known_by, thread)) {
            munmap(thread, HANDLER_STACK);
            return;
        }
        struct alternate old = {0}, ours = {(char *)(thread + 1), 0, HANDLER_STACK - sizeof *thread};
        if (!sigaltstack(NULL, &old) && old.flags & NOT_USED) sigaltstack(&ours, NULL);
    }
    thread->top = top;
    thread->worker = worker;
}

/* Handle faults from now on, and leave to who did before what they did. */
COLD static void watch_faults(void) {
    static u32 lock;
    take(&lock);
    if (!is_installed && !pthread_key_create(&known_by, leave_thread)) {
        for (int i = 0; i < FAULTS; i++) {
            struct action action = {.handler = handle_fault, .flags = WITH_INFO | ON_STACK | AGAIN};
            if (sigaction(faults[i].number, NULL, &before[i])) continue;
            sigaction(faults[i].number, &action, NULL);
        }
        is_installed = 1;
    }
    give(&lock);
}

#endif
