/* What objects tell of themselves, how long they live, callbacks, user events and times. */
#include "common.h"
#include <unistd.h>

static volatile int called, gone;
static const char source[] = "__kernel void twice(__global float *x, int n) { int i = get_global_id(0); if (i < n) x[i] *= 2; }";

static void on_event(void *event, int outcome, void *data) { __sync_fetch_and_add(&called, *(int *)data + outcome); }
static void on_gone(void *object, void *data) { __sync_fetch_and_add(&gone, *(int *)data); }
static void on_built(void *program, void *data) { printf("built: %d\n", *(int *)data); }

static unsigned references(int (*ask)(void *, unsigned, size_t, void *, void *), void *object, unsigned what)
{
    unsigned count = 77;
    size_t size = 0;
    MUST(ask(object, what, sizeof count, &count, &size));
    return count * 100 + (unsigned)size;
}

static void objects(void *program, void *kernel, void *buffer)
{
    char text[4096];
    size_t size;
    void *same;
    int one = 1;
    printf("%u\n", references(clGetContextInfo, context, CL_CONTEXT_REFERENCE_COUNT) % 100);
    MUST(clRetainMemObject(buffer));
    printf("%u\n", references(clGetMemObjectInfo, buffer, CL_MEM_REFERENCE_COUNT));
    MUST(clReleaseMemObject(buffer));
    printf("%u\n", references(clGetMemObjectInfo, buffer, CL_MEM_REFERENCE_COUNT));
    MUST(clGetMemObjectInfo(buffer, CL_MEM_CONTEXT, sizeof same, &same, NULL));
    printf("same context: %d\n", same == context);
    MUST(clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof same, &same, NULL));
    printf("same device: %d\n", same == device);
    MUST(clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof text, text, &size));
    printf("%s %d\n", text, (int)size);
    MUST(clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof one, &one, NULL));
    printf("%d arguments\n", one);
    MUST(clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof same, &same, NULL));
    printf("same program: %d\n", same == program);
    MUST(clGetProgramInfo(program, CL_PROGRAM_SOURCE, sizeof text, text, &size));
    printf("%s %d\n", text, (int)size);
    MUST(clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, sizeof text, text, &size));
    printf("%s %d\n", text, (int)size);
    MUST(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_STATUS, sizeof one, &one, NULL));
    printf("build status %d\n", one);
    MUST(clGetKernelArgInfo(kernel, 1, 0x119A, sizeof text, text, NULL)); /* CL_KERNEL_ARG_NAME */
    printf("argument %s\n", text);
}

static void binaries(void *program)
{
    size_t size = 0;
    void *kernel, *again;
    MUST(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL));
    unsigned char *binary = malloc(size);
    MUST(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL));
    again = clCreateProgramWithBinary(context, 1, &device, &size, &binary, NULL, &status);
    MUST(status);
    MUST(clBuildProgram(again, 1, &device, NULL, NULL, NULL));
    kernel = clCreateKernel(again, "twice", &status);
    printf("from a binary: %d\n", status);
    MUST(clReleaseKernel(kernel));
    MUST(clReleaseProgram(again));
    free(binary);
}

static void waiting(void *kernel, void *buffer)
{
    static float out[1024];
    int ten = 10;
    unsigned kind;
    size_t all = 1024;
    unsigned long long times[4];
    void *gate = clCreateUserEvent(context, &status), *run, *read;
    MUST(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &all, NULL, 1, &gate, &run));
    MUST(clEnqueueReadBuffer(queue, buffer, 0, 0, sizeof out, out, 1, &run, &read));
    MUST(clSetEventCallback(read, 0, on_event, &ten));
    MUST(clGetEventInfo(read, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    printf("waits: %d, %g\n", status > 1, out[5]);
    MUST(clSetUserEventStatus(gate, 0));
    MUST(clWaitForEvents(1, &read));
    printf("has: %g\n", out[5]);
    for (int i = 0; i < 20000 && !called; i++)
        usleep(1000);
    printf("called: %d\n", called);
    MUST(clGetEventInfo(run, CL_EVENT_COMMAND_TYPE, sizeof kind, &kind, NULL));
    printf("kind %x\n", kind);
    for (int i = 0; i < 4; i++)
        MUST(clGetEventProfilingInfo(run, 0x1280 + i, sizeof *times, &times[i], NULL));
    printf("times: %d\n", times[0] <= times[1] && times[1] <= times[2] && times[2] <= times[3] && times[0] > 0);
    MUST(clReleaseEvent(gate));
    MUST(clReleaseEvent(run));
    MUST(clReleaseEvent(read));
}

int main(void)
{
    int seven = 7, n = 1000, hundred = 100;
    const char *texts[2] = {source, "\n__kernel void more(__global int *y) { y[0] = M; }"}, *wrong = "__kernel void f() { no; }";
    size_t lengths[2] = {sizeof source - 1, 0}, size = 0;
    char log[8192] = "";
    begin(2);
    void *program = clCreateProgramWithSource(context, 2, texts, lengths, &status);
    MUST(clBuildProgram(program, 1, &device, "-DM=4 -cl-kernel-arg-info", on_built, &seven));
    void *kernel = kernel_of(program, "twice"), *buffer = buffer_of(0, 4096, NULL);
    float two = 2;
    MUST(clSetMemObjectDestructorCallback(buffer, on_gone, &seven));
    MUST(clSetMemObjectDestructorCallback(buffer, on_gone, &hundred));
    MUST(clEnqueueFillBuffer(queue, buffer, &two, 4, 0, 4096, 0, NULL, NULL));
    MUST(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    MUST(clSetKernelArg(kernel, 1, sizeof n, &n));
    MUST(clFinish(queue)); /* (commands count as references, too) */
    objects(program, kernel, buffer);
    binaries(program);
    waiting(kernel, buffer);
    void *bad = clCreateProgramWithSource(context, 1, &wrong, NULL, &status);
    TELL(clBuildProgram(bad, 1, &device, NULL, NULL, NULL));
    MUST(clGetProgramBuildInfo(bad, device, CL_PROGRAM_BUILD_LOG, sizeof log, log, &size));
    printf("log: %d\n", strstr(log, "no") != NULL && size == strlen(log) + 1);
    MUST(clReleaseKernel(kernel));
    MUST(clReleaseMemObject(buffer));
    MUST(clFinish(queue));
    for (int i = 0; i < 20000 && gone < 107; i++)
        usleep(1000);
    printf("gone: %d\n", gone);
    MUST(clReleaseProgram(program));
    MUST(clReleaseProgram(bad));
    MUST(clReleaseCommandQueue(queue));
    MUST(clReleaseContext(context));
    return seven;
}
