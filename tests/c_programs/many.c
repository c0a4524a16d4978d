/* Commands again and again, each kind on buffers of its own: how many bytes and descriptors more the process has after. */
#include "common.h"
#include <dirent.h>
#include <unistd.h>

enum { N = 1 << 14, BYTES = 4 * N };

static void *kernel;
static int host[N];

static long resident(void)
{
    long whole, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    fscanf(file, "%ld %ld", &whole, &pages);
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static int descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static void launch_on(void *buffer, size_t size)
{
    int n = 1;
    void *event;
    size_t local = 64;
    MUST(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    MUST(clSetKernelArg(kernel, 1, sizeof n, &n));
    MUST(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &size, &local, 0, NULL, &event));
    MUST(clWaitForEvents(1, &event));
    MUST(clReleaseEvent(event));
}

static void launch(void *x) { launch_on(x, N); }

static void move(void *x)
{
    void *y = buffer_of(CL_MEM_READ_WRITE, BYTES, NULL);
    MUST(clEnqueueCopyBuffer(queue, x, y, 0, 0, BYTES, 0, NULL, NULL));
    MUST(clEnqueueReadBuffer(queue, y, 1, 0, BYTES, host, 0, NULL, NULL));
    MUST(clReleaseMemObject(y));
}

static void map(void *x)
{
    int *values = clEnqueueMapBuffer(queue, x, 1, CL_MAP_WRITE, 0, BYTES, 0, NULL, NULL, &status);
    MUST(status);
    values[0] = 1;
    MUST(clEnqueueUnmapMemObject(queue, x, values, 0, NULL, NULL));
    MUST(clFinish(queue));
}

static void part(void *x)
{
    size_t region[2] = {0, BYTES / 2};
    void *half = clCreateSubBuffer(x, CL_MEM_READ_WRITE, 0x1220, region, &status);
    MUST(status);
    launch_on(half, N / 2);
    MUST(clReleaseMemObject(half));
}

static void kernels(void *x)
{
    void *former = kernel, *program = built("kernel void one(global int *x, int n) { x[get_global_id(0)] = n; }", "");
    kernel = kernel_of(program, "one");
    launch_on(x, N);
    MUST(clReleaseKernel(kernel));
    MUST(clReleaseProgram(program));
    kernel = former;
}

int main(int count, char **words)
{
    static const struct { const char *name; void (*call)(void *); } kinds[] = {
        {"launch", launch}, {"copies", move}, {"map", map}, {"part", part}, {"kernels", kernels}};
    int times = atoi(words[1]);
    begin(0);
    kernel = kernel_of(built("kernel void add(global int *x, int n) { x[get_global_id(0)] += n; }", ""), "add");
    printf("{");
    for (int kind = 0; kind < 5; kind++) {
        long before = 0;
        int open = 0;
        for (int i = kind ? -60 : -times; i < times; i++) /* (what is found out about launches is loaded beside the first) */ {
            if (i == 0) {
                before = resident();
                open = descriptors();
            }
            void *x = buffer_of(CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, BYTES, host);
            kinds[kind].call(x);
            MUST(clReleaseMemObject(x));
        }
        printf("%s\"%s\": [%ld, 0, %d]", kind ? ", " : "", kinds[kind].name, resident() - before, descriptors() - open);
    }
    printf("}\n");
    return 0;
}
