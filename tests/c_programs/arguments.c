/* Kernels' arguments, set again and again: to what they are, to something else, to what took the place of what is gone. */
#include "common.h"

enum { COUNT = 64, KERNELS = 400 };
static const char *const source =
    "typedef struct { int part[8]; } many;\n"
    "__kernel void add(__global int *a, int n) { a[get_global_id(0)] += n; }\n"
    "__kernel void sum(__global int *a, many m, __local int *t) {\n"
    "  t[get_local_id(0)] = m.part[get_global_id(0) & 7]; a[get_global_id(0)] += t[get_local_id(0)]; }\n";
static size_t size = COUNT;

static int launch(void *kernel)
{
    return clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &size, &size, 0, NULL, NULL);
}

static void show(const char *what, void *buffer)
{
    int found[COUNT];
    MUST(clEnqueueReadBuffer(queue, buffer, 1, 0, sizeof found, found, 0, NULL, NULL));
    show_ints(what, found, COUNT);
}

static void *zeros(void)
{
    int none[COUNT] = {0};
    return buffer_of(CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof none, none);
}

static void again_and_otherwise(void *program)
{
    void *kernel = kernel_of(program, "add"), *one = zeros(), *other = zeros();
    for (int i = 0; i < 60; i++) {
        int n = i / 3;
        MUST(clSetKernelArg(kernel, 0, sizeof one, i % 5 ? &one : &other));
        MUST(clSetKernelArg(kernel, 1, sizeof n, &n));
        MUST(launch(kernel));
    }
    show("one", one);
    show("other", other);
    int n = 1000;
    for (int i = 0; i < 2; i++) { /* what is refused is refused each time, and changes nothing */
        TELL(clSetKernelArg(kernel, 2, sizeof n, &n));
        TELL(clSetKernelArg(kernel, 1, 2 * sizeof n, &n));
        TELL(clSetKernelArg(kernel, 1, sizeof n, NULL));
        TELL(clSetKernelArg(NULL, 1, sizeof n, &n));
    }
    MUST(launch(kernel));
    show("the same", one);
    MUST(clReleaseMemObject(one));
    MUST(clReleaseMemObject(other));
    MUST(clReleaseKernel(kernel));
}

static void in_the_place_of_others(void *program)
{
    void *kernel = kernel_of(program, "add");
    int n = 1;
    for (int i = 0; i < 40; i++) {
        void *buffer = zeros();
        n += i % 2;
        MUST(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
        MUST(clSetKernelArg(kernel, 1, sizeof n, &n));
        MUST(launch(kernel));
        if (i % 13 == 0)
            show("new", buffer);
        MUST(clReleaseMemObject(buffer));
    }
    MUST(clReleaseKernel(kernel));
    void *buffer = zeros();
    for (int i = 0; i < 20; i++) {
        void *fresh = kernel_of(program, "add");
        if (i % 7 == 0)
            TELL(launch(fresh)); /* it has no arguments yet */
        MUST(clSetKernelArg(fresh, 0, sizeof buffer, &buffer));
        MUST(clSetKernelArg(fresh, 1, sizeof n, &n));
        MUST(launch(fresh));
        MUST(clReleaseKernel(fresh));
    }
    show("by new kernels", buffer);
    MUST(clReleaseMemObject(buffer));
}

static void of_many_kernels(void *program)
{
    static void *kernels[KERNELS];
    void *one = zeros(), *other = zeros();
    for (int i = 0; i < KERNELS; i++)
        kernels[i] = kernel_of(program, "add");
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < KERNELS; i++) {
            int n = round == 2 ? i % 3 : i;
            MUST(clSetKernelArg(kernels[i], 0, sizeof one, i % 2 ? &one : &other));
            MUST(clSetKernelArg(kernels[i], 1, sizeof n, &n));
        }
        for (int i = 0; i < KERNELS; i++)
            MUST(launch(kernels[i]));
    }
    show("odd", one);
    show("even", other);
}

static void long_and_local(void *program)
{
    void *kernel = kernel_of(program, "sum"), *buffer = zeros();
    int parts[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    MUST(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    for (int i = 0; i < 6; i++) {
        parts[7] += i / 2;
        MUST(clSetKernelArg(kernel, 1, sizeof parts, parts));
        MUST(clSetKernelArg(kernel, 2, COUNT * sizeof(int), NULL));
        MUST(launch(kernel));
    }
    show("structs", buffer);
}

int main(void)
{
    begin(0);
    void *program = built(source, "");
    again_and_otherwise(program);
    in_the_place_of_others(program);
    of_many_kernels(program);
    long_and_local(program);
    return 0;
}
