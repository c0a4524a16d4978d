// Attraction among bodies that lie near each other. Bodies are sorted by x; those that body i feels have the numbers from
// first[i] up to last[i], so a body in a crowd takes longer, and the crowd moves.
kernel void forces(global float4 *force, global const float4 *body, global const int *first, global const int *last,
                   float softening, int bodies)
{
    int i = get_global_id(0);
    if (i >= bodies)
        return;
    float4 me = body[i];
    float fx = 0.0f, fy = 0.0f, fz = 0.0f;
    for (int j = first[i]; j < last[i]; j++) {
        float4 other = body[j];
        float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
        float d = dx * dx + dy * dy + dz * dz + softening;
        float f = other.w / (d * sqrt(d));
        fx += f * dx;
        fy += f * dy;
        fz += f * dz;
    }
    force[i] = (float4)(fx, fy, fz, 0.0f);
}
