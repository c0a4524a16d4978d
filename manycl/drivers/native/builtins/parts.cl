/* Parts of numbers, and numbers beside them: exact, by their bits. */

PURE float manycl_round_f(float x) {
  float whole = __builtin_truncf(x);
  float more = __builtin_fabsf(x - whole) >= 0.5f ? 1.0f : 0.0f;
  return __builtin_copysignf(__builtin_fabsf(whole) + more, x);
}

PURE double manycl_round_d(double x) {
  double whole = __builtin_trunc(x);
  double more = __builtin_fabs(x - whole) >= 0.5 ? 1.0 : 0.0;
  return __builtin_copysign(__builtin_fabs(whole) + more, x);
}

/* As integers in the order of the numbers, next ones differ by one. */
PURE float manycl_nextafter_f(float x, float y) {
  int a = (int)MANYCL_BITSF(x), b = (int)MANYCL_BITSF(y);
  a = a < 0 ? (int)(0x80000000u - (unsigned int)a) : a;
  b = b < 0 ? (int)(0x80000000u - (unsigned int)b) : b;
  int next = a + (a < b) - (a > b);
  next = (a == 0) & (b < 0) ? -1 : next;
  float value = MANYCL_FLOAT(next < 0 ? 0x80000000u - (unsigned int)next : (unsigned int)next);
  value = x == y ? y : value;
  return (x != x) | (y != y) ? MANYCL_FLOAT(0x7fc00000) : value;
}

PURE double manycl_nextafter_d(double x, double y) {
  long a = (long)MANYCL_BITS(x), b = (long)MANYCL_BITS(y);
  a = a < 0 ? (long)(0x8000000000000000UL - (unsigned long)a) : a;
  b = b < 0 ? (long)(0x8000000000000000UL - (unsigned long)b) : b;
  long next = a + (a < b) - (a > b);
  double value = MANYCL_DOUBLE(next < 0 ? 0x8000000000000000UL - (unsigned long)next : (unsigned long)next);
  value = x == y ? y : value;
  return (x != x) | (y != y) ? MANYCL_NAN : value;
}

/* The exponent of a finite |x| > 0. */
PURE int manycl_exponent_f(float x) {
  return (int)((MANYCL_BITS((double)x) >> 52) & 2047) - 1023;
}

PURE int manycl_exponent_d(double x) {
  int small = __builtin_fabs(x) < 0x1.0p-1022;
  double y = small ? x * 0x1.0p60 : x;
  return (int)((MANYCL_BITS(y) >> 52) & 2047) - (small ? 1083 : 1023);
}

PURE int manycl_ilogb_f(float x) {
  unsigned int a = MANYCL_BITSF(x) & 0x7fffffffu;
  int e = manycl_exponent_f(x);
  e = a == 0 ? -2147483647 - 1 : e;
  return a >= 0x7f800000u ? 2147483647 : e;
}

PURE int manycl_ilogb_d(double x) {
  unsigned long a = MANYCL_BITS(x) & 0x7fffffffffffffffUL;
  int e = manycl_exponent_d(x);
  e = a == 0 ? -2147483647 - 1 : e;
  return a >= 0x7ff0000000000000UL ? 2147483647 : e;
}

PURE float manycl_logb_f(float x) {
  float e = (float)manycl_exponent_f(x);
  e = x == 0.0f ? -__builtin_inff() : e;
  return __builtin_fabsf(x) < __builtin_inff() ? e : x * x;
}

PURE double manycl_logb_d(double x) {
  double e = (double)manycl_exponent_d(x);
  e = x == 0.0 ? -MANYCL_INF : e;
  return __builtin_fabs(x) < MANYCL_INF ? e : x * x;
}

/* x is exact in double, so is the product, and is rounded once. */
PURE float manycl_ldexp_f(float x, int n) {
  long most = n < -400 ? -400 : n > 400 ? 400 : n;
  return (float)((double)x * MANYCL_DOUBLE((unsigned long)(most + 1023) << 52));
}

/* In three steps, of which the last alone rounds: those before leave normal numbers, if it is not all 0 or infinite. */
PURE double manycl_ldexp_d(double x, int n) {
  int small = __builtin_fabs(x) < 0x1.0p-1022;
  int most = n < -2100 ? -2100 : n > 2100 ? 2100 : n;
  int there = manycl_exponent_d(x) + most, left = small ? most - 60 : most;
  int last = there > 1023 ? 700 : there < -1022 ? -200 : 0;
  int part = (left - last) >> 1, rest = left - last - part;
  double y = (small ? x * 0x1.0p60 : x) * MANYCL_DOUBLE((long)(part + 1023) << 52);
  y = y * MANYCL_DOUBLE((long)(rest + 1023) << 52) * MANYCL_DOUBLE((long)(last + 1023) << 52);
  return (x == 0.0) | !(__builtin_fabs(x) < MANYCL_INF) ? x + x : y;
}

/* The significand between 1/2 and 1; its exponent is one more than that of 1.f * 2^e. */
PURE float manycl_fraction_f(float x) {
  double y = MANYCL_DOUBLE((MANYCL_BITS((double)x) & 0x800fffffffffffffUL) | 0x3fe0000000000000UL);
  return (x == 0.0f) | !(__builtin_fabsf(x) < __builtin_inff()) ? x + x : (float)y;
}

PURE double manycl_fraction_d(double x) {
  double z = __builtin_fabs(x) < 0x1.0p-1022 ? x * 0x1.0p60 : x;
  double y = MANYCL_DOUBLE((MANYCL_BITS(z) & 0x800fffffffffffffUL) | 0x3fe0000000000000UL);
  return (x == 0.0) | !(__builtin_fabs(x) < MANYCL_INF) ? x + x : y;
}

PURE int manycl_power_f(float x) {
  return (x == 0.0f) | !(__builtin_fabsf(x) < __builtin_inff()) ? 0 : manycl_exponent_f(x) + 1;
}

PURE int manycl_power_d(double x) {
  return (x == 0.0) | !(__builtin_fabs(x) < MANYCL_INF) ? 0 : manycl_exponent_d(x) + 1;
}
