/* Written by scripts/builtin_coefficients.py. */

/* (2^x - 1) / x for x from -0.5001 to 0.5001, to 2^-37.51 of it */
PURE double manycl_exp2m1_poly(double x) { return MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(0x1.63b2f07a28632p-20, x, 0x1.00c0fb54e0f1cp-16), x, 0x1.4308c708aee31p-13), x, 0x1.5d87757c238f2p-10), x, 0x1.3b2ab70ad7014p-7), x, 0x1.c6b08da71da60p-5), x, 0x1.ebfbdff82a727p-3), x, 0x1.62e42fef9cc3cp-1); }

/* (e^x - 1 - x) / x^2 for x from -0.3467 to 0.3467, to 2^-51.92 of it */
PURE double manycl_exp_d_poly(double x) { return MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(0x1.af38c67fbb53ep-26, x, 0x1.28919ccaf9211p-22), x, 0x1.71de0da24602dp-19), x, 0x1.a019b8f9792eep-16), x, 0x1.a01a01a7c73c0p-13), x, 0x1.6c16c17890eb4p-10), x, 0x1.11111111109afp-7), x, 0x1.5555555553d56p-5), x, 0x1.5555555555556p-3), x, 0x1.0000000000001p-1); }

/* (2^x - 1) / x for x from -0.5001 to 0.5001, to 2^-54.18 of it */
PURE double manycl_exp2_d_poly(double x) { return MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(0x1.c4a2aaa2b01d9p-36, x, 0x1.e9ec3d7558475p-32), x, 0x1.e4cf10d1896bep-28), x, 0x1.b524ebc089f66p-24), x, 0x1.62c02242bb0bdp-20), x, 0x1.ffcbfc6dad6adp-17), x, 0x1.430912f86b7d4p-13), x, 0x1.5d87fe78a3f8cp-10), x, 0x1.3b2ab6fba4e79p-7), x, 0x1.c6b08d704a0c6p-5), x, 0x1.ebfbdff82c58fp-3), x, 0x1.62e42fefa39efp-1); }

/* (2 atanh(s) / s - 2) / s^2, x = s^2 for x from 0.0 to 0.0295, to 2^-50.89 of it */
PURE double manycl_atanh_d_poly(double x) { return MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(0x1.2b6776a1bf0b9p-3, x, 0x1.39fd25d62ab23p-3), x, 0x1.7462be245eae3p-3), x, 0x1.c71c62c42db89p-3), x, 0x1.2492492e0b70cp-2), x, 0x1.99999999951f5p-2), x, 0x1.5555555555558p-1); }

/* 2 atanh(s) / s, x = s^2 for x from 0.0 to 0.0295, to 2^-51.99 of it */
PURE double manycl_atanh_poly(double x) { return MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(0x1.58e6ff96ddf93p-3, x, 0x1.7321bcb7ac669p-3), x, 0x1.c722d7a735612p-3), x, 0x1.249240a596e60p-2), x, 0x1.999999a4529fap-2), x, 0x1.5555555552ccap-1), x, 0x1.0000000000001p+1); }

/* sin(r) / r, x = r^2 for x from 0.0 to 0.618, to 2^-47.58 of it */
PURE double manycl_sin_poly(double x) { return MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(-0x1.a94e166a2d913p-26, x, 0x1.71d72ac9b119ap-19), x, -0x1.a019f8952b5cap-13), x, 0x1.1111110bd470cp-7), x, -0x1.5555555550e55p-3), x, 0x1.fffffffffffd9p-1); }

/* cos(r), x = r^2 for x from 0.0 to 0.618, to 2^-43.56 of it */
PURE double manycl_cos_poly(double x) { return MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(-0x1.23c3cd078ed2dp-22, x, 0x1.a00e8ba98377bp-16), x, -0x1.6c16b2bf08cb9p-10), x, 0x1.55555544560c6p-5), x, -0x1.ffffffffe3320p-2), x, 0x1.ffffffffffe06p-1); }

