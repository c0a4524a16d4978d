/* What the programs of this folder have in common: the first device of the first platform that is not Oclgrind's. */
#include "opencl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(call) do { int must_ = (call); if (must_) { printf("%s: %d\n", #call, must_); exit(9); } } while (0)
#define TELL(call) printf("%s: %d\n", #call, (int)(call))

static void *platform, *device, *context, *queue;
static int status;

static void begin(unsigned long long properties)
{
    void *platforms[8];
    unsigned count;
    char name[256];
    setvbuf(stdout, NULL, _IOLBF, 0);
    MUST(clGetPlatformIDs(8, platforms, &count));
    for (unsigned i = 0; i < count && !platform; i++) {
        MUST(clGetPlatformInfo(platforms[i], CL_PLATFORM_NAME, sizeof name, name, NULL));
        if (!strstr(name, "Oclgrind"))
            platform = platforms[i];
    }
    MUST(clGetDeviceIDs(platform, CL_DEVICE_TYPE_CPU, 1, &device, NULL));
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    MUST(status);
    queue = clCreateCommandQueue(context, device, properties, &status);
    MUST(status);
}

static void *built(const char *source, const char *options)
{
    void *program = clCreateProgramWithSource(context, 1, &source, NULL, &status);
    MUST(status);
    MUST(clBuildProgram(program, 1, &device, (void *)options, NULL, NULL));
    return program;
}

static void *kernel_of(void *program, const char *name)
{
    void *kernel = clCreateKernel(program, (void *)name, &status);
    MUST(status);
    return kernel;
}

static void *buffer_of(unsigned long long flags, size_t size, void *host)
{
    void *buffer = clCreateBuffer(context, flags, size, host, &status);
    MUST(status);
    return buffer;
}

static void show_ints(const char *what, const int *values, int count)
{
    long long sum = 0;
    for (int i = 0; i < count; i++)
        sum = (sum * 31 + values[i]) % 1000000007;
    printf("%s: %d %d %d ... %lld\n", what, values[0], values[1], values[count - 1], sum);
}
