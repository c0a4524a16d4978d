"""Programs that know only PyOpenCL, as processes of ``benchmarks/foreign.py`` and
``benchmarks/stages_figures/commands.py`` run them."""
