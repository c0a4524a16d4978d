/* Exponentials and logarithms of double without branches, so that loops that call them can be vectorised. */

/* value * 2^n for the n, |n| < 1500, that was rounded by MANYCL_ROUNDING: in two steps, of which the last may round */
PURE double manycl_scaled_d(double value, double moved) {
  long n = (long)(MANYCL_BITS(moved) << 32) >> 32, part = n >> 1;
  double y = value * MANYCL_DOUBLE((unsigned long)(part + 1023) << 52);
  return y * MANYCL_DOUBLE((unsigned long)(n - part + 1023) << 52);
}

/* e^(r + more) for a small r and a far smaller rest */
PURE double manycl_exp_near(double r, double more) { return 1.0 + (r + (r * r * manycl_exp_d_poly(r) + more)); }

PURE double manycl_exp_d(double x) {
  double t = manycl_between(x, -800.0, 800.0);
  double moved = t * MANYCL_LOG2E + MANYCL_ROUNDING, n = moved - MANYCL_ROUNDING;
  double high = t - n * 0x1.62e42fee00000p-1, low = n * 0x1.a39ef35793c76p-33; /* log(2) in two parts; the first exact */
  double r = high - low;
  double y = manycl_scaled_d(manycl_exp_near(r, (high - r) - low), moved);
  return x != x ? x : y;
}

PURE double manycl_exp2_d(double x) {
  double t = manycl_between(x, -1100.0, 1100.0);
  double moved = t + MANYCL_ROUNDING, r = t - (moved - MANYCL_ROUNDING);
  double y = manycl_scaled_d(1.0 + r * manycl_exp2_d_poly(r), moved);
  return x != x ? x : y;
}

PURE double manycl_exp10_d(double x) {
  double t = manycl_between(x, -400.0, 400.0);
  double moved = t * 0x1.a934f0979a371p+1 + MANYCL_ROUNDING, n = moved - MANYCL_ROUNDING;
  double r = (t - n * 0x1.3441350800000p-2) - n * 0x1.f79fef311f12bp-34; /* log10(2) in two parts */
  double y = manycl_scaled_d(manycl_exp_near(r * 0x1.26bb1bbb55516p+1, 0.0), moved);
  return x != x ? x : y;
}

/* As MANYCL_SPLIT, of the smallest numbers too. */
#define MANYCL_SPLIT_D(x, k, m)                      \
  double less_ = (x) < 0x1.0p-1022 ? 54.0 : 0.0;     \
  double u_ = less_ == 0.0 ? (x) : (x) * 0x1.0p54;   \
  MANYCL_SPLIT(u_, more_, m);                        \
  double k = more_ - less_

/* log(1 + f) = f - s (f - s^2 R), s = f / (2 + f), less: what is small is taken away from what is exact. */
PURE double manycl_log_near_one_d(double f, double less) {
  double s = f / (2.0 + f), z = s * s;
  return f - (s * (f - z * manycl_atanh_d_poly(z)) - less);
}

PURE double manycl_log_d(double x) {
  MANYCL_SPLIT_D(x, k, m);
  double log = k * 0x1.62e42fee00000p-1 + manycl_log_near_one_d(m - 1.0, k * 0x1.a39ef35793c76p-33);
  return manycl_log_ends(x, log);
}

PURE double manycl_log2_d(double x) {
  MANYCL_SPLIT_D(x, k, m);
  double log = k + manycl_log_near_one_d(m - 1.0, 0.0) * MANYCL_LOG2E;
  return manycl_log_ends(x, log);
}

PURE double manycl_log10_d(double x) {
  MANYCL_SPLIT_D(x, k, m);
  double near = manycl_log_near_one_d(m - 1.0, 0.0) * 0x1.bcb7b1526e50ep-2;
  double log = k * 0x1.3441350800000p-2 + (near + k * 0x1.f79fef311f12bp-34);
  return manycl_log_ends(x, log);
}
