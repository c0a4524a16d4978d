/* Functions of float by way of double: sine and the like. */

/* 2 / pi = 0.1010001011111001... in binary, 64 bits each */
#define MANYCL_2_PI_0 0xa2f9836e4e441529UL

#define MANYCL_2_PI_1 0xfc2757d1f534ddc0UL

#define MANYCL_2_PI_2 0xdb6295993c439041UL

#define MANYCL_2_PI_3 0xfe5163abdebbc561UL

/* 64 bits from bit s on of a number of which a has the first 64 and b the next, 0 <= s < 64 */
PURE unsigned long manycl_funnel(unsigned long a, unsigned long b, unsigned long s) {
  return (a << s) | ((b >> 1) >> (63 - s));
}

/* x * 2 / pi for a large x (at least 2^25), by integers (M. Payne, R. Hanek: Radian reduction for trigonometric functions,
   1983): x is an integer of 24 bits times 2^e; bits of 2 / pi that give multiples of 4 quarter turns are left out, and so
   are those below 2^-64. {quarter turns, the rest as a part of one between -1/2 and 1/2} */
#define MANYCL_LARGE_TURNS(x, turns, rest)                                                                    \
  unsigned int bits_ = MANYCL_BITSF(x);                                                                       \
  unsigned long significand_ = (bits_ & 0x7fffffu) | 0x800000u;                                               \
  unsigned long first_ = ((bits_ >> 23) & 255u) - 152u; /* e - 2: bits before it are whole turns */           \
  first_ = first_ > 127 ? 0 : first_; /* of smaller x, and of no use */                                       \
  int later_ = first_ >= 64;                                                                                  \
  unsigned long a_ = later_ ? MANYCL_2_PI_1 : MANYCL_2_PI_0, b_ = later_ ? MANYCL_2_PI_2 : MANYCL_2_PI_1;     \
  unsigned long c_ = later_ ? MANYCL_2_PI_3 : MANYCL_2_PI_2;                                                  \
  unsigned long high_ = manycl_funnel(a_, b_, first_ & 63), low_ = manycl_funnel(b_, c_, first_ & 63);        \
  unsigned long product_ = significand_ * (high_ & 0xffffffffUL) + ((significand_ * (high_ >> 32)) << 32);    \
  product_ += (significand_ * (low_ >> 32)) >> 32;                                                            \
  unsigned long turns = (product_ + (1UL << 61)) >> 62;                                                       \
  double rest = (double)(long)(product_ - (turns << 62)) * 0x1.0p-62

/* From where on angles are large: before that, two parts of pi/2 are taken away, of 106 bits together. */
#if defined(__FMA__) || defined(__aarch64__)
#define MANYCL_FAR 0x57800000u /* 2^48: n pi/2 is not rounded */
#else
#define MANYCL_FAR 0x4c000000u /* 2^25 */
#endif

/* x less a number of quarter turns, between -pi/4 and pi/4; their number in the lowest bits of turns. NaN of infinity. */
#define MANYCL_TURNED(x, turns, rest)                                                                         \
  MANYCL_LARGE_TURNS(x, large_, part_);                                                                       \
  double moved_ = MANYCL_MAD((double)(x), 0x1.45f306dc9c883p-1, MANYCL_ROUNDING);                             \
  double count_ = moved_ - MANYCL_ROUNDING;                                                                   \
  int far_ = (bits_ & 0x7fffffffu) >= MANYCL_FAR;                                                             \
  unsigned long turns = far_ ? ((int)bits_ < 0 ? -large_ : large_) : MANYCL_BITS(moved_);                     \
  double rest = far_ ? ((int)bits_ < 0 ? -part_ : part_) * 0x1.921fb54442d18p+0 : MANYCL_LESS(x, count_);     \
  rest = (bits_ & 0x7f800000u) == 0x7f800000u ? MANYCL_NAN : rest

/* x - n * pi/2 for |x| below MANYCL_FAR */
#if defined(__FMA__) || defined(__aarch64__)
#define MANYCL_LESS(x, n) \
  __builtin_fma(-(n), 0x1.1a62633145c07p-54, __builtin_fma(-(n), 0x1.921fb54442d18p+0, (double)(x)))
#else
#define MANYCL_LESS(x, n) \
  ((((double)(x) - (n) * 0x1.921fb5p+0) - (n) * 0x1.110b46p-26) - (n) * 0x1.1a62633145c07p-54)
