"""How far off predicted times are: MKMD's Table 1 on this machine's CPU, and a whole run's makespan.

What is measured: manycl_bench/model_error.py, with launches of restricted sizes (`manycl bench models` draws such of
all sizes, too). MANYCL_DEVICES chooses the device (one; default: the whole CPU).
mean_error_percent: mean relative error over all kernels with 20 profiles; mean_error_40_percent: with 40.
noise_floor_percent: what nothing could predict.
simulated_vs_real_percent: the median of the errors' sizes over the turns. simulated_bias_percent: the median error with
its sign; a machine that others use makes runs longer than the medians that models keep.
real_scatter_percent: how far runs are from their median, on average: no prediction could be much better.
ranges_off_percent: the median error of predicted halves, quarters and eighths of some 60 kernels' launches, from the
whole launch alone; ranges_worst: the largest factor by which one of a launch of over a millisecond is off.
ranges_learned_off_percent, ranges_learned_worst: the same of halves and eighths where the quarters were measured, too.
ranges_noise_percent: how much longer than the shortest time of a range its others are, the median of all kernels.
"""

from __future__ import annotations

import os

import common

os.environ["MANYCL_MODELS"] = "0"  # neither learns from this machine's past nor adds to it

from manycl_bench import model_error


def main() -> None:
    args = common.parse(__doc__)
    device = os.environ.get("MANYCL_DEVICES") or model_error.DEVICE
    settings = model_error.Settings(turns=max(3, args.repeats), device=device, wide=False)
    if args.quick:
        settings = model_error.Settings(5, 1, 1, device, ("blackscholes",), wide=False, ranged=2)
    figures = model_error.run(settings, common.progress)
    common.report(args, {k: v for k, v in figures.items() if k != "samples"})
