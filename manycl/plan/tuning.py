"""Tuning of planning (``manycl/plan``) and of adaptation (``manycl/plan/adapt``, ``adaptive``): all its constants. The
values are our own, where no paper is named; each stage names what measures its seconds, or judges its numbers. No clock
limits a plan: the effort of planning is counted in work, and its seconds are predicted from that."""

from __future__ import annotations

from typing import NamedTuple


class PlanningTuning(NamedTuple):
    """Constants of planning. Times are seconds; a part is a fraction of a quantity. "A cell" is a node and a device."""

    # auto: the policies that it may use (``benchmarks/planning.py`` measures seconds of planning)
    share: float = 0.05
    """The part of the predicted makespan that planning may take beside list scheduling."""
    most: float = 1.0
    """Seconds that planning may take, where no option says otherwise. A graph that runs once, and takes less by a rough
    guess, is planned in no other way: counting operations takes a tenth of that."""
    repeated: float = 2.0
    """Seconds that analysing how kernels may be split may take at once for a graph that will run again and again."""
    gain: float = 0.1
    """The part of the makespan of whole kernels that dividing has to gain by prediction, in a graph that runs again."""
    gained: float = 0.5e-3
    """The seconds that it has to gain."""
    near: float = 1.5
    """Times as long as the fastest plan that a rival may be predicted to take, and that another plan is let run."""
    looking: float = 0.25
    """The part of the predicted makespans so far that the analysis may take for other graphs."""
    coarse: float = 15e-6
    """Seconds of ``mkmd_coarse`` for a cell."""
    mkmd: float = 150e-6
    """Seconds of ``mkmd`` for a cell."""
    balance: float = 200e-6
    """Seconds of ``balance`` for a cell."""
    members: float = 50e-6
    """Seconds of all members of the portfolio for a cell."""
    placed: float = 9e-6
    """Seconds of the portfolio's search for a node that it places."""
    search: int = 4
    """The least nodes that a search which is worth it places, for each node of the graph."""
    hidden: float = 0.02
    """The part of the predicted makespan of one device that its transfers must exceed for hiding them to pay."""
    worth: float = 2.0
    """Handovers: a kernel that takes less is not worth splitting, nor are ranges worth cutting for less. Dividing one
    that takes less than twice as many may not pay, although that is predicted to end it earlier."""

    # analysing how launches may be split (``benchmarks/stages.py analysis`` measures the seconds)
    first_look: float = 0.15
    """Seconds of the first analysis of a process."""
    kernel_look: float = 0.02
    """Seconds of analysing a new kernel."""
    launch_look: float = 6e-3
    """Seconds of analysing a new kind of launch."""
    evaluated_look: float = 2e-3
    """The same, where it is known of launches that differ in scalars only."""
    first_values: int = 24
    """The launches that differ in scalars only which are analysed, however short they are, before a graph runs once: as
    many as an array has strides that double."""
    again_look: float = 50e-6
    """Seconds of looking up the analysis for a node."""
    step_look: float = 12e-6
    """Seconds of a step of a kernel's abstract run, which each kind of launch repeats here, beside isl's work."""
    planned_cell: float = 5e-4
    """Seconds of planning, compiling and trying a plan that divides, for a cell (``benchmarks/everyday.py``); and of
    foreseeing one, which takes 0.1 to 1 ms."""
    nearly_all: float = 0.9
    """The part of a buffer from which a group's linear region (plan/splitting.py), or a window, counts as all of it."""

    # plans foreseen by the engine (``simulate_10000_s`` of ``benchmarks/planning.py``)
    foreseen: int = 8
    """The most plans that are foreseen in one planning."""
    foreseen_runs: int = 20
    """Runs whose seconds foreseeing may take, as far as planning may."""
    nearly: float = 1.15
    """Times as long as the shortest estimate that a plan may take to be tried."""

    # portfolio (``benchmarks/stages.py planning_saga``; ``manycl bench mkmd``)
    effort: int = 60_000
    """Nodes that the search may place, where no option says otherwise: half a second or less."""
    starts: int = 3
    """Members that the search begins with: the best ones."""
    without_gain: int = 1000
    """The most steps of the search, one after another, that find nothing shorter."""
    temperature: float = 0.005
    """The part of the makespan by which a schedule is longer that is accepted one time in e."""
    critical: float = 0.7
    """The probability that nodes are taken out of the critical path, and not out of all."""
    free: float = 0.6
    """The probability that a node that was taken out may run on any device."""
    period: float = 0.2
    """The probability that a whole period of time may run on any device."""

    # balance (``manycl bench mkmd``)
    short: float = 0.02
    """The part of the longest kernel's time below which a kernel may come first."""
    congested: float = 0.5
    """The part of the host's memory bandwidth above which plans without the devices in that memory are tried, too."""
    gaps: int = 3
    """Gaps of a device that a kernel may be split into, beside the time after the device's last kernel."""

    # mkmd (``manycl bench mkmd``)
    steps: int = 100
    """Steps for all work-groups: a step offloads 1 % of them (MKMD, Section 5.4)."""
    candidates: int = 64
    """The most kernels that are placed on trial before one is partitioned; for ``clustering``, components that are
    weighed for each choice, of those that could start somewhere."""

    # repara (``manycl bench repara``)
    rates: int = 16
    """Rates are sixteenths of the data (REPARA, Section 3.2)."""
    threshold: float = 0.1
    """The part of the data below which moving it to a device other than a CPU does not pay (REPARA, Section 2.1)."""
    choices: int = 12_000
    """The most ways to run kernels, of all kernels together, that a search begins with. Fewer rates are REPARA's own
    means against a long search (Section 2.2)."""
    tree: int = 80_000
    """Nodes of the tree that are entered, where no option says otherwise."""
    widths: tuple[int, ...] = (1, 8, 32)
    """Nodes of a level that are kept, in one round after another."""
    mixes: tuple[float, ...] = (0.1, 0.2, 0.4, 1.0)
    """Weights of paths beside work in its bounds, up to paths alone."""
    beam: float = 0.25
    """The part of the effort for those rounds, at most."""
    weighing_rounds: int = 200
    """The most rounds of finding the weights of bounds."""
    weighings: int = 200_000
    """The most choices that are weighed in these rounds."""