#endif

PURE double manycl_sin_near(double r) { return r * manycl_sin_poly(r * r); }

PURE double manycl_cos_near(double r) { return manycl_cos_poly(r * r); }

PURE double manycl_turn_sin(double r, unsigned long turns) {
  double y = turns & 1 ? manycl_cos_near(r) : manycl_sin_near(r);
  return turns & 2 ? -y : y;
}

PURE double manycl_turn_tan(double r, unsigned long turns) {
  double s = manycl_sin_near(r), c = manycl_cos_near(r);
  return (turns & 1 ? -c : s) / (turns & 1 ? s : c);
}

PURE float manycl_sin_f(float x) {
  MANYCL_TURNED(x, turns, r);
  return x == 0.0f ? x : manycl_turn_sin_f((float)r, (unsigned int)turns);
}

PURE float manycl_cos_f(float x) {
  MANYCL_TURNED(x, turns, r);
  return manycl_turn_sin_f((float)r, (unsigned int)turns + 1);
}

PURE float manycl_tan_f(float x) {
  MANYCL_TURNED(x, turns, r);
  return x == 0.0f ? x : (float)manycl_turn_tan(r, turns);
}

/* Likewise, where it is known that x is not large, unless it is infinite or NaN. */
#if defined(__FMA__) || defined(__aarch64__)
#define MANYCL_NEAR_TURNED(x, turns, rest)                                                \
  double moved_ = MANYCL_MAD((double)(x), 0x1.45f306dc9c883p-1, MANYCL_ROUNDING);         \
  unsigned long turns = MANYCL_BITS(moved_);                                              \
  double rest = MANYCL_LESS(x, moved_ - MANYCL_ROUNDING)
#else
#define MANYCL_NEAR_TURNED(x, turns, rest) MANYCL_TURNED(x, turns, rest)
#endif

PURE float manycl_near_sin(float x) {
  MANYCL_NEAR_TURNED(x, turns, r);
  return x == 0.0f ? x : manycl_turn_sin_f((float)r, (unsigned int)turns);
}

PURE float manycl_near_cos(float x) {
  MANYCL_NEAR_TURNED(x, turns, r);
  return manycl_turn_sin_f((float)r, (unsigned int)turns + 1);
}

/* Without the integers of huge numbers: |x| < 2^50 with as small an error, others anywhere between -1 and 1. */
#define MANYCL_NATIVE_TURNED(x, turns, rest)                                              \
  double moved_ = MANYCL_MAD((double)(x), 0x1.45f306dc9c883p-1, MANYCL_ROUNDING);         \
  double count_ = moved_ - MANYCL_ROUNDING;                                               \
  unsigned long turns = MANYCL_BITS(moved_);                                              \
  double rest = manycl_between(MANYCL_LESS(x, count_), -1.0, 1.0)

PURE float manycl_native_sin(float x) {
  MANYCL_NATIVE_TURNED(x, turns, r);
  return manycl_turn_sin_f((float)r, (unsigned int)turns);
}

PURE float manycl_native_cos(float x) {
  MANYCL_NATIVE_TURNED(x, turns, r);
  return manycl_turn_sin_f((float)r, (unsigned int)turns + 1);
}

PURE float manycl_native_tan(float x) {
  MANYCL_NATIVE_TURNED(x, turns, r);
  return (float)manycl_turn_tan(r, turns);
}

/* x in half turns: the same of whole numbers of quarter turns; nothing is rounded on the way. */
#define MANYCL_HALVES(x, turns, rest)                                                     \
  double twice_ = 2.0 * ((double)(x) - 2.0 * manycl_round(0.5 * (double)(x)));            \
  double moved_ = twice_ + MANYCL_ROUNDING;                                               \
  unsigned long turns = MANYCL_BITS(moved_);                                              \
  double rest = (twice_ - (moved_ - MANYCL_ROUNDING)) * 0x1.921fb54442d18p+0

PURE float manycl_sinpi_f(float x) {
  MANYCL_HALVES(x, turns, r);
  double y = manycl_turn_sin(r, turns);
  return (float)(y == 0.0 ? manycl_sign(0.0, (double)x) : y);
}

PURE float manycl_cospi_f(float x) {
  MANYCL_HALVES(x, turns, r);
  double y = manycl_turn_sin(r, turns + 1);
  return (float)(y == 0.0 ? 0.0 : y);
}

