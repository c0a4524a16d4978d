/* Error and gamma functions of float by way of double. */

/* erfc(a) for 0 <= a: exp(-a^2) times what is smooth */
PURE double manycl_erfc_of(double a) {
  double b = a > 11.0 ? 11.0 : a;
  return manycl_power(b * b * -MANYCL_LOG2E) * manycl_erfcx_poly((b - 3.0) / (b + 3.0));
}

PURE float manycl_erf_f(float x) {
  double a = manycl_abs((double)x);
  double near = (double)x * manycl_erf_poly(a * a);
  double far = manycl_sign(1.0 - manycl_erfc_of(a), (double)x);
  return (float)(a < 1.0 ? near : far);
}

PURE float manycl_erfc_f(float x) {
  double a = manycl_abs((double)x);
  double far = manycl_erfc_of(a);
  far = x < 0.0f ? 2.0 - far : far;
  double near = 1.0 - (double)x * manycl_erf_poly(a * a);
  return (float)(a < 1.0 ? near : far);
}

PURE float manycl_tgamma_f(float x) { return (float)__builtin_tgamma((double)x); }

PURE float manycl_lgamma_f(float x) {
  int sign;
  return (float)manycl_lgamma_libm((double)x, &sign);
}
