"""All that can be tuned of planning (``manycl/plan``) and of adaptation (``manycl/plan/adapt``, ``adaptive``).

Ours, where no paper is named; each stage names what measures its seconds, or judges its numbers. No clock limits a
plan: what planning may take is counted in work, and its seconds are foreseen from that.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlanningTuning:
    """Times are seconds, parts are parts of what is named. "A cell" is a node and a device."""

    # auto: who may be asked (``benchmarks/planning.py`` measures seconds of planning)
    share: float = 0.05
    """Of the predicted makespan that planning may take beside list scheduling."""
    most: float = 1.0
    """Seconds that it may take, where no option says otherwise."""
    repeated: float = 2.0
    """Seconds that finding out how kernels may be split may take at once for a graph that will run again and again."""
    looking: float = 0.25
    """Of the predicted makespans so far that it may take else."""
    beside: float = 1.0
    """Of the seconds that a graph's runs have taken so far: what may be found out beside them, by a thread."""
    coarse: float = 15e-6
    mkmd: float = 150e-6
    balance: float = 200e-6
    members: float = 50e-6
    """Of a cell: what ``mkmd_coarse``, ``mkmd``, ``balance``, and all members of the portfolio take."""
    placed: float = 9e-6
    """What the portfolio's search takes for a node that it places."""
    search: int = 4
    """Nodes that are placed for each of the graph's by a search that is worth it, at least."""
    hidden: float = 0.02
    """Of the predicted makespan of one device: where its transfers take no longer, it is not worth hiding them."""
    worth: float = 2.0
    """A kernel that takes less than so many handovers is not worth splitting."""

    # how launches may be split (``benchmarks/analysis.py`` measures the seconds)
    first_look: float = 0.5
    kernel_look: float = 0.1
    launch_look: float = 15e-3
    again_look: float = 50e-6
    """To find out how launches may be split: the first time, of a new kernel, of a kind of launch, and to look it up
    for a node."""
    step_look: float = 12e-6
    """Of a step of the abstract run of a kernel, which follows each kind of launch here and beside isl."""
    planned_cell: float = 1e-3
    """Of a cell: what planning, compiling and trying a plan that divides takes (``benchmarks/everyday.py``)."""
    looks: int = 4096
    """Kinds of launches that are remembered."""
    nearly_all: float = 0.9
    """Of a buffer: where one group touches that, no slice is worth the name (plan/splitting.py)."""

    # plans foreseen by the engine (``simulate_10000_s`` of ``benchmarks/planning.py``)
    foreseen: int = 8
    """Plans that are foreseen in one planning, at most."""
    foreseen_cells: int = 2000
    """Cells that are foreseen in one planning, of all plans together, at most."""
    foreseen_runs: int = 20
    foreseen_cell: float = 5e-4
    """Foreseeing is worth as long as so many runs take, and takes so long for a cell: 0.1 to 1 ms."""
    nearly: float = 1.15
    """Plans that are estimated to take so many times longer than another one are not tried."""

    # portfolio (``benchmarks/planning_saga.py``; ``manycl bench mkmd``)
    effort: int = 60_000
    """Nodes that the search may place, where no option says otherwise: half a second or less."""
    starts: int = 3
    """Members that the search begins with, the best ones."""
    without_gain: int = 1000
    """Steps of the search, one after another, that find nothing shorter, at most."""
    temperature: float = 0.005
    """A schedule that is longer by this part of the makespan is accepted one time in e."""
    critical: float = 0.7
    free: float = 0.6
    stretch: float = 0.2
    """How often nodes are taken out of what decides the makespan, and not out of all; a node may then go to any device;
    and a whole stretch of time may."""

    # balance (``manycl bench mkmd``)
    short: float = 0.02
    """Of the longest kernel's time: what is shorter may come first."""
    brief: float = 4.0
    """Handovers: where a kernel is shorter, it may not pay to divide it although that is predicted to end it
    earlier."""
    whole_effort: int = 6000
    """Nodes that the local search of ``portfolio`` may place, where no kernel may be split."""
    congested: float = 0.5
    """Of what the host's memory carries: where more is drawn of it, doing without the devices in it is tried, too."""
    gaps: int = 3
    """Gaps of a device, beside the time after all that it has been given, that a kernel may be split into."""

    # mkmd (``manycl bench mkmd``)
    steps: int = 100
    """A step offloads 1 % of the work-groups (MKMD, Section 5.4)."""
    most_rivals: int = 64
    """Kernels whose place is looked for before one is partitioned, at most."""

    # repara (``manycl bench repara``)
    rates: int = 16
    """Rates are sixteenths of the data (REPARA, Section 3.2)."""
    threshold: float = 0.1
    """Less than this part of the data is not worth moving to a device other than a CPU (REPARA, Section 2.1)."""
    choices: int = 12_000
    """Ways to run kernels, of all kernels together, that a search begins with at most. Fewer rates are REPARA's own
    means against a long search (Section 2.2)."""
    tree: int = 80_000
    """Nodes of the tree that are entered, where no option says otherwise."""
    remembered: int = 300_000
    """Partial plans that are remembered, at most."""
    widths: tuple[int, ...] = (1, 8, 32)
    """Nodes of a level that are kept, in one round after another."""
    beam: float = 0.25
    """Of the effort: for those rounds, at most."""
    weighing_rounds: int = 200
    weighings: int = 200_000
    """Of finding the weights of bounds: rounds, and how often a choice is weighed, at most."""

    # clustering
    look_ahead: int = 64
    """Components that are weighed at each question, of those that could start somewhere."""


PLANNING = PlanningTuning()


@dataclass(frozen=True, slots=True)
class AdaptationTuning:
    """Times are seconds, doubts standard deviations of logarithms, parts are parts of what is named. What they are good
    for is judged by ``manycl bench libsplit`` (docs/results/libsplit.md), ``benchmarks/adaptive.py``, and the tests of
    how far from the best division adapted ones are (tests/plan/test_narrow.py, tests/test_bench_libsplit_pairs.py)."""

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
    changes: int = 6
    patience: int = 128
    """After so many changes of shares they stay the best ones that were tried, until a device takes another time, or
    so many executions after the first of them."""
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
    damped: float = 0.25
    """Of a step of it that is foreseen to gain nothing, so small a part is tried, by halves."""

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


ADAPT = AdaptationTuning()