/* Of even integers 0 with x's sign, of odd ones with the other; between them infinite, of n + 1/2 positive for an even n */
PURE float manycl_tanpi_f(float x) {
  MANYCL_HALVES(x, turns, r);
  double y = manycl_turn_tan(r, turns);
  y = r == 0.0 ? manycl_sign(0.0, turns & 2 ? -(double)x : (double)x) : y;
  return (float)((r == 0.0) & (turns & 1) ? (turns & 2 ? -MANYCL_INF : MANYCL_INF) : y);
}

/* The angle of a point (b, a) of the first quadrant, as a sum: {of it whole eighths of turns, the rest}. */
#define MANYCL_ANGLE(a, b, base, rest)                                                                          \
  int third_ = (a) > 0x1.3504f333f9de6p+1 * (b), second_ = !third_ & ((a) > 0x1.a827999fcef32p-2 * (b));        \
  double over_ = third_ ? -(b) : second_ ? (a) - (b) : (a);                                                     \
  double under_ = third_ ? (a) : second_ ? (a) + (b) : (b);                                                     \
  double base = third_ ? 2.0 : second_ ? 1.0 : 0.0;                                                             \
  double tangent_ = over_ / under_;                                                                             \
  double rest = tangent_ * manycl_atan_poly(tangent_ * tangent_)

#define MANYCL_PI_4 0x1.921fb54442d18p-1

#define MANYCL_1_PI 0x1.45f306dc9c883p-2

PURE double manycl_angle(double a, double b) {
  MANYCL_ANGLE(a, b, base, rest);
  return MANYCL_MAD(base, MANYCL_PI_4, rest);
}

PURE double manycl_angle_pi(double a, double b) {
  MANYCL_ANGLE(a, b, base, rest);
  return MANYCL_MAD(base, 0.25, rest * MANYCL_1_PI);
}

PURE float manycl_atan_f(float x) { return (float)manycl_sign(manycl_angle(manycl_abs((double)x), 1.0), (double)x); }

PURE float manycl_atanpi_f(float x) {
  return (float)manycl_sign(manycl_angle_pi(manycl_abs((double)x), 1.0), (double)x);
}

PURE double manycl_leg(double x) { return __builtin_sqrt((1.0 - x) * (1.0 + x)); }

PURE float manycl_asin_f(float x) {
  double a = manycl_abs((double)x);
  return (float)manycl_sign(manycl_angle(a, manycl_leg(a)), (double)x);
}

PURE float manycl_asinpi_f(float x) {
  double a = manycl_abs((double)x);
  return (float)manycl_sign(manycl_angle_pi(a, manycl_leg(a)), (double)x);
}

PURE float manycl_acos_f(float x) {
  double a = manycl_abs((double)x), y = manycl_angle(manycl_leg(a), a);
  return (float)(x < 0.0f ? 4.0 * MANYCL_PI_4 - y : y);
}

PURE float manycl_acospi_f(float x) {
  double a = manycl_abs((double)x), y = manycl_angle_pi(manycl_leg(a), a);
  return (float)(x < 0.0f ? 1.0 - y : y);
}

/* Points whose coordinates are both 0, or both infinite, have angles, too (C99, F.9.1.4). */
#define MANYCL_POINT(y, x, a, b)                                                      \
  double a = manycl_abs((double)(y)), b = manycl_abs((double)(x));                    \
  int far_ = (a == MANYCL_INF) & (b == MANYCL_INF);                                   \
  a = far_ ? 1.0 : a;                                                                 \
  b = far_ | ((a == 0.0) & (b == 0.0)) ? 1.0 : b

PURE float manycl_atan2_f(float y, float x) {
  MANYCL_POINT(y, x, a, b);
  double angle = manycl_angle(a, b);
  angle = manycl_negative((double)x) ? 4.0 * MANYCL_PI_4 - angle : angle;
  return (float)((x != x) | (y != y) ? MANYCL_NAN : manycl_sign(angle, (double)y));
}

PURE float manycl_atan2pi_f(float y, float x) {
  MANYCL_POINT(y, x, a, b);
  double angle = manycl_angle_pi(a, b);
  angle = manycl_negative((double)x) ? 1.0 - angle : angle;
  return (float)((x != x) | (y != y) ? MANYCL_NAN : manycl_sign(angle, (double)y));
}
