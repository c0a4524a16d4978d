"""``optimal``: the shortest schedule of whole kernels by constraint programming (OR-Tools' CP-SAT).

May import, of manycl_bench: nothing."""
