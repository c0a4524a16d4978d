"""The command graph: what devices are to do, which bytes move, and what each command waits for. Pure.

May import, of run: data, lowering, recovery, tiling."""
