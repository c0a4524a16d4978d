/* Status codes of calls that are wrong. */
#include "common.h"

static const char source[] =
    "__kernel void one(__global int *x, int k, __local int *l) { x[get_global_id(0)] = k; }\n"
    "__kernel __attribute__((reqd_work_group_size(8, 1, 1))) void eight(__global int *x) { x[get_global_id(0)] = 1; }\n";

static int data[64];

static void objects(void)
{
    void *other = NULL;
    TELL(clGetPlatformIDs(0, NULL, NULL));
    TELL(clGetPlatformIDs(0, &other, NULL));
    TELL(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ACCELERATOR, 1, &other, NULL));
    TELL(clGetDeviceIDs(platform, CL_DEVICE_TYPE_CPU, 0, &other, NULL));
    TELL(clGetDeviceInfo(device, 0x7777, 0, NULL, NULL));
    TELL(clGetDeviceInfo(device, CL_DEVICE_NAME, 1, data, NULL));
    TELL((clCreateContext(NULL, 0, &device, NULL, NULL, &status), status));
    TELL((clCreateContext(NULL, 1, NULL, NULL, NULL, &status), status));
    TELL((clCreateContext(NULL, 1, &device, NULL, data, &status), status));
    TELL((clCreateBuffer(context, 0, 0, NULL, &status), status));
    TELL((clCreateBuffer(context, CL_MEM_USE_HOST_PTR, 64, NULL, &status), status));
    TELL((clCreateBuffer(context, 0, 64, data, &status), status));
    TELL((clCreateBuffer(context, CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, 64, NULL, &status), status));
    TELL((clCreateProgramWithSource(context, 0, NULL, NULL, &status), status));
    TELL(clGetContextInfo(context, 0x7777, 0, NULL, NULL));
    TELL(clWaitForEvents(0, NULL));
}

static void transfers(void)
{
    void *buffer = buffer_of(0, 256, NULL), *narrow = buffer_of(CL_MEM_HOST_NO_ACCESS, 256, NULL);
    size_t zero[3] = {0, 0, 0}, none[3] = {0, 1, 1}, wide[3] = {64, 5, 1}, past[2] = {128, 256};
    TELL(clEnqueueReadBuffer(queue, buffer, 1, 200, 64, data, 0, NULL, NULL));
    TELL(clEnqueueReadBuffer(queue, buffer, 1, 0, 64, NULL, 0, NULL, NULL));
    TELL(clEnqueueReadBuffer(queue, buffer, 1, 0, 64, data, 1, NULL, NULL));
    TELL(clEnqueueReadBuffer(queue, NULL, 1, 0, 64, data, 0, NULL, NULL));
    TELL(clEnqueueReadBuffer(NULL, buffer, 1, 0, 64, data, 0, NULL, NULL));
    TELL(clEnqueueReadBuffer(queue, narrow, 1, 0, 64, data, 0, NULL, NULL));
    TELL(clEnqueueWriteBuffer(queue, narrow, 1, 0, 64, data, 0, NULL, NULL));
    TELL(clEnqueueWriteBuffer(queue, buffer, 1, 0, 1000, data, 0, NULL, NULL));
    TELL(clEnqueueCopyBuffer(queue, buffer, buffer, 0, 32, 64, 0, NULL, NULL));
    TELL(clEnqueueCopyBuffer(queue, buffer, buffer, 0, 224, 64, 0, NULL, NULL));
    TELL(clEnqueueFillBuffer(queue, buffer, data, 3, 0, 63, 0, NULL, NULL));
    TELL(clEnqueueFillBuffer(queue, buffer, data, 4, 2, 64, 0, NULL, NULL));
    TELL(clEnqueueFillBuffer(queue, buffer, NULL, 4, 0, 64, 0, NULL, NULL));
    TELL(clEnqueueReadBufferRect(queue, buffer, 1, zero, zero, none, 0, 0, 0, 0, data, 0, NULL, NULL));
    TELL(clEnqueueReadBufferRect(queue, buffer, 1, zero, zero, wide, 0, 0, 0, 0, data, 0, NULL, NULL));
    TELL((clCreateSubBuffer(buffer, 0, 0x1220, past, &status), status));
    TELL((clCreateSubBuffer(buffer, 0, 0x7777, past, &status), status));
    TELL((clEnqueueMapBuffer(queue, buffer, 1, CL_MAP_READ, 200, 100, 0, NULL, NULL, &status), status));
    TELL(clEnqueueUnmapMemObject(queue, buffer, data, 0, NULL, NULL));
    MUST(clReleaseMemObject(buffer));
    MUST(clReleaseMemObject(narrow));
}

