/* Values that come out of every kind of command and argument. */
#include "common.h"

#define N 4096
static const char source[] =
    "typedef struct { int a; float b; short c; } pair;\n"
    "__kernel void add(__global const int *x, __global int *y, int k) { int i = get_global_id(0); y[i] += x[i] * k; }\n"
    "__kernel void turn(__global int *y, __local int *l) { int i = get_local_id(0), n = get_local_size(0);\n"
    "  l[i] = y[get_global_id(0)]; barrier(CLK_LOCAL_MEM_FENCE); y[get_global_id(0)] = l[n - 1 - i]; }\n"
    "__kernel void put(__global int *y, pair p) { y[get_global_id(0)] = p.a + (int)(p.b * 2) + p.c; }\n"
    "__kernel void where(__global int *y) { y[get_global_id(1) * 64 + get_global_id(0)] = get_global_id(1) * 1000 +\n"
    "  get_global_id(0) + get_global_offset(0); }\n"
    "__kernel void maybe(__global int *y, __global int *z) { y[get_global_id(0)] = z ? 1 : 2; }\n";

static int x[N], y[N], out[N];

static void show(const char *what, void *buffer)
{
    memset(out, 0, sizeof out);
    MUST(clEnqueueReadBuffer(queue, buffer, 1, 0, sizeof out, out, 0, NULL, NULL));
    show_ints(what, out, N);
}

static void kernels(void *program, void *bx, void *by)
{
    void *add = kernel_of(program, "add"), *turn = kernel_of(program, "turn"), *put = kernel_of(program, "put");
    void *where = kernel_of(program, "where"), *maybe = kernel_of(program, "maybe"), *nothing = NULL;
    int k = 3;
    struct { int a; float b; short c; } p = {7, 2.5f, -3};
    size_t all = N, group = 64, square[2] = {64, 32}, first[2] = {0, 8};
    MUST(clSetKernelArg(add, 0, sizeof bx, &bx));
    MUST(clSetKernelArg(add, 1, sizeof by, &by));
    MUST(clSetKernelArg(add, 2, sizeof k, &k));
    MUST(clEnqueueNDRangeKernel(queue, add, 1, NULL, &all, &group, 0, NULL, NULL));
    k = 100; /* what was set is not what is there later */
    MUST(clEnqueueNDRangeKernel(queue, add, 1, NULL, &all, NULL, 0, NULL, NULL));
    show("add", by);
    MUST(clSetKernelArg(turn, 0, sizeof by, &by));
    MUST(clSetKernelArg(turn, 1, 64 * sizeof(int), NULL));
    MUST(clEnqueueNDRangeKernel(queue, turn, 1, NULL, &all, &group, 0, NULL, NULL));
    show("turn", by);
    MUST(clSetKernelArg(put, 0, sizeof by, &by));
    MUST(clSetKernelArg(put, 1, sizeof p, &p));
    all = 100;
    MUST(clEnqueueNDRangeKernel(queue, put, 1, NULL, &all, NULL, 0, NULL, NULL));
    show("put", by);
    MUST(clSetKernelArg(where, 0, sizeof by, &by));
    MUST(clEnqueueNDRangeKernel(queue, where, 2, first, square, NULL, 0, NULL, NULL));
    show("where", by);
    MUST(clSetKernelArg(maybe, 0, sizeof by, &by));
    MUST(clSetKernelArg(maybe, 1, sizeof nothing, &nothing));
    MUST(clEnqueueNDRangeKernel(queue, maybe, 1, NULL, &all, NULL, 0, NULL, NULL));
    show("maybe", by);
    MUST(clReleaseKernel(add));
    MUST(clReleaseKernel(turn));
    MUST(clReleaseKernel(put));
    MUST(clReleaseKernel(where));
    MUST(clReleaseKernel(maybe));
}

static void copies(void *bx, void *by)
{
    int pattern = 0x01020304, *mapped;
    size_t from[3] = {16, 2, 0}, to[3] = {32, 1, 0}, shape[3] = {64, 5, 1}, region[2] = {4096, 4096};
    void *part, *event;
    MUST(clEnqueueCopyBuffer(queue, bx, by, 256, 512, 1024, 0, NULL, NULL));
    MUST(clEnqueueFillBuffer(queue, by, &pattern, sizeof pattern, 4096, 64, 0, NULL, NULL));
    show("copy and fill", by);
    MUST(clEnqueueCopyBufferRect(queue, bx, by, from, to, shape, 256, 0, 512, 0, 0, NULL, NULL));
    show("rectangle", by);
    MUST(clEnqueueWriteBufferRect(queue, by, 1, from, to, shape, 256, 0, 128, 0, x, 0, NULL, NULL));
    show("written rectangle", by);
    memset(out, 0, sizeof out);
    MUST(clEnqueueReadBufferRect(queue, by, 1, from, to, shape, 256, 0, 512, 0, out, 0, NULL, NULL));
    show_ints("read rectangle", out, N);
    part = clCreateSubBuffer(by, 0, 0x1220, region, &status);
    MUST(status);
    MUST(clEnqueueFillBuffer(queue, part, &pattern, 2, 128, 64, 0, NULL, NULL));
    show("part", by);
    mapped = clEnqueueMapBuffer(queue, by, 1, CL_MAP_READ | CL_MAP_WRITE, 64, 1024, 0, NULL, &event, &status);
    MUST(status);
    for (int i = 0; i < 256; i++)
        mapped[i] = mapped[i] * 2 + i;
    MUST(clEnqueueUnmapMemObject(queue, by, mapped, 0, NULL, NULL));
    MUST(clReleaseEvent(event));
    MUST(clReleaseMemObject(part));
    show("map", by);
}

