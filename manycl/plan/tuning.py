"""All that can be tuned of planning (``manycl/plan``), in one value; adaptation has its own (``plan/adapt/tuning.py``).

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
    coarse: float = 15e-6
    mkmd: float = 150e-6
    balance: float = 200e-6
    members: float = 50e-6
    """Of a cell: what ``mkmd_coarse``, ``mkmd``, ``balance``, and all members of the portfolio take."""
    placed: float = 9e-6
    """What the portfolio's search takes for a node that it places."""
    search: int = 4
    """Nodes that are placed for each of the graph's by a search that is worth it, at least."""
    worth: float = 2.0
    """A kernel that takes less than so many handovers is not worth splitting."""

    # how launches may be split (``benchmarks/analysis.py`` measures the seconds)
    first_look: float = 0.5
    kernel_look: float = 0.1
    launch_look: float = 15e-3
    again_look: float = 50e-6
    """To find out how launches may be split: the first time, of a new kernel, of a kind of launch, and to look it up
    for a node."""
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