/* atan(t) / t, x = t^2 for x from 0.0 to 0.1717, to 2^-40.27 of it */
PURE double manycl_atan_poly(double x) { return MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(-0x1.3458e87453b94p-5, x, 0x1.1da0eee52eaf6p-4), x, -0x1.7053d2652a76cp-4), x, 0x1.c6cbf9fdd5f81p-4), x, -0x1.24908fcf30af2p-3), x, 0x1.9999903d2629dp-3), x, -0x1.5555554b9878ap-2), x, 0x1.fffffffffe548p-1); }

/* erf(a) / a, x = a^2 for x from 0.0 to 1.0, to 2^-40.01 of it */
PURE double manycl_erf_poly(double x) { return MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(0x1.1c41ab6eec487p-20, x, -0x1.d2b8522d6f7cbp-17), x, 0x1.f57e9cee106c1p-14), x, -0x1.bfe158a7be278p-11), x, 0x1.56588b32275a7p-8), x, -0x1.b82cbae7577a7p-6), x, 0x1.ce2f20a7415c6p-4), x, -0x1.812746ade3c08p-2), x, 0x1.20dd750428cb9p+0); }

/* erfc(a) exp(a^2), x = (a - 3) / (a + 3) for x from -0.51 to 0.61, to 2^-36.95 of it */
PURE double manycl_erfcx_poly(double x) { return MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(MANYCL_MAD(-0x1.6e83447ea9208p-18, x, -0x1.7882f65bfc9e6p-17), x, 0x1.061e610d60642p-14), x, 0x1.77437de32c8bcp-15), x, -0x1.38ce95788bc8fp-11), x, 0x1.731b39f8ada3bp-11), x, 0x1.17c742bf56850p-8), x, -0x1.8fa595ef7c9d4p-6), x, 0x1.258b14a20ed6fp-4), x, -0x1.336ffbe677302p-3), x, 0x1.f6ff203e49e2dp-3), x, -0x1.4e102b9d04be4p-2), x, 0x1.6e9827d22c5f9p-3); }

/* (e^x - 1 - x) / x^2 for x from -0.3467 to 0.3468, to 2^-22.82 of it */
PURE float manycl_exp_f_poly(float x) { return MANYCL_MADF(MANYCL_MADF(MANYCL_MADF(MANYCL_MADF(0x1.6d14940000000p-10f, x, 0x1.120ba40000000p-7f), x, 0x1.5555160000000p-5f), x, 0x1.5554dc0000000p-3f), x, 0x1.0000000000000p-1f); }

/* (2 atanh(s) / s - 2) / s^2, x = s^2 for x from 0.0 to 0.0295, to 2^-24.85 of it */
PURE float manycl_log_f_poly(float x) { return MANYCL_MADF(MANYCL_MADF(MANYCL_MADF(0x1.dddbaa0000000p-3f, x, 0x1.245c080000000p-2f), x, 0x1.9999ec0000000p-2f), x, 0x1.5555560000000p-1f); }

/* (sin(r) / r - 1) / r^2, x = r^2 for x from 1.0e-30 to 0.618, to 2^-24.95 of it */
PURE float manycl_sin_f_poly(float x) { return MANYCL_MADF(MANYCL_MADF(MANYCL_MADF(0x1.6dbc120000000p-19f, x, -0x1.a013a20000000p-13f), x, 0x1.11110e0000000p-7f), x, -0x1.5555560000000p-3f); }

/* (cos(r) - 1 + r^2 / 2) / r^4, x = r^2 for x from 1.0e-30 to 0.618, to 2^-23.97 of it */
PURE float manycl_cos_f_poly(float x) { return MANYCL_MADF(MANYCL_MADF(0x1.9bd6960000000p-16f, x, -0x1.6c12d00000000p-10f), x, 0x1.5555540000000p-5f); }
