/* One kernel that never ends, or one that leaves its buffer by far: as the first word says. */
#include "common.h"

static const char source[] = "kernel void far(global int *x, long at) { x[x[get_global_id(0)] + at] = 1; }"
                             "kernel void endless(global volatile int *x, long at) { while (x[0] == 0) ; }";

int main(int count, char **words)
{
    size_t global = 64, local = 16;
    long at = 1l << 40;
    int zero[64] = {0};
    begin(0);
    void *kernel = kernel_of(built(source, ""), words[1]), *buffer = buffer_of(CL_MEM_COPY_HOST_PTR, sizeof zero, zero);
    MUST(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    MUST(clSetKernelArg(kernel, 1, sizeof at, &at));
    MUST(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL));
    MUST(clFlush(queue));
    printf("enqueued\n");
    return clFinish(queue);
}
