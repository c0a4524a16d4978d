/* Rests of divisions: exact, in double, without a loop. */

/* r mod d for 0 <= r < 2^51 d: what a division says is off by one at most, and the rest has no more bits than d */
PURE double manycl_rest(double r, double d) {
  double rest = __builtin_fma(-__builtin_trunc(r / d), d, r);
  rest = rest < 0.0 ? rest + d : rest;
  return rest >= d ? rest - d : rest;
}

/* a mod b for floats a >= 0, b > 0, whose quotient is below 2^278, and for 256 b */
PURE double manycl_mod(double a, double b) {
  a = manycl_rest(a, b * 0x1.0p250);
  a = manycl_rest(a, b * 0x1.0p200);
  a = manycl_rest(a, b * 0x1.0p150);
  a = manycl_rest(a, b * 0x1.0p100);
  a = manycl_rest(a, b * 0x1.0p50);
  return manycl_rest(a, b);
}

PURE float manycl_fmod_f(float x, float y) {
  double a = manycl_abs((double)x), b = manycl_abs((double)y);
  double rest = manycl_mod(a, b);
  rest = (b == MANYCL_INF) & (a < b) ? a : rest;
  rest = (a == MANYCL_INF) | (b == 0.0) | (x != x) | (y != y) ? MANYCL_NAN : rest;
  return (float)manycl_sign(rest, (double)x);
}

/* x - n * y, n the integer next to x / y, even in the middle: {that, n mod 128 with its sign} */
#define MANYCL_NEXT(x, y, value, count)                                                            \
  double a_ = manycl_abs((double)(x)), b_ = manycl_abs((double)(y));                               \
  double most_ = manycl_mod(a_, b_ * 256.0);                                                       \
  most_ = (b_ == MANYCL_INF) & (a_ < b_) ? a_ : most_;                                             \
  double times_ = b_ == MANYCL_INF ? 0.0 : __builtin_rint(most_ / b_);                             \
  double value = b_ == MANYCL_INF ? most_ : __builtin_fma(-times_, b_, most_);                     \
  int none_ = (a_ == MANYCL_INF) | (b_ == 0.0) | ((x) != (x)) | ((y) != (y));                      \
  value = none_ ? MANYCL_NAN : value == 0.0 ? manycl_sign(0.0, (double)(x)) : (x) < 0.0f ? -value : value; \
  int count = none_ ? 0 : (int)times_ & 127;                                                       \
  count = manycl_negative((double)(x)) != manycl_negative((double)(y)) ? -count : count

PURE float manycl_remainder_f(float x, float y) {
  MANYCL_NEXT(x, y, value, count);
  return (float)value;
}
