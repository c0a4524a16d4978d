"""The table of operations on arrays element by element: NumPy's name of each, and its expression in OpenCL C for each
kind of type (``b i u f``, as of ``dtype.kind``) that has one. Operands are a, b, …, of type T; U is as wide, and what
wraps around in C; ``name@`` is a function of the texts below."""

from __future__ import annotations

_LINES = """
add; f a + b; iu (U)a + (U)b; b a | b
subtract; f a - b; iu (U)a - (U)b
multiply; f a * b; iu (U)a * (U)b; b a & b
divide; f a / b
bitwise_and; biu a & b
bitwise_or; biu a | b
bitwise_xor; biu a ^ b
floor_divide; iuf floor_divide@(a, b)
remainder; iuf remainder@(a, b)
power; iuf power@(a, b)
float_power; f pow(a, b)
left_shift; iu left_shift@(a, b)
right_shift; iu right_shift@(a, b)
gcd; iu gcd@(a, b)
lcm; iu lcm@(a, b)
negative; f -a; iu 0 - (U)a
positive; iuf a
absolute; f fabs(a); i a < 0 ? 0 - (U)a : (U)a; bu a
fabs; f fabs(a)
invert; b !a; iu ~a
convert; biuf a
conjugate; iuf a
square; f a * a; iu (U)a * (U)a
reciprocal; f 1 / a
sign; f a > 0 ? 1 : a < 0 ? -1 : a == 0 ? 0 : a; i (a > 0) - (a < 0); u a > 0
maximum; f a >= b || a != a ? a : b; iu a > b ? a : b; b a | b
minimum; f a <= b || a != a ? a : b; iu a < b ? a : b; b a & b
fmax; f a >= b || b != b ? a : b; iu a > b ? a : b; b a | b
fmin; f a <= b || b != b ? a : b; iu a < b ? a : b; b a & b
fmod; f fmod(a, b); i b == 0 || b == -1 ? 0 : a % b; u b == 0 ? 0 : a % b
where; biuf a ? b : c
logical_not; biuf a == 0
logical_and; biuf a != 0 && b != 0
logical_or; biuf a != 0 || b != 0
logical_xor; biuf (a != 0) != (b != 0)
isnan; f a != a; biu 0
isinf; f a - a != a - a && a == a; biu 0
isfinite; f a - a == a - a; biu 1
signbit; f signbit(a) != 0
deg2rad; f a * (T)0.017453292519943295
rad2deg; f a * (T)57.295779513082323
heaviside; f a < 0 ? 0 : a == 0 ? b : a > 0 ? 1 : a
logaddexp; f logaddexp@(a, b)
logaddexp2; f logaddexp2@(a, b)
bitwise_count; u popcount(a); i popcount(a < 0 ? 0 - (U)a : (U)a)
mul_hi; u mul_hi(a, b)
philox; u philox@(a, b, c)
"""
_CALLED = """arccos=acos arccosh=acosh arcsin=asin arcsinh=asinh arctan=atan arctanh=atanh cbrt ceil cos cosh exp exp2
expm1 floor log log10 log1p log2 rint sin sinh sqrt tan tanh trunc arctan2=atan2 copysign hypot nextafter"""
"""OpenCL's functions of floating-point numbers, with NumPy's names where these are others."""
_TWO = ("arctan2", "copysign", "hypot", "nextafter")

TABLE: dict[str, dict[str, str]] = {}
for _line in _LINES.strip().splitlines():
    _name, *_forms = _line.split("; ")
    TABLE[_name] = {kind: form.partition(" ")[2] for form in _forms for kind in form.partition(" ")[0]}
for _word in _CALLED.split():
    _name, _, _called = _word.partition("=")
    TABLE[_name] = {"f": f"{_called or _name}({'a, b' if _name in _TWO else 'a'})"}
for _name in ("floor", "ceil", "trunc", "rint"):  # (of integers: themselves)
    TABLE[_name] |= dict.fromkeys("biu", "a")

