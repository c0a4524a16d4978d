// The kernels of REPARA's benchmarks. Matrices are stored row after row; groups of rows are what can be divided.

#define SPECIES 22
#define REACTIONS 25 // of each of the eight blocks
#define STEPS 64     // of each path of the Monte Carlo simulation

// One step of heat spreading over a plate. `heat` has a border of one element.
kernel void stencil(global const float *heat, global float *after, int width)
{
    int x = get_global_id(0), y = get_global_id(1), at = (y + 1) * (width + 2) + x + 1;
    float sides = heat[at - 1] + heat[at + 1] + heat[at - width - 2] + heat[at + width + 2];
    after[y * width + x] = heat[at] + 0.2f * (sides - 4.0f * heat[at]);
}

// Whether two steps lead from one element of a relation to another; `turned` is the relation transposed.
kernel void multiply(global const uchar *relation, global const uchar *turned, global uchar *product, int n)
{
    int column = get_global_id(0), row = get_global_id(1);
    int linked = 0;
    for (int k = 0; k < n; k++)
        linked |= relation[row * n + k] & turned[column * n + k];
    product[row * n + column] = (uchar)linked;
}

kernel void unite(global const uchar *a, global const uchar *b, global uchar *both, int n)
{
    int at = get_global_id(1) * n + get_global_id(0);
    both[at] = a[at] | b[at];
}

kernel void compare(global const uchar *a, global const uchar *b, global uchar *differs, int n)
{
    int at = get_global_id(1) * n + get_global_id(0);
    differs[at] = a[at] != b[at];
}

// LU decomposition in blocks, without pivots: the block at the corner, then the panels beside it, then the rest.
kernel void lud_corner(global float *corner, int n)
{
    for (int k = 0; k < n; k++)
        for (int row = k + 1; row < n; row++) {
            float factor = corner[row * n + k] / corner[k * n + k];
            corner[row * n + k] = factor;
            for (int column = k + 1; column < n; column++)
                corner[row * n + column] -= factor * corner[k * n + column];
        }
}

kernel void lud_top(global const float *corner, global float *top, int n, int width)
{
    int column = get_global_id(0);
    for (int row = 1; row < n; row++) {
        float sum = top[row * width + column];
        for (int k = 0; k < row; k++)
            sum -= corner[row * n + k] * top[k * width + column];
        top[row * width + column] = sum;
    }
}

kernel void lud_left(global const float *corner, global float *left, int n)
{
    int row = get_global_id(0);
    for (int column = 0; column < n; column++) {
        float sum = left[row * n + column];
        for (int k = 0; k < column; k++)
            sum -= left[row * n + k] * corner[k * n + column];
        left[row * n + column] = sum / corner[column * n + column];
    }
}

kernel void lud_rest(global const float *left, global const float *top, global float *rest, int n, int width)
{
    int column = get_global_id(0), row = get_global_id(1);
    float sum = rest[row * width + column];
    for (int k = 0; k < n; k++)
        sum -= left[row * n + k] * top[k * width + column];
    rest[row * width + column] = sum;
}

// C = A B in tiles of 16 x 16.
kernel void gemm(global const float *a, global const float *b, global float *c, int n)
{
    local float tile_a[16][16], tile_b[16][16];
    int x = get_local_id(0), y = get_local_id(1), column = get_global_id(0), row = get_global_id(1);
    float sum = 0.0f;
    for (int k = 0; k < n; k += 16) {
        tile_a[y][x] = a[row * n + k + x];
        tile_b[y][x] = b[(k + y) * n + column];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int i = 0; i < 16; i++)
            sum += tile_a[y][i] * tile_b[i][x];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    c[row * n + column] = sum;
}

// The mean payoff of a European call over `paths` random walks of its stock.
kernel void monte_carlo(global const float *price, global const float *strike, global float *value, int paths)
{
    int option = get_global_id(0);
    uint state = 747796405u * (uint)option + 2891336453u;
    float sum = 0.0f;
    for (int path = 0; path < paths; path++) {
        float walk = 0.0f;
        for (int step = 0; step < STEPS; step++) {
            state = state * 1664525u + 1013904223u;
            walk += (float)(state >> 8) * (1.0f / 16777216.0f) - 0.5f;
        }
        sum += fmax(price[option] * exp(0.05f * walk) - strike[option], 0.0f);
    }
    value[option] = sum / (float)paths;
}

