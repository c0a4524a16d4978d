/* Images of two dimensions: kernels that write them, and every command that they have. */
#include "common.h"

#define W 256
#define H 192
typedef struct { unsigned order, type; } form;
typedef struct { unsigned kind; size_t extents[4], pitches[2]; unsigned levels, samples; void *made_of; } description;
static const char source[] =
    "__kernel void blur(__read_only image2d_t x, __write_only image2d_t y, sampler_t how) {\n"
    "  int2 p = (int2)(get_global_id(0), get_global_id(1)); float4 t = 0;\n"
    "  for (int j = -2; j <= 2; j++) for (int i = -2; i <= 2; i++) t += read_imagef(x, how, p + (int2)(i, j));\n"
    "  write_imagef(y, p, t / 25 + (float4)(0.1f, 0, 0, 0)); }\n"
    "__kernel void order(__read_only image2d_t x, __global int *o) { *o = get_image_channel_order(x); }\n";
static unsigned char pixels[H][W + 3][4], out[H][W][4];
static int ints[H * W];

static void show(const char *what, void *image)
{
    size_t origin[3] = {0}, all[3] = {W, H, 1};
    MUST(clEnqueueReadImage(queue, image, 1, origin, all, 0, 0, out, 0, NULL, NULL));
    memcpy(ints, out, sizeof out);
    show_ints(what, ints, W * H);
}

int main(void)
{
    begin(0);
    for (int i = 0; i < (int)sizeof pixels; i++)
        (&pixels[0][0][0])[i] = i * 7 + i / 100;
    form rgba = {0x10B5, 0x10D2}; /* CL_RGBA, CL_UNORM_INT8 */
    description of = {0x10F1, {W, H}, {sizeof pixels[0]}}, plain = {0x10F1, {W, H}};
    void *x = clCreateImage(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, &rgba, &of, pixels, &status);
    MUST(status);
    void *y = clCreateImage(context, CL_MEM_READ_WRITE, &rgba, &plain, NULL, &status);
    MUST(status);
    void *how = clCreateSampler(context, 0, 0x1132, 0x1140, &status); /* CL_ADDRESS_CLAMP, CL_FILTER_NEAREST */
    MUST(status);
    void *program = built(source, NULL), *kernel = kernel_of(program, "blur");
    size_t all[2] = {W, H}, one = 1, origin[3] = {5, 7, 0}, region[3] = {20, 30, 1}, row, width, pair[2] = {16, 16};
    for (int i = 0; i < 4; i++) {
        MUST(clSetKernelArg(kernel, 0, sizeof x, i % 2 ? &y : &x));
        MUST(clSetKernelArg(kernel, 1, sizeof x, i % 2 ? &x : &y));
        MUST(clSetKernelArg(kernel, 2, sizeof how, &how));
        MUST(clEnqueueNDRangeKernel(queue, kernel, 2, NULL, all, pair, 0, NULL, NULL));
    }
    show("blurred", x);
    MUST(clEnqueueWriteImage(queue, y, 0, origin, region, sizeof pixels[0], 0, pixels, 0, NULL, NULL));
    show("from the host", y);
    memset(out, 0, sizeof out);
    MUST(clEnqueueReadImage(queue, x, 0, origin, region, W * 4, 0, out, 0, NULL, NULL));
    MUST(clFinish(queue));
    memcpy(ints, out, sizeof out);
    show_ints("a part", ints, W * 30);
    float color[4] = {0.25f, 0.5f, 1, 0};
    MUST(clEnqueueFillImage(queue, y, color, origin, region, 0, NULL, NULL));
    MUST(clEnqueueCopyImage(queue, y, x, origin, origin, region, 0, NULL, NULL));
    show("filled and copied", x);
    unsigned char *mapped = clEnqueueMapImage(queue, x, 1, CL_MAP_READ | CL_MAP_WRITE, origin, region, &row, NULL, 0, NULL,
                                              NULL, &status);
    MUST(status);
    mapped[3 * row + 1] = 99;
    MUST(clEnqueueUnmapMemObject(queue, x, mapped, 0, NULL, NULL));
    show("mapped", x);
    void *number = buffer_of(CL_MEM_READ_WRITE, sizeof(int), NULL);
    kernel = kernel_of(program, "order");
    MUST(clSetKernelArg(kernel, 0, sizeof x, &x));
    MUST(clSetKernelArg(kernel, 1, sizeof number, &number));
    MUST(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
    MUST(clEnqueueReadBuffer(queue, number, 1, 0, sizeof(int), ints, 0, NULL, NULL));
    printf("its order: %d\n", ints[0]);
    MUST(clGetImageInfo(x, 0x1114, sizeof width, &width, NULL)); /* CL_IMAGE_WIDTH */
    printf("its width: %d\n", (int)width);
    region[0] = W;
    TELL(clEnqueueReadImage(queue, x, 1, origin, region, 0, 0, out, 0, NULL, NULL));
    MUST(clReleaseMemObject(x));
    MUST(clReleaseMemObject(y));
    return 0;
}
