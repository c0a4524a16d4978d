"""Programs that know only PyOpenCL, as processes of ``benchmarks/foreign.py`` and ``benchmarks/commands.py`` run
them."""
