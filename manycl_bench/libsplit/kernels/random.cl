// Random numbers from counters, so that every work-item has a stream of its own: a mix of multiplications and shifts.

uint mixed(uint x)
{
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

// Marsaglia's polar method, as NAS EP has it: of pairs in a square, those inside the circle become Gaussian deviates.
// Whether one is inside, and in which of ten rings of equal area, is decided in integers, the same on every device.
kernel void ep(global float *sums, global int *rings, int pairs, int items)
{
    int item = get_global_id(0);
    if (item >= items)
        return;
    float sx = 0.0f, sy = 0.0f;
    int count[10];
    for (int k = 0; k < 10; k++)
        count[k] = 0;
    for (int p = 0; p < pairs; p++) {
        uint bits = mixed(mixed((uint)item) + (uint)p);
        int u = (int)(bits & 0xffffu) - 32768, v = (int)(bits >> 16) - 32768;
        uint t = (uint)(u * u) + (uint)(v * v);
        int inside = t < 1073741824u && t > 0u;
        float r = (float)t / 1073741824.0f;
        float f = inside ? sqrt(-2.0f * log(r) / r) / 32768.0f : 0.0f;
        sx += (float)u * f;
        sy += (float)v * f;
        uint ring = (t >> 10) * 10u >> 20;
        for (int k = 0; k < 10; k++)
            count[k] += inside & (ring == (uint)k);
    }
    sums[2 * item] = sx;
    sums[2 * item + 1] = sy;
    for (int k = 0; k < 10; k++)
        rings[10 * item + k] = count[k];
}

// The price of a European call by simulated ends of its paths, an option a work-item (Box and Muller's deviates).
kernel void monte_carlo(global float *price, global const float *spot, global const float *strike,
                        global const float *years, float rate, float volatility, int paths, int options)
{
    int option = get_global_id(0);
    if (option >= options)
        return;
    float s = spot[option], k = strike[option], t = years[option];
    float drift = (rate - 0.5f * volatility * volatility) * t, scale = volatility * sqrt(t), sum = 0.0f;
    for (int p = 0; p < paths; p++) {
        uint a = mixed(mixed((uint)option) + 2u * (uint)p), b = mixed(mixed((uint)option) + 2u * (uint)p + 1u);
        float u = ((float)(a >> 8) + 1.0f) / 16777217.0f, v = (float)(b >> 8) / 16777216.0f;
        float normal = sqrt(-2.0f * log(u)) * cos(6.28318530718f * v);
        sum += fmax(s * exp(drift + scale * normal) - k, 0.0f);
    }
    price[option] = exp(-rate * t) * sum / (float)paths;
}