PLANNING = PlanningTuning()


class AdaptationTuning(NamedTuple):
    """Constants of adaptation. Times are seconds, doubts standard deviations of logarithms; a part is a fraction of the
    quantity named. They are judged by ``manycl bench libsplit`` (docs/results/libsplit.md), ``benchmarks/stages.py
    adaptive``, and the tests of how far from the best division adapted ones are (tests/plan/adapt/test_narrow.py,
    tests/bench/libsplit/test_two_cores_with_noise.py)."""

    # the workload model
    cells: int = 20
    """Parts of the groups; within each, all groups cost the same. A range is made longer by one of them to compute how
    much more it reads."""
    length: float = 0.4
    """The part of the groups over which costs are alike."""
    counted: float = 0.12
    """Doubt of a group's cost, where its work was counted; and of the ratio between rates of like devices."""
    assumed: float = 0.25
    """Doubt of a group's cost, where the count assumes how often branches are taken."""
    uncounted: float = 0.8
    """Doubt of a group's cost, where nothing is known of it."""
    unknown: float = 2.0
    """Doubt of the ratio between the rates of devices of which nothing is known."""
    bend: float = 0.15
    """Doubt of the bend of a device's time as a function of its groups, also where a device that the launch does not
    fill has run all of them and part of them."""
    least_bend: float = -0.9
    """The least bend."""
    narrow: float = -0.5
    """The expected bend of devices that the launch does not fill, halfway between taking as long for less and taking as
    long for each; as a doubt, that of all these devices together."""
    sure: float = 2.0
    """Standard deviations by which the time of all groups may be lower than found, and an untried device better."""
    noise: float = 0.012
    """The least noise of a measurement, as a part of it; the noise is estimated."""
    steady: float = 2.0
    """Measurements of each device that are taken to have scattered by ``noise``, beside the real ones."""
    jitter: float = 6e-06
    """Seconds by which a measurement is off however short it is: the exactness of launches' begins and ends."""
    fades: tuple[float, float] = (0.92, 0.55)
    """The weight of an execution beside the next one: while nothing changes, and while times drift."""
    least_fade: float = 0.05
    """The least such weight."""
    drifting: float = 4.0
    """The least gain in the logarithm of likelihood by which a drift must explain the measurements better."""
    above: float = 1.5
    """Times the noise by which a time may be longer until it counts half."""
    below: float = 6.0
    """Times the noise by which a time may be shorter until it counts half."""
    steps: int = 8
    """The most steps of Gauss and Newton's method."""

    # shares
    dead_band: float = 0.01
    """The part of the time that a change must be predicted to gain; a smaller difference says nothing."""
    noisy_band: float = 0.025
    """The same where what changes may be noise: after the first execution; where a device is not filled and its times
    do not depend on its groups; for shares that were tried and were better than the present ones in two executions,
    whatever the workload says (it has no steps, as they arise where a device runs several groups at once); and
    where nothing more is learned from dividing a kernel, or a division may gain nothing."""
    window: int = 8
    """The most executions that are remembered, and changes of shares after which the best shares tried stay, until a
    device takes another time."""
    news: float = 0.25
    """The weight of an execution in the devices' running mean errors, and of one with longer waits."""
    patience: int = 128
    """Executions after the first of these changes after which shares may change again."""
    strange: float = 0.04
    """The part by which a time is off that is not believed, and by which a device's time drifts in an execution where
    there is a drift."""

    # whether a family is divided
    worth: float = 0.05
    """The part of its time on the best device that dividing a kernel must be predicted to gain."""
    close: float = 0.15
    """The part by which two times must differ for one execution to tell which is shorter: first executions take longer,
    and so does a disturbed one. Predicted times that differ by less count as about equal."""
    moving: float = 40.0
    """Executions whose time the transfer of a family's data may take for the family to be run whole on trial."""
    dear: float = 1.5
    """Times as long as divided that a family whose loops run as often as data decide may be predicted to take, to be
    run whole on trial."""
    most_waiting: float = 4.0
    """The most times as long as predicted that waiting is taken to be."""
    tried: float = 10.0
    """Handovers: a kernel whose estimate is longer is divided once, whatever gain the estimates say; so is one whose
    loops run as often as data decide."""

    # families
    border: float = 0.1
    """The part of a kernel's groups by which the ends of two matched kernels may lie apart (a stencil's border)."""

    # transfers
    samples: int = 2
    """Equal parts of its groups for which a kernel's reads are computed."""

    # the policy
    most_chunks: int = 2048
    """Work-groups above which a device gets several at least: one more or less gains nothing."""
    sweeps: int = 3
    """The most rounds in which families are judged in turn, each by what the others do."""
    watched: int = 16
    """Executions at first in which waiting for data is measured, and the interval of measurements after these."""

    @property
    def cell(self) -> float:
        """The part of the groups that one of those is."""
        return 1.0 / self.cells


ADAPT = AdaptationTuning()
