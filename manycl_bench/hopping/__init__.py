"""Device-Hopping's experiments (P. Metzger, V. Seeker, C. Fensch and M. Cole, "Device-Hopping: Transparent Mid-Kernel
Runtime Switching for Heterogeneous Systems", TACO 2021)."""
