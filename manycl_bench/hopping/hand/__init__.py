"""Device-Hopping's benchmarks as kernels that migrate, written by hand with PyOpenCL: what Table 4 compares loops with.

They do what Section 3 of the paper describes: slices, only the data of a slice moved, in chunks, a slice that may be
repeated begun again on the faster device, results merged slice by slice. They run, so that their lines are not made up.

May import, of manycl_bench: hopping.
"""