# For a type T of integers, and U as wide and unsigned (at least 32 bits, which C computes in).
SIGNED = """
T floor_divide_T(T a, T b) {
  if (b == 0) return 0;
  if (b == -1) return (T)(0 - (U)a);
  T q = (T)(a / b);
  return (T)(a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q);
}
T remainder_T(T a, T b) {
  if (b == 0 || b == -1) return 0;
  T r = (T)(a % b);
  return (T)(r != 0 && (r < 0) != (b < 0) ? r + b : r);
}
T power_T(T a, T b) {
  if (b < 0) return (T)(a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0);
  U power = 1;
  U square = (U)a;
  for (U left = (U)b; left != 0; left >>= 1) {
    if (left & 1) power *= square;
    square *= square;
  }
  return (T)power;
}
T left_shift_T(T a, T b) { return b >= 0 && b < BITS ? (T)((U)a << (U)b) : 0; }
T right_shift_T(T a, T b) { return (T)(b >= 0 && b < BITS ? a >> b : a < 0 ? -1 : 0); }
T gcd_T(T a, T b) {
  U x = a < 0 ? 0 - (U)a : (U)a, y = b < 0 ? 0 - (U)b : (U)b;
  while (y != 0) { U r = x % y; x = y; y = r; }
  return (T)x;
}
T lcm_T(T a, T b) {
  U x = a < 0 ? 0 - (U)a : (U)a, y = b < 0 ? 0 - (U)b : (U)b, u = x, v = y;
  while (v != 0) { U r = u % v; u = v; v = r; }
  return u == 0 ? 0 : (T)(x / u * y);
}
"""
UNSIGNED = """
T floor_divide_T(T a, T b) { return b == 0 ? 0 : (T)(a / b); }
T remainder_T(T a, T b) { return b == 0 ? 0 : (T)(a % b); }
T power_T(T a, T b) {
  U power = 1;
  U square = a;
  for (T left = b; left != 0; left >>= 1) {
    if (left & 1) power *= square;
    square *= square;
  }
  return (T)power;
}
T left_shift_T(T a, T b) { return b < BITS ? (T)((U)a << (U)b) : 0; }
T right_shift_T(T a, T b) { return b < BITS ? (T)(a >> b) : 0; }
T gcd_T(T a, T b) {
  while (b != 0) { T r = (T)(a % b); a = b; b = r; }
  return a;
}
T lcm_T(T a, T b) {
  T u = a, v = b;
  while (v != 0) { T r = (T)(u % v); u = v; v = r; }
  return u == 0 ? 0 : (T)((U)(a / u) * b);
}
T philox_T(T n, T seed, T second) {
  ulong a = n / 4 + 1, b = 0, c = 0, d = 0;
  for (int round = 0; round < 10; round++) {
    ulong e = mul_hi(0xD2E7470EE14C6C93UL, a), f = 0xD2E7470EE14C6C93UL * a;
    ulong g = mul_hi(0xCA5A826395121157UL, c), h = 0xCA5A826395121157UL * c;
    a = g ^ b ^ seed, b = h, c = e ^ d ^ second, d = f;
    seed += 0x9E3779B97F4A7C15UL, second += 0xBB67AE8584CAA73BUL;
  }
  switch (n % 4) { case 0: return a; case 1: return b; case 2: return c; default: return d; }
}
"""
# Python's: what is left has the sign of the divisor, and the quotient is what NumPy's npy_divmod makes of that.
FLOATING = """
T remainder_T(T a, T b) {
  T r = fmod(a, b);
  if (b == 0) return r;
  if (r == 0) return copysign((T)0, b);
  return (b < 0) != (r < 0) ? r + b : r;
}
T floor_divide_T(T a, T b) {
  if (b == 0) return a / b;
  T r = fmod(a, b);
  T q = (a - r) / b;
  if (r != 0 && (b < 0) != (r < 0)) q -= 1;
  if (q == 0) return copysign((T)0, a / b);
  T down = floor(q);
  return q - down > (T)0.5 ? down + 1 : down;
}
T power_T(T a, T b) { return pow(a, b); }
T logaddexp_T(T a, T b) {
  T d = a - b;
  return a == b ? a + (T)0.69314718055994530942 : d > 0 ? a + log1p(exp(-d)) : d <= 0 ? b + log1p(exp(d)) : d;
}
T logaddexp2_T(T a, T b) {
  T d = a - b;
  T e = (T)1.44269504088896340736;
  return a == b ? a + 1 : d > 0 ? a + e * log1p(exp2(-d)) : d <= 0 ? b + e * log1p(exp2(d)) : d;
}
"""
