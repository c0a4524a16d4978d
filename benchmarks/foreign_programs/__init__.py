"""Programs that know only PyOpenCL, as processes of ``benchmarks/foreign.py`` and of ``devices.py commands`` run
them."""
