/* Stacks, and how a thread rounds. */
#ifndef MANYCL_STACK_H
#define MANYCL_STACK_H

#include "system.h"

enum { STACK = 16 << 20, GUARD = 1 << 16 }; /* bytes of address space for the private memory of work-items */

/* NULL where there is no memory. */
COLD static char *new_stack(void) {
    char *stack = mmap(NULL, STACK, READ_WRITE, PRIVATE_MEMORY, -1, 0);
    if (stack == (char *)-1) return NULL;
    mprotect(stack, GUARD, NO_ACCESS);
    return stack;
}

/* Call a function with another stack, which ends at `top`, and with a thread's way to round and to treat tiny numbers
   (`floats`): kernels do not compute otherwise here, and need no more room, than on workers. */
#if defined(__x86_64__)
static inline u32 float_state(void) { return __builtin_ia32_stmxcsr(); }
static inline void set_float_state(u32 state) { __builtin_ia32_ldmxcsr(state); }
static void call_on(char *top, void (*function)(void *), void *argument) {
    __asm__ volatile("movq %%rsp, %%rbx\n\tmovq %0, %%rsp\n\tcallq *%1\n\tmovq %%rbx, %%rsp"
                     : "+r"(top), "+r"(function), "+D"(argument)
                     :
                     : "rax", "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "cc", "memory", "xmm0", "xmm1", "xmm2",
                       "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
                       "xmm15");
}
#else
static inline u32 float_state(void) {
    u64 state;
    __asm__ volatile("mrs %0, fpcr" : "=r"(state));
    return (u32)state;
}
static inline void set_float_state(u32 state) { __asm__ volatile("msr fpcr, %0" : : "r"((u64)state)); }
static void call_on(char *top, void (*function)(void *), void *argument) {
    register char *stack __asm__("x20") = top;
    register void (*called)(void *) __asm__("x21") = function;
    register void *given __asm__("x0") = argument;
    __asm__ volatile("mov x19, sp\n\tmov sp, x20\n\tblr x21\n\tmov sp, x19"
                     : "+r"(stack), "+r"(called), "+r"(given)
                     :
                     : "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16",
                       "x17", "x19", "x30", "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9",
                       "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23",
                       "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31");
}
#endif

#endif
