/* Functions of double that the C library lacks, or is not exact enough in. */

#define MANYCL_PI 0x1.921fb54442d18p+1

PURE double manycl_acospi_d(double x) { return __builtin_acos(x) * MANYCL_1_PI; }

PURE double manycl_asinpi_d(double x) { return __builtin_asin(x) * MANYCL_1_PI; }

PURE double manycl_atanpi_d(double x) { return __builtin_atan(x) * MANYCL_1_PI; }

PURE double manycl_atan2pi_d(double y, double x) { return __builtin_atan2(y, x) * MANYCL_1_PI; }

/* x in half turns: whole quarter turns, and the rest, at most 1/4; exact */
#define MANYCL_HALVES_D(x, turns, rest)                              \
  double even_ = (x) - 2.0 * manycl_round(0.5 * (x));                \
  double twice_ = manycl_round(2.0 * even_);                         \
  int turns = even_ == even_ ? (int)twice_ & 3 : 0;                  \
  double rest = MANYCL_PI * (even_ - 0.5 * twice_)

PURE double manycl_sinpi_d(double x) {
  MANYCL_HALVES_D(x, turns, r);
  double y = turns & 1 ? __builtin_cos(r) : __builtin_sin(r);
  y = turns & 2 ? -y : y;
  return y == 0.0 ? manycl_sign(0.0, x) : y;
}

PURE double manycl_cospi_d(double x) {
  MANYCL_HALVES_D(x, turns, r);
  double y = turns & 1 ? -__builtin_sin(r) : __builtin_cos(r);
  y = turns & 2 ? -y : y;
  return y == 0.0 ? 0.0 : y;
}

PURE double manycl_tanpi_d(double x) {
  MANYCL_HALVES_D(x, turns, r);
  double t = __builtin_tan(r);
  double y = r == 0.0 ? manycl_sign(0.0, turns & 2 ? -x : x) : turns & 1 ? -1.0 / t : t;
  return (r == 0.0) & (turns & 1) ? (turns & 2 ? -MANYCL_INF : MANYCL_INF) : y;
}

/* The C library's is off by more than two units here and there: one step of Newton's, away from the smallest numbers. */
PURE double manycl_cbrt_d(double x) {
  double scale = __builtin_fabs(x) < 0x1.0p-500 ? 0x1.0p600 : 1.0, back = scale == 1.0 ? 1.0 : 0x1.0p-200;
  double z = x * scale, y = __builtin_cbrt(z);
  double square = y * y, rest = __builtin_fma(y, y, -square);
  double more = (__builtin_fma(square, y, -z) + rest * y) / (3.0 * square);
  return (x == 0.0) | !(__builtin_fabs(x) < MANYCL_INF) ? x + x : (y - more) * back;
}

PURE double manycl_pown_d(double x, int n) { return __builtin_pow(x, (double)n); }

PURE double manycl_powr_d(double x, double y) {
  double power = __builtin_pow(__builtin_fabs(x), y);
  int ends = (x == 0.0) | (x == MANYCL_INF);
  power = (ends & (y == 0.0)) | ((x == 1.0) & (__builtin_fabs(y) == MANYCL_INF)) ? MANYCL_NAN : power;
  return (x >= 0.0) & (y == y) ? power : MANYCL_NAN;
}

/* 1 / n has an error, which counts many times where the logarithm is large: x^(a + b) = x^a (1 + b log x). */
PURE double manycl_rootn_d(double x, int n) {
  double y = 1.0 / (double)n, z = __builtin_fabs(x);
  double more = __builtin_fma(-(double)n, y, 1.0) / (double)n * __builtin_log(z);
  double power = __builtin_pow(z, y);
  power = (z > 0.0) & (z < MANYCL_INF) & (power < MANYCL_INF) ? power + power * more : power;
  power = n & 1 ? __builtin_copysign(power, x) : power;
  power = (x < 0.0) & !(n & 1) ? MANYCL_NAN : power;
  return n == 0 ? MANYCL_NAN : power;
}

/* The C library tells three bits of the quotient; those above are of a rest by 256 y, which has the same seven. */
PURE double manycl_remquo_d(double x, double y, int *count) {
  int low = 0;
  double a = __builtin_fabs(x), b = __builtin_fabs(y);
  double rest = manycl_remquo_libm(a, b, &low);
  int none = (a == MANYCL_INF) | (b == 0.0) | (x != x) | (y != y);
  double times = __builtin_rint(__builtin_fmod(a, b * 256.0) / b);
  int n = none ? 0 : (int)times;
  n += ((low - n + 4) & 7) - 4;
  n = none | (b == MANYCL_INF) ? 0 : n & 127;
  *count = manycl_negative(x) != manycl_negative(y) ? -n : n;
  return x != x ? x : rest == 0.0 ? __builtin_copysign(0.0, x) : manycl_negative(x) ? -rest : rest;
}
