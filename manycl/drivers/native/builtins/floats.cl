/* Functions of float by its own arithmetic, where that is often asked for: within 1.5 units in the last place. */

/* e^x: u = n log(2) + r, |r| < 0.35, and 2^n in two factors, so that it is rounded once where it is subnormal. */
PURE float manycl_exp_f(float x) {
  float u = x < -104.0f ? -104.0f : x;
  u = u > 89.0f ? 89.0f : u;
  float moved = MANYCL_MADF(u, 0x1.715476p+0f, 0x1.8p23f);
  float n = moved - 0x1.8p23f;
  float r = MANYCL_MADF(n, -0x1.7f7d1cp-20f, MANYCL_MADF(n, -0x1.62e4p-1f, u));
  float p = MANYCL_MADF(r * r, manycl_exp_f_poly(r), r);
  int whole = (int)MANYCL_BITSF(moved) - 0x4b400000, less = whole >> 1;
  float first = MANYCL_FLOAT((unsigned int)(less + 127) << 23);
  float second = MANYCL_FLOAT((unsigned int)(whole - less + 127) << 23);
  float power = MANYCL_MADF(first, p, first) * second;
  return x != x ? x : power;
}

/* u = 2^k (1 + f) with 1 + f between sqrt(1/2) and sqrt(2); log(1 + f) = f - s (f - R) with s = f / (2 + f). */
PURE float manycl_log_f(float x) {
  int small = x < 0x1p-126f;
  float u = small ? x * 0x1p23f : x;
  unsigned int moved = MANYCL_BITSF(u) - 0x3f3504f3u;
  float k = (float)(((int)moved >> 23) - (small ? 23 : 0));
  float f = MANYCL_FLOAT((moved & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
  float s = f / (2.0f + f), z = s * s;
  float less = MANYCL_MADF(s, MANYCL_MADF(-z, manycl_log_f_poly(z), f), k * -0x1.7f7d1cp-20f);
  float log = MANYCL_MADF(k, 0x1.62e4p-1f, f - less);
  log = x == __builtin_inff() ? x : log;
  log = x == 0.0f ? -__builtin_inff() : log;
  return x >= 0.0f ? log : MANYCL_FLOAT(0x7fc00000u);
}

/* The sine of r and some quarter turns, |r| <= pi/4. */
PURE float manycl_turn_sin_f(float r, unsigned int turns) {
  float z = r * r;
  float s = MANYCL_MADF(r * z, manycl_sin_f_poly(z), r);
  float c = MANYCL_MADF(z, MANYCL_MADF(z, manycl_cos_f_poly(z), -0.5f), 1.0f);
  float y = turns & 1 ? c : s;
  return turns & 2 ? -y : y;
}
