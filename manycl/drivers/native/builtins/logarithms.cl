/* Functions of float by way of double: logarithms and powers. */

/* u = 2^k * m for a positive, normal u, m between sqrt(1/2) and sqrt(2): k as a double. */
#define MANYCL_SPLIT(u, k, m)                                                                 \
  unsigned long moved_ = MANYCL_BITS(u) - 0x3fe6a09e667f3bcdUL + (1024UL << 52);              \
  double k = MANYCL_DOUBLE(0x4330000000000000UL | (moved_ >> 52)) - (0x1.0p52 + 1024.0);      \
  double m = MANYCL_DOUBLE((moved_ & 0x000fffffffffffffUL) + 0x3fe6a09e667f3bcdUL)

/* log(1 + f) */
PURE double manycl_log_near_one(double f) {
  double s = f / (2.0 + f);
  return s * manycl_atanh_poly(s * s);
}

/* What a logarithm is where u is not positive and finite. */
PURE double manycl_log_ends(double u, double log) {
  log = u == MANYCL_INF ? u : log;
  log = u == 0.0 ? -MANYCL_INF : log;
  return u >= 0.0 ? log : MANYCL_NAN;
}

/* log2 of a double that a float may be, or 0, or infinity; NaN of others */
PURE double manycl_log2(double u) {
  MANYCL_SPLIT(u, k, m);
  double log = MANYCL_MAD(manycl_log_near_one(m - 1.0), MANYCL_LOG2E, k);
  return manycl_log_ends(u, log);
}

/* log(1 + f), exact relative to itself near 0 */
PURE double manycl_log1p(double f) {
  double u = 1.0 + f;
  MANYCL_SPLIT(u, k, m);
  double log = MANYCL_MAD(k, 0x1.62e42fefa39efp-1, manycl_log_near_one(k == 0.0 ? f : m - 1.0));
  return manycl_log_ends(u, log);
}

PURE float manycl_log2_f(float x) { return (float)manycl_log2((double)x); }

PURE float manycl_log10_f(float x) {
  double u = x;
  MANYCL_SPLIT(u, k, m);
  double log = MANYCL_MAD(k, 0x1.34413509f79ffp-2, manycl_log_near_one(m - 1.0) * 0x1.bcb7b1526e50ep-2);
  return (float)manycl_log_ends(u, log);
}

PURE float manycl_log1p_f(float x) { return x == 0.0f ? x : (float)manycl_log1p((double)x); }

PURE float manycl_asinh_f(float x) {
  double a = manycl_abs((double)x);
  double log = manycl_log1p(a + a * a / (1.0 + __builtin_sqrt(a * a + 1.0)));
  return (float)manycl_sign(a == MANYCL_INF ? a : log, (double)x);
}

PURE float manycl_acosh_f(float x) {
  double f = (double)x - 1.0;
  double log = manycl_log1p(f + __builtin_sqrt(f * ((double)x + 1.0)));
  return x >= 1.0f ? (float)log : MANYCL_FLOAT(0x7fc00000);
}

PURE float manycl_atanh_f(float x) {
  double a = manycl_abs((double)x);
  double log = 0.5 * manycl_log1p(2.0 * a / (1.0 - a));
  return (float)manycl_sign(log, (double)x);
}

/* |x|^y for integers y and others alike */
PURE double manycl_power_of(double x, double y) {
  double power = manycl_power(y * manycl_log2(manycl_abs(x)));
  power = y == 0.0 ? 1.0 : power;
  return manycl_abs(x) == 1.0 ? 1.0 : power;
}

/* (C99, F.9.4.4) */
PURE double manycl_pow(double x, double y) {
  double power = manycl_power_of(x, y);
  int whole = __builtin_rint(y) == y;
  int odd = whole & (__builtin_rint(y * 0.5) != y * 0.5);
  power = odd ? manycl_sign(power, x) : power;
  power = ((x < 0.0) & (x != -MANYCL_INF) & !whole) ? MANYCL_NAN : power;
  power = ((x != x) | (y != y)) ? MANYCL_NAN : power;
  return ((y == 0.0) | (x == 1.0)) ? 1.0 : power;
}

PURE float manycl_pow_f(float x, float y) { return (float)manycl_pow((double)x, (double)y); }

PURE float manycl_pown_f(float x, int y) { return (float)manycl_pow((double)x, (double)y); }

/* x >= 0 (IEEE 754-2008, 9.2.1) */
PURE float manycl_powr_f(float x, float y) {
  double a = manycl_abs((double)x), b = y;
  double power = manycl_power_of(a, b);
  int ends = (a == 0.0) | (a == MANYCL_INF);
  power = (ends & (b == 0.0)) | ((a == 1.0) & (manycl_abs(b) == MANYCL_INF)) ? MANYCL_NAN : power;
  return (float)(((x >= 0.0f) & (y == y)) ? power : MANYCL_NAN);
}

/* The root of x by an integer: odd ones have negative numbers (IEEE 754-2008, 9.2.1) */
PURE float manycl_rootn_f(float x, int n) {
  double power = manycl_power(manycl_log2(manycl_abs((double)x)) / (double)n);
  power = manycl_abs((double)x) == 1.0 ? 1.0 : power;
  power = n & 1 ? manycl_sign(power, (double)x) : power;
  power = ((x < 0.0f) & !(n & 1)) ? MANYCL_NAN : power;
  return (float)((n == 0) | (x != x) ? MANYCL_NAN : power);
}

PURE float manycl_cbrt_f(float x) {
  double power = manycl_power(manycl_log2(manycl_abs((double)x)) * 0x1.5555555555555p-2);
  return (float)manycl_sign(power, (double)x);
}

PURE float manycl_hypot_f(float x, float y) {
  double a = x, b = y;
  double length = __builtin_sqrt(MANYCL_MAD(a, a, b * b));
  return (float)((manycl_abs(a) == MANYCL_INF) | (manycl_abs(b) == MANYCL_INF) ? MANYCL_INF : length);
}