// The median of every 3 x 3 neighbourhood. `image` has a border of one element.
kernel void median_filter(global const float *image, global float *filtered, int width)
{
    int x = get_global_id(0), y = get_global_id(1);
    float v[9];
    for (int i = 0; i < 9; i++)
        v[i] = image[(y + i / 3) * (width + 2) + x + i % 3];
    for (int i = 0; i < 5; i++) // the smallest five, in order
        for (int j = i + 1; j < 9; j++) {
            float low = fmin(v[i], v[j]);
            v[j] = fmax(v[i], v[j]);
            v[i] = low;
        }
    filtered[y * width + x] = v[4];
}

// One pass of a bitonic merge: elements `distance` apart change places if they are in the wrong order.
kernel void bitonic(global float *data, int distance)
{
    int left = get_global_id(1) * 2 * distance + get_global_id(0);
    float a = data[left], b = data[left + distance];
    data[left] = fmin(a, b);
    data[left + distance] = fmax(a, b);
}

// Chemistry of a flame at `n` points, after the kernels of S3D: concentrations, equilibria, rates of reactions, and
// what they make of the species. Constants are invented: what matters here is who needs what, and about how much work.
kernel void concentrations(global const float *pressure, global const float *heat, global const float *mass,
                           global float *moles, int n)
{
    int i = get_global_id(0);
    for (int s = 0; s < SPECIES; s++)
        moles[s * n + i] = mass[s * n + i] * pressure[i] / (8.314f * heat[i] * (float)(s + 2));
}

kernel void equilibria(global const float *heat, global float *gibbs, int n)
{
    int i = get_global_id(0);
    float t = heat[i];
    for (int s = 0; s < SPECIES; s++)
        gibbs[s * n + i] = exp(((0.01f * (float)s + 0.3f) * log(t) - 1.0f) - (float)s / t);
}

kernel void arrhenius(global const float *heat, global float *base, int n)
{
    int i = get_global_id(0);
    for (int r = 0; r < REACTIONS; r++)
        base[r * n + i] = exp(0.1f * (float)r * log(heat[i]) - (float)(r + 1) * 40.0f / heat[i]);
}

kernel void rates(global const float *heat, global const float *gibbs, global float *forward, global float *backward,
                  int n, int block)
{
    int i = get_global_id(0);
    for (int r = 0; r < REACTIONS; r++) {
        int s = (block * REACTIONS + r) % (SPECIES - 1);
        float rate = exp(0.05f * (float)(block + r) * log(heat[i]) - (float)(r + 1) * 30.0f / heat[i]);
        forward[r * n + i] = rate;
        backward[r * n + i] = rate * gibbs[s * n + i] / (gibbs[(s + 1) * n + i] + 1.0f);
    }
}

kernel void reactions(global const float *moles, global const float *low, global float *forward,
                      global float *backward, int n, int block)
{
    int i = get_global_id(0);
    for (int r = 0; r < REACTIONS; r++) {
        int s = (block * REACTIONS + r) % (SPECIES - 1);
        float falloff = low[r * n + i] / (1.0f + low[r * n + i]);
        forward[r * n + i] *= falloff * moles[s * n + i];
        backward[r * n + i] *= falloff * moles[(s + 1) * n + i];
    }
}

kernel void steady(global const float *forward, global const float *backward, global float *share, int n)
{
    int i = get_global_id(0);
    float up = 0.0f, down = 0.0f;
    for (int r = 0; r < REACTIONS; r++) {
        up += forward[r * n + i];
        down += backward[r * n + i];
    }
    share[i] = up / (up + down + 1.0f);
}

kernel void produced(global const float *forward, global const float *backward, global const float *share,
                     global float *change, int n)
{
    int i = get_global_id(0);
    float sum = 0.0f;
    for (int r = 0; r < REACTIONS; r++)
        sum += forward[r * n + i] - share[i] * backward[r * n + i];
    change[i] = sum;
}
