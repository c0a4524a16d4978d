/* Conversions that round otherwise than to the nearest even number, and those of halves. */

/* A number of 64 bits with its sign, rounded towards 0 or away from it. */
PURE float manycl_float_of(unsigned long x, int negative, int away) {
  int drop = 40 - (x == 0 ? 64 : __builtin_clzl(x));
  drop = drop < 0 ? 0 : drop;
  unsigned long kept = (x >> drop) << drop;
  unsigned int bits = MANYCL_BITSF((float)kept) + (away & (kept != x));
  return MANYCL_FLOAT(bits | ((unsigned int)negative << 31));
}

PURE double manycl_double_of(unsigned long x, int negative, int away) {
  int drop = 11 - (x == 0 ? 64 : __builtin_clzl(x));
  drop = drop < 0 ? 0 : drop;
  unsigned long kept = (x >> drop) << drop;
  unsigned long bits = MANYCL_BITS((double)kept) + (away & (kept != x));
  return MANYCL_DOUBLE(bits | ((unsigned long)negative << 63));
}

/* x rounded up (1), down (-1) or towards 0 (0) */
PURE float manycl_narrow(double x, int up) {
  float y = (float)x;
  double z = (double)y;
  int wanted = up == 0 ? (x < 0 ? 1 : -1) : up;
  int wrong = wanted > 0 ? z < x : z > x;
  unsigned int bits = MANYCL_BITSF(y);
  int negative = (int)bits < 0;
  unsigned int zero = wanted > 0 ? 1u : 0x80000001u; /* next to 0 */
  unsigned int next = (bits & 0x7fffffffu) == 0 ? zero : bits + ((wanted > 0) == !negative ? 1u : 0xffffffffu);
  return wrong ? MANYCL_FLOAT(next) : y;
}

/* Exact: exponents of floats begin 112 lower. */
PURE float manycl_from_half(unsigned short h) {
  unsigned int a = h & 0x7fffu;
  unsigned int bits = MANYCL_BITSF(MANYCL_FLOAT(a << 13) * 0x1.0p112f);
  bits = a >= 0x7c00u ? (a << 13) | 0x7f800000u : bits;
  return MANYCL_FLOAT(bits | ((h & 0x8000u) << 16));
}

/* The half next to x: even (0), towards 0 (1), up (2), down (3). */
PURE unsigned short manycl_to_half(double x, int way) {
  double a = __builtin_fabs(x), b = a > 0x1.0p17 ? 0x1.0p17 : a;
  int negative = manycl_negative(x);
  long e = (long)(MANYCL_BITS(b) >> 52) - 1023;
  e = e < -14 ? -14 : e;
  double units = b * MANYCL_DOUBLE((unsigned long)(1023 + 10 - e) << 52);
  int up = way == 2 ? !negative : way == 3 ? negative : 0;
  double whole = way == 0 ? __builtin_rint(units) : up ? __builtin_ceil(units) : __builtin_trunc(units);
  int bits = (int)(e + 14) * 1024 + (int)whole;
  int most = (way == 0) | up ? 0x7c00 : 0x7bff;
  bits = bits >= 0x7c00 ? most : bits;
  bits = a == MANYCL_INF ? 0x7c00 : bits;
  bits = x != x ? 0x7e00 : bits;
  return (unsigned short)(bits | (negative << 15));
}
