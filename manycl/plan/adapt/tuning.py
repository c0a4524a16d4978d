"""All that can be tuned of adaptation (``manycl/plan/adapt``, ``adaptive``), in one value.

Ours, where no other source is named. What they are good for is judged by ``manycl bench libsplit``
(docs/results/libsplit.md), ``benchmarks/adaptive.py``, and the tests of how far from the best division adapted ones are
(tests/plan/test_narrow.py, tests/test_bench_libsplit_pairs.py).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    """Times are seconds, doubts standard deviations of logarithms, parts are parts of what is named."""

    # the workload model
    cells: int = 20
    """Parts of the groups, in each of which all cost the same."""
    length: float = 0.4
    """Part of the groups over which costs are alike."""
    counted: float = 0.12
    assumed: float = 0.25
    uncounted: float = 0.8
    """How far off the logarithm of a group's cost is (standard deviation): where its work was counted, where that
    rests on assumptions about branches, and where nothing is known."""
    alike: float = 0.12
    unknown: float = 2.0
    """How far off the ratio between the rates of devices is: alike, and where nothing is known."""
    level: float = 5.0
    """The same of all rates together: nothing is known."""
    bend: float = 0.15
    least_bend: float = -0.7
    most_bend: float = 2.0
    narrow: float = -0.5
    narrow_doubt: float = 0.4
    least_narrow: float = -0.9
    """The bend of devices that the launch does not fill: expected, how far off for all of them together, and at
    least."""
    sure: float = 2.0
    """How many standard deviations lower than found the time of all groups may be."""
    compared_doubt: float = 0.1
    """How far off that is after a device has run all groups and part of them."""
    drift: float = 0.04
    """Of the time of a device, per execution, where there is a drift."""
    noise: float = 0.012
    most_noise: float = 0.1
    """Of a measurement, at least and at most; it is estimated."""
    steady: float = 2.0
    """So many measurements of each device are taken to have scattered by ``noise``, beside those that were seen."""
    jitter: float = 6e-06
    """Seconds by which a measurement is off however short it is: launches begin and end so exactly."""
    cold: float = 0.05
    """How far off the first execution is, of a device that the launch does not fill, whose other times hardly
    differ."""
    fades: tuple[float, float] = (0.92, 0.55)
    least_fade: float = 0.05
    """What an execution counts beside the next one: while nothing changes, and while times drift."""
    drifting: float = 4.0
    """By how much (in logarithms of likelihood) a drift must explain better what was seen."""
    above: float = 1.5
    below: float = 6.0
    """How many times the noise a time may be longer or shorter until it counts half."""
    steps: int = 8
    """Of Gauss and Newton's method, at most."""

    # shares
    dead_band: float = 0.01
    """Part of the time that a change must be foreseen to gain."""
    narrow_band: float = 0.03
    """The same where a device is not filled and its times do not depend on its groups: what they change is noise."""
    warming: int = 1
    warm_band: float = 0.03
    """So many executions at first take longer, on one device more than on another; and ``dead_band`` after these."""
    window: int = 8
    window_alike: int = 3
    """Executions that are remembered; and how many of them, at most, with the same shares."""
    calm: float = 0.01
    news: float = 0.25
    """How far the devices' times may be off against each other, as a running mean to which an execution adds this
    part, until the workload is looked at again."""
    unforeseen: float = 0.025
    """By which part of the time shares that were tried must have been better than these, of two executions, to be
    taken again, whatever the workload says: it knows no steps, as where a device has few work-groups for each of its
    compute units."""
    strange: float = 0.04
    believed: int = 3
    """How far off a time is that is not believed (a part of it), unless that happens so many times in a row."""
    similar: float = 0.15
    """Divisions are about as short by what is foreseen if they differ by less than this part."""
    trust: float = 0.02
    """Broyden's method learns from steps that change a share by this part of it at least."""
    astray: float = 2.5
    turned: float = 0.1
    """It begins anew where a share would be so many times larger or smaller than F's, and does not learn where f
    changed along the step by less than this part of it."""

    # whether a family is divided
    worth: float = 0.05
    """A kernel is divided if that is foreseen to gain this part of its time on the best device."""
    seen: float = 0.01
    """The same where it ran both ways."""
    little: float = 0.02
    """The same where nothing more is learned from dividing it, and where it may be that a division gains nothing."""
    close: float = 0.15
    """Which of two times is shorter is not said by one execution if they differ by less than this part: first
    executions take longer, and so does any that was disturbed."""
    untried_sure: float = 2.0
    """So many standard deviations from what is foreseen a device may be that has not been tried."""
    early: int = 2
    """After so many executions of a family on one device no others are tried that are foreseen to be slower."""
    moving: float = 40.0
    """A family is not run whole to see what that takes if its data take longer than so many executions to get
    there."""
    dear: float = 1.5
    """Nor one whose loops run as often as data decide, if that is foreseen to take so many times as long as
    divided."""
    brief: float = 2e-06
    most_waiting: float = 4.0
    """Seconds of waiting that say nothing of how long it is in truth; and how many times as long as foreseen, at
    most."""
    waiting_news: float = 0.5
    """What an execution in which devices waited longer than before counts."""
    tried: float = 10.0
    """A kernel whose estimate is longer than this many handovers is divided once whatever the estimates say of its
    gain; so is one whose loops run as often as data decide."""

    # families
    border: float = 0.1
    """Part of a kernel's groups by which the ends of two matched kernels may lie apart (a stencil's border)."""

    # what moves
    large: int = 1 << 24
    """Bytes whose time says what one of many costs, without the latency."""
    samples: int = 2
    sample_step: float = 0.05
    """In so many equal parts of its groups it is asked what ranges of a kernel read; and by which part of them a
    range is made longer to see what it reads then."""

    # the policy
    most_chunks: int = 2048
    """With more work-groups than this a device gets several at least: what one more or less gains is nothing."""
    sweeps: int = 3
    """How often families are judged in turns, each by what the others do, at most."""
    watched: int = 16
    """Of so many executions at first, and then of every such, it is looked at how long devices waited for data."""
    remembered: int = 16
    """Graphs whose measurements can be told to the policy: the last ones it has planned."""


TUNING = Tuning()
