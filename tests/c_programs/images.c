/* Images of a buffer's elements: what is written to one is in the other, by every kind of command. */
#include "common.h"

#define N 64
typedef struct { unsigned order, type; } form;
typedef struct { unsigned kind; size_t extents[4], pitches[2]; unsigned levels, samples; void *made_of; } description;
static const char source[] =
    "__kernel void twice(__read_only image1d_buffer_t x, __global int *y) { int i = get_global_id(0);\n"
    "  y[i] = read_imagei(x, i).x * 2; }\n"
    "__kernel void fill(__write_only image1d_buffer_t x, __global int *y) { int i = get_global_id(0);\n"
    "  write_imagei(x, i, (int4)(y[i] + 1, 0, 0, 0)); }\n"
    "__kernel void add(__global int *y) { y[get_global_id(0)] += 1000; }\n";
static int values[N], out[N];

static void show(const char *what, void *buffer)
{
    MUST(clEnqueueReadBuffer(queue, buffer, 1, 0, sizeof out, out, 0, NULL, NULL));
    show_ints(what, out, N);
}

static void *image_of(unsigned long long flags, void *buffer, size_t width)
{
    form one = {0x10B0, 0x10D9}; /* CL_R, CL_SIGNED_INT32 */
    description of = {0x10F6, {width}, {0}, 0, 0, buffer};
    return clCreateImage(context, flags, &one, &of, NULL, &status);
}

static void launch(void *program, const char *name, void *first, void *second)
{
    void *kernel = kernel_of(program, name);
    size_t all = N;
    MUST(clSetKernelArg(kernel, 0, sizeof first, &first));
    if (second)
        MUST(clSetKernelArg(kernel, 1, sizeof second, &second));
    MUST(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &all, NULL, 0, NULL, NULL));
    MUST(clReleaseKernel(kernel));
}

int main(void)
{
    begin(0);
    for (int i = 0; i < N; i++)
        values[i] = i * 7 - 100;
    void *program = built(source, NULL), *x = buffer_of(CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof values, values);
    void *y = buffer_of(CL_MEM_READ_WRITE, sizeof values, NULL), *image = image_of(0, x, N), *found;
    size_t origin[3] = {3, 0, 0}, region[3] = {20, 1, 1}, row, size, host_origin[3] = {0};
    int color[4] = {-9, 0, 0, 0};
    MUST(status);
    launch(program, "twice", image, y);
    show("read", y);
    launch(program, "add", x, NULL); /* the buffer alone, and then the image */
    launch(program, "twice", image, y);
    show("read again", y);
    launch(program, "fill", image, y);
    show("written", x);
    MUST(clEnqueueFillImage(queue, image, color, origin, region, 0, NULL, NULL));
    show("filled", x);
    MUST(clEnqueueWriteImage(queue, image, 1, origin, region, 0, 0, values, 0, NULL, NULL));
    show("from the host", x);
    MUST(clEnqueueReadImage(queue, image, 1, host_origin, region, 0, 0, out, 0, NULL, NULL));
    show_ints("to the host", out, 20);
    MUST(clEnqueueCopyImageToBuffer(queue, image, y, origin, region, 0, 0, NULL, NULL));
    show("to a buffer", y);
    MUST(clEnqueueCopyBufferToImage(queue, y, image, 40, host_origin, region, 0, NULL, NULL));
    show("from a buffer", x);
    int *mapped = clEnqueueMapImage(queue, image, 1, CL_MAP_READ | CL_MAP_WRITE, origin, region, &row, NULL, 0, NULL,
                                    NULL, &status);
    MUST(status);
    show_ints("mapped", mapped, 20);
    mapped[5] = 123456;
    MUST(clEnqueueUnmapMemObject(queue, image, mapped, 0, NULL, NULL));
    show("unmapped", x);
    MUST(clGetImageInfo(image, 0x1118, sizeof found, &found, NULL)); /* CL_IMAGE_BUFFER */
    printf("its buffer: %d\n", found == x);
    MUST(clGetMemObjectInfo(image, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof found, &found, NULL));
    printf("its memory: %d\n", found == x);
    MUST(clGetImageInfo(image, 0x1114, sizeof size, &size, NULL)); /* CL_IMAGE_WIDTH */
    printf("its width: %d\n", (int)size);

    size_t part[2] = {128, 128}; /* bytes */
    void *half = clCreateSubBuffer(x, CL_MEM_READ_WRITE, 0x1220, part, &status);
    MUST(status);
    /* the image and the program's memory live as long as somebody needs them */
    int *own = aligned_alloc(4096, 4096);
    memcpy(own, values, sizeof values);
    void *z = buffer_of(CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, sizeof values, own), *other = image_of(0, z, N);
    MUST(status);
    launch(program, "fill", other, y);
    MUST(clReleaseMemObject(z));
    launch(program, "twice", other, y);
    show("of a released buffer", y);
    image_of(0, x, N + 1);
    printf("too large: %d\n", status != 0);
    image_of(CL_MEM_READ_ONLY, half, 8);
    printf("of a part: %d\n", status);
    image_of(0, (void *)&origin, 8);
    printf("of nothing: %d\n", status != 0);
    return 0;
}