static void host_memory(void *program)
{
    static int own[N] __attribute__((aligned(4096)));
    size_t all = N;
    int k = 5, *mapped;
    for (int i = 0; i < N; i++)
        own[i] = i;
    void *bx = buffer_of(CL_MEM_COPY_HOST_PTR, sizeof x, x), *bo = buffer_of(CL_MEM_USE_HOST_PTR, sizeof own, own);
    void *add = kernel_of(program, "add");
    MUST(clSetKernelArg(add, 0, sizeof bx, &bx));
    MUST(clSetKernelArg(add, 1, sizeof bo, &bo));
    MUST(clSetKernelArg(add, 2, sizeof k, &k));
    MUST(clEnqueueNDRangeKernel(queue, add, 1, NULL, &all, NULL, 0, NULL, NULL));
    mapped = clEnqueueMapBuffer(queue, bo, 1, CL_MAP_READ, 0, sizeof own, 0, NULL, NULL, &status);
    MUST(status);
    printf("in place: %d\n", mapped == own);
    show_ints("own", own, N);
    MUST(clEnqueueUnmapMemObject(queue, bo, mapped, 0, NULL, NULL));
    MUST(clEnqueueNDRangeKernel(queue, add, 1, NULL, &all, NULL, 0, NULL, NULL));
    MUST(clFinish(queue));
    show_ints("own again", own, N);
    MUST(clReleaseMemObject(bx));
    MUST(clReleaseMemObject(bo));
    MUST(clReleaseKernel(add));
}

/* What is compiled is kept as an object, and linked by who loads it. */
static void objects(void *by)
{
    const char *parts[] = {"int f(int x) { return x * 5; }\n",
                           "int f(int x); __kernel void five(__global int *y) { int i = get_global_id(0); y[i] = f(i); }\n"};
    void *loaded[2];
    size_t all = N, size;
    int kind;
    for (int i = 0; i < 2; i++) {
        void *program = clCreateProgramWithSource(context, 1, &parts[i], NULL, &status);
        MUST(status);
        MUST(clCompileProgram(program, 1, &device, NULL, 0, NULL, NULL, NULL, NULL));
        MUST(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL));
        unsigned char *binary = malloc(size);
        MUST(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL));
        loaded[i] = clCreateProgramWithBinary(context, 1, &device, &size, (void *)&binary, NULL, &status);
        MUST(status);
        MUST(clGetProgramBuildInfo(loaded[i], device, CL_PROGRAM_BUILD_BINARY_TYPE, sizeof kind, &kind, NULL));
        printf("it is an object: %d\n", kind == 1);
        free(binary);
    }
    void *linked = clLinkProgram(context, 1, &device, NULL, 2, loaded, NULL, NULL, &status);
    MUST(status);
    void *five = kernel_of(linked, "five");
    MUST(clSetKernelArg(five, 0, sizeof by, &by));
    MUST(clEnqueueNDRangeKernel(queue, five, 1, NULL, &all, NULL, 0, NULL, NULL));
    show("linked", by);
}

int main(void)
{
    begin(0);
    for (int i = 0; i < N; i++) {
        x[i] = i * 7 % 1001;
        y[i] = i;
    }
    void *program = built(source, "-cl-std=CL1.2");
    void *bx = buffer_of(CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, sizeof x, x), *by = buffer_of(0, sizeof y, NULL);
    MUST(clEnqueueWriteBuffer(queue, by, 0, 0, sizeof y, y, 0, NULL, NULL));
    MUST(clFinish(queue));
    kernels(program, bx, by);
    copies(bx, by);
    host_memory(program);
    objects(by);
    MUST(clReleaseMemObject(bx));
    MUST(clReleaseMemObject(by));
    MUST(clReleaseProgram(program));
    MUST(clReleaseCommandQueue(queue));
    MUST(clReleaseContext(context));
    return 0;
}