static void kernels(void)
{
    const char *text = source, *wrong = "__kernel void f( {";
    int k = 1;
    size_t eight = 8, seven = 7, sixteen = 16, large = 1 << 20;
    void *program = clCreateProgramWithSource(context, 1, &text, NULL, &status), *bad, *kernel, *fixed;
    TELL((clCreateKernel(program, "one", &status), status));
    TELL(clBuildProgram(program, 0, &device, NULL, NULL, NULL));
    TELL(clBuildProgram(program, 1, NULL, NULL, NULL, NULL));
    MUST(clBuildProgram(program, 1, &device, "", NULL, NULL));
    TELL((clCreateKernel(program, "two", &status), status));
    TELL((clCreateKernel(program, NULL, &status), status));
    bad = clCreateProgramWithSource(context, 1, &wrong, NULL, &status);
    TELL(clBuildProgram(bad, 1, &device, "", NULL, NULL));
    kernel = kernel_of(program, "one");
    fixed = kernel_of(program, "eight");
    void *buffer = buffer_of(0, 256, NULL);
    TELL(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &eight, NULL, 0, NULL, NULL));
    TELL(clSetKernelArg(kernel, 3, 4, &k));
    TELL(clSetKernelArg(kernel, 1, 8, &k));
    TELL(clSetKernelArg(kernel, 1, 4, NULL));
    TELL(clSetKernelArg(kernel, 2, 0, NULL));
    TELL(clSetKernelArg(kernel, 2, 4, &k));
    TELL(clSetKernelArg(kernel, 0, 4, &buffer));
    MUST(clSetKernelArg(kernel, 0, 8, &buffer));
    MUST(clSetKernelArg(kernel, 1, 4, &k));
    MUST(clSetKernelArg(kernel, 2, 64, NULL));
    TELL(clEnqueueNDRangeKernel(queue, kernel, 0, NULL, &eight, NULL, 0, NULL, NULL));
    TELL(clEnqueueNDRangeKernel(queue, kernel, 4, NULL, &eight, NULL, 0, NULL, NULL));
    TELL(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &sixteen, &large, 0, NULL, NULL));
    MUST(clSetKernelArg(fixed, 0, 8, &buffer));
    TELL(clEnqueueNDRangeKernel(queue, fixed, 1, NULL, &sixteen, &sixteen, 0, NULL, NULL));
    TELL(clEnqueueNDRangeKernel(queue, fixed, 1, NULL, &sixteen, &eight, 0, NULL, NULL));
    TELL(clFinish(queue));
    TELL(clGetKernelInfo(kernel, 0x7777, 0, NULL, NULL));
}

static void events(void)
{
    void *event = clCreateUserEvent(context, &status), *behind, *buffer = buffer_of(0, 256, NULL);
    unsigned long long when;
    TELL(clSetUserEventStatus(event, 1));
    MUST(clEnqueueWriteBuffer(queue, buffer, 0, 0, 64, data, 1, &event, &behind));
    TELL(clGetEventProfilingInfo(behind, CL_PROFILING_COMMAND_START, 8, &when, NULL));
    TELL(clSetUserEventStatus(event, -5));
    TELL(clSetUserEventStatus(event, -5));
    TELL(clWaitForEvents(1, &behind));
    TELL(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, 4, &status, NULL));
    TELL(status);
    TELL(clSetEventCallback(event, 0, NULL, NULL));
}

int main(void)
{
    begin(0);
    objects();
    transfers();
    kernels();
    events();
    return 0;
}
