/* Functions of the C library that a program knows by another signature. */

double manycl_lgamma_libm(double x, int *sign) __asm__("lgamma_r");

double manycl_remquo_libm(double x, double y, int *count) __asm__("remquo");
