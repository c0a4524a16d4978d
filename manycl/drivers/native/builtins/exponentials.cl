/* Functions of float by way of double, whose 29 further bits leave nearly correctly rounded results: exponentials. */

/* 2^t - 1 as whole * (1 + part) - 1, |t| < 1000: {whole, part}. */
#define MANYCL_POWER(t, whole, part)                                 \
  double moved_ = (t) + MANYCL_ROUNDING;                             \
  double rest_ = (t) - (moved_ - MANYCL_ROUNDING);                   \
  double part = rest_ * manycl_exp2m1_poly(rest_);                   \
  double whole = MANYCL_DOUBLE((MANYCL_BITS(moved_) << 52) + 0x3ff0000000000000UL)

/* 2^t for any t; of floats no other power is told from 0 or infinity. */
PURE double manycl_power(double t) {
  double u = manycl_between(t, -300.0, 300.0);
  MANYCL_POWER(u, whole, part);
  double power = MANYCL_MAD(whole, part, whole);
  return t != t ? t : power;
}

/* 2^t - 1, exact relative to itself near 0. */
PURE double manycl_power_less_one(double t) {
  double u = manycl_between(t, -300.0, 300.0);
  MANYCL_POWER(u, whole, part);
  double power = MANYCL_MAD(whole, part, whole - 1.0);
  return t != t ? t : power;
}

#define MANYCL_LOG2E 0x1.71547652b82fep+0

PURE float manycl_exp2_f(float x) { return (float)manycl_power((double)x); }

PURE float manycl_exp10_f(float x) { return (float)manycl_power((double)x * 0x1.a934f0979a371p+1); }

PURE float manycl_expm1_f(float x) {
  return (float)manycl_sign(manycl_power_less_one((double)x * MANYCL_LOG2E), (double)x);
}

PURE float manycl_sinh_f(float x) {
  double e = manycl_power_less_one(manycl_abs((double)x) * MANYCL_LOG2E);
  return (float)manycl_sign(0.5 * (e + e / (e + 1.0)), (double)x);
}

PURE float manycl_cosh_f(float x) {
  double e = manycl_power(manycl_abs((double)x) * MANYCL_LOG2E);
  return (float)(0.5 * (e + 1.0 / e));
}

PURE float manycl_tanh_f(float x) {
  double a = manycl_abs((double)x);
  double e = manycl_power_less_one((a > 20.0 ? 20.0 : a) * (2.0 * MANYCL_LOG2E));
  return (float)manycl_sign(e / (e + 2.0), (double)x);
}
