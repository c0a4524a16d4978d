/* What the other files are made of. No function here or there has a branch: loops that call them can be vectorised.
   Sums and products are rounded one by one (no contraction), so scalar and vector code have the same bits. */

/* a * b + c, rounded once where the processor can */
#if defined(__FMA__) || defined(__aarch64__)
#define MANYCL_MAD(a, b, c) __builtin_fma(a, b, c)
#define MANYCL_MADF(a, b, c) __builtin_fmaf(a, b, c)
#else
#define MANYCL_MAD(a, b, c) ((a) * (b) + (c))
#define MANYCL_MADF(a, b, c) ((a) * (b) + (c))
#endif

#define MANYCL_BITS(x) __builtin_astype(x, unsigned long)

#define MANYCL_DOUBLE(x) __builtin_astype((unsigned long)(x), double)

#define MANYCL_BITSF(x) __builtin_astype(x, unsigned int)

#define MANYCL_FLOAT(x) __builtin_astype((unsigned int)(x), float)

#define MANYCL_INF MANYCL_DOUBLE(0x7ff0000000000000UL)

#define MANYCL_NAN MANYCL_DOUBLE(0x7ff8000000000000UL)

/* Of |x| < 2^51, added and taken away again: x rounded to an integer, ties to even; the sum's lowest bits are it. */
#define MANYCL_ROUNDING 0x1.8p52

PURE double manycl_abs(double x) { return __builtin_fabs(x); }

PURE double manycl_sign(double x, double sign) { return __builtin_copysign(x, sign); }

PURE double manycl_between(double x, double low, double high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

/* Whether the bits of x have a sign. */
PURE int manycl_negative(double x) { return (long)MANYCL_BITS(x) < 0; }

PURE double manycl_round(double x) { return __builtin_rint(x); }
