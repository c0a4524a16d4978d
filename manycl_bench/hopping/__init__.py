"""Device-Hopping's experiments (P. Metzger, V. Seeker, C. Fensch and M. Cole, "Device-Hopping: Transparent Mid-Kernel
Runtime Switching for Heterogeneous Systems", TACO 2021).

May import, of manycl_bench: its modules, hopping.hand."""
