"""Adaptive granularity: how many work-groups each device gets, learned from measured times while a kernel repeats.

Libsplit (Huchant, Counilh, Barthou, Euro-Par 2016), Section 5: with f_i the mean time of a work-group on device i,
F(x)_i = (1 / f_i) / sum_j (1 / f_j) are the shares with which all devices would end together if f did not change; the
shares sought are a fixed point of F. Three methods:

- ``fixed_point``: x := F(x) (Section 5.2);
- ``broyden``: the zero of x - F(x) by Broyden's method, which learns how f depends on the shares (Section 5.2);
- ``edges``: ours. Devices run neighbouring ranges, so a device's time depends on the two cuts that bound its range and
  on nothing else. What a group costs at either end is learned by the secant of that sparse Jacobian (L. K. Schubert,
  *Modification of a quasi-Newton method for nonlinear equations with a sparse Jacobian*, Math. Comp. 24, 1970), and
  Newton's step moves the cuts to where all end together. So it knows that costs depend on where a range lies. Its first
  step, when nothing is learned yet, is F's, with the launch overhead left out of f.

All are damped: nothing moves for a gain below the dead band, a measurement far from what was foreseen is refused once,
and shares that were measured and were no better are not taken again. Values are frozen and functions pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

METHODS = ("edges", "fixed_point", "broyden")
DEAD_BAND = 0.015
"""Part of the time that a change must be foreseen to gain; below twice that, two executions in a row must say so."""
OUTLIER = 1.7
"""How many times longer than foreseen a measurement is refused, once, where most of the range had been measured."""
FAR_OUT = 12.0
"""The same where most of the range is new."""
BLUR = 0.04
"""What a change of a range teaches is trusted by how large it is beside this part of the range."""
DECAY = 0.85
"""How long a surprise makes what a change of a range teaches less trusted: the load may be drifting."""
STEEPEST = 4.0
"""How much more or less than the mean group a group at the end of a range is believed to cost."""
MOST_JITTER = 0.05
"""How wide the dead band gets at most where times change by themselves: a load that drifts must still be followed."""
SURPRISES = 3
"""Executions of which the one with the least surprise tells how much times change by themselves."""
ROUGH, LEAST_TRUST = 0.07, 0.2
"""Jitter at which half of a measurement is believed (as a logarithm), and what is believed of one at least."""
MOST_PATIENT = 4.0
"""How much wider the dead band gets when moves bring nothing."""
LESS = 0.1
"""What the slowest device gets of its target when it got much less before, and took as long."""
REMEMBERED = 8
"""Shares that were tried, and are not tried again while times stay as they are."""

Floats = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Tried:
    """Shares that were executed, and the seconds of the slowest device."""

    shares: tuple[int, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Granularity:
    """The groups of every device (``shares``; ranges lie in the order of the devices), and what is known about them.

    ``once``: seconds that a launch takes beside its groups; ``each``: seconds a group, on average, as last measured (or
    estimated); ``ends``: what a group costs at the first and last group of the range, over ``each``. ``seconds`` and
    ``before``: the last execution's accepted times (empty: there was none) and shares. ``inverse``, ``residual``:
    Broyden's, over all devices. ``least``: groups below which a device gets none. ``unrest``: how far, as a part of
    them, times have been from what was foreseen; ``surprises``: the same of the last executions. ``doubted``: devices
    whose last measurement was refused. ``stubborn``: devices that got much less to do and took as long. ``pending``: a
    small gain was foreseen and waits to be confirmed. ``vain``: moves in a row that made nothing better.
    """

    shares: tuple[int, ...]
    once: Floats
    each: Floats
    ends: tuple[tuple[float, float], ...]
    least: int = 1
    method: str = "edges"
    dead_band: float = DEAD_BAND
    seconds: Floats = ()
    before: tuple[int, ...] = ()
    inverse: tuple[Floats, ...] = ()
    residual: Floats = ()
    unrest: float = 0.0
    surprises: Floats = ()
    tried: tuple[Tried, ...] = ()
    doubted: tuple[int, ...] = ()
    stubborn: tuple[int, ...] = ()
    pending: bool = False
    vain: int = 0
    executions: int = 0

    @property
    def groups(self) -> int:
        return sum(self.shares)

    @property
    def jitter(self) -> float:
        """How far times are from what is foreseen, again and again: the part of them that nothing explains."""
        return min(self.surprises) if len(self.surprises) == SURPRISES else 0.0

    def foreseen(self, device: int, groups: int) -> float:
        """Seconds that so many groups would take on a device, with its range grown or shrunk at both ends alike."""
        if groups == 0:
            return 0.0
        steep = 0.5 * (self.ends[device][0] + self.ends[device][1]) if self.shares[device] else 1.0
        beyond = groups - self.shares[device]
        return self.once[device] + self.each[device] * max(self.shares[device] + steep * beyond, 0.1 * groups)


def start(
    groups: int, once: Sequence[float], each: Sequence[float], *, method: str = "edges", least: int = 1,
    uniform: bool = False, dead_band: float = DEAD_BAND,
) -> Granularity:  # fmt: skip
    """The first split: all devices end together by the estimates (``once`` and ``each`` in seconds, an infinite one
    gets nothing), or the same for each (``uniform``, as in Libsplit)."""
    able = [i for i, e in enumerate(each) if e < float("inf")]
    if method not in METHODS or groups < 1 or not able or least < 1:
        raise ValueError(f"no granularity for {groups} groups on {len(able)} devices by {method!r}")
    unit = tuple((1.0, 1.0) for _ in each)
    first = Granularity((0,) * len(each), tuple(once), tuple(each), unit, least, method, dead_band)
    if uniform:
        targets = [groups / len(able) if i in able else 0.0 for i in range(len(each))]
    else:
        targets = _level(groups, once, each)
    return replace(first, shares=_rounded(first, targets, groups))


def adapted(g: Granularity, measured: Sequence[float]) -> Granularity:
    """After an execution with these shares that took each device so many seconds (0 where it had no groups)."""
    used = [i for i, n in enumerate(g.shares) if n]
    strange = tuple(i for i in used if g.executions and _strange(g, i, measured[i]))
    if any(i not in g.doubted for i in strange):
        return replace(g, doubted=strange, executions=g.executions + 1)
    if g.jitter and g.executions:
        measured = _calmed(g, measured)
    g = _learned(g, measured, used)
    now = max(measured[i] for i in used)
    targets, g = _proposed(g, used)
    targets = [t * LESS if i in g.stubborn and measured[i] == now else t for i, t in enumerate(targets)]
    shares = _rounded(g, targets, g.groups)
    gain = 1.0 - _ahead(g, targets, shares) / now
    tried = _tried(g, now)
    if g.before and g.before != g.shares:  # what the last move has brought
        better = all(now < (1.0 - 0.5 * g.dead_band) * t.seconds for t in tried if t.shares != g.shares)
        g = replace(g, vain=0 if better else g.vain + 1)
    band = max(g.dead_band, min(0.5 * g.jitter, MOST_JITTER)) * min(2.0 ** max(0, g.vain - 2), MOST_PATIENT)
    again = next((t for t in tried if t.shares == shares), None)
    g = replace(g, tried=tried)
    if shares == g.shares or gain < band or (again is not None and again.seconds >= now * (1.0 - g.dead_band)):
        return replace(g, before=g.shares, pending=False)
    if gain < 2.0 * band and not g.pending:
        return replace(g, before=g.shares, pending=True)
    return replace(_moved(g, shares), pending=False)


def cuts(g: Granularity) -> tuple[int, ...]:
    """Device i runs the groups from ``cuts[i]`` to ``cuts[i + 1] - 1``."""
    out = [0]
    for n in g.shares:
        out.append(out[-1] + n)
    return tuple(out)


def _ahead(g: Granularity, targets: Sequence[float], shares: Sequence[int]) -> float:
    """Seconds that the slowest device is foreseen to take with new shares."""
    if g.method != "edges":  # what it would be if the shares were as wanted, by F
        return g.groups / sum(n / g.seconds[i] for i, n in enumerate(g.shares) if n)
    new, old = _bounds(shares), _bounds(g.shares)
    ahead = 0.0
    for i, n in enumerate(shares):
        if n and g.shares[i]:
            left, right = g.ends[i]
            moved = right * (new[i][1] - old[i][1]) - left * (new[i][0] - old[i][0])
            ahead = max(ahead, g.seconds[i] + g.each[i] * moved)
        elif n:
            ahead = max(ahead, g.once[i] + g.each[i] * n)
    return ahead


# learning


def _calmed(g: Granularity, measured: Sequence[float]) -> list[float]:
    """Where times change by themselves: partly what was foreseen, for ranges most of which had been measured."""
    trust = max(LEAST_TRUST, 1.0 / (1.0 + (g.jitter / ROUGH) ** 2))
    out = list(measured)
    for i, n in enumerate(g.shares):
        foreseen = g.once[i] + g.each[i] * n
        if n and foreseen > 0.0 and _known(g, i) >= 0.7:
            out[i] = foreseen * (measured[i] / foreseen) ** trust
    return out


def _known(g: Granularity, device: int) -> float:
    """The part of a device's range that was its own in the last execution."""
    (low, high), (first, last) = _bounds(g.shares)[device], _bounds(g.before or g.shares)[device]
    return (min(high, last) - max(low, first)) / (high - low)


def _strange(g: Granularity, device: int, seconds: float) -> bool:
    """Far longer than foreseen; where most of the range is new, it may well be like that."""
    allowed = OUTLIER if _known(g, device) >= 0.7 else FAR_OUT
    return seconds > allowed * (g.once[device] + g.each[device] * g.shares[device])


def _learned(g: Granularity, measured: Sequence[float], used: Sequence[int]) -> Granularity:
    """With the times of this execution: each device's mean, and the cost at the ends of ranges that have moved."""
    each, ends, seconds = list(g.each), list(g.ends), list(g.seconds or measured)
    old = _bounds(g.before) if g.before else []
    new = _bounds(g.shares)
    surprise = still = 0.0
    stubborn: list[int] = []
    for i in used:
        once = min(g.once[i], 0.5 * measured[i])
        mean = (measured[i] - once) / g.shares[i]
        change = (measured[i] - g.seconds[i]) / mean if g.seconds and g.before[i] else 0.0
        if g.seconds and g.before[i] and new[i] == old[i]:
            still = max(still, abs(change) / g.shares[i])
            if abs(change) > 0.5 * g.dead_band * g.shares[i]:  # another load: what was learned may not hold
                ends[i] = _faded(g.ends[i])
        elif g.seconds and g.before[i]:
            left, right = _faded(g.ends[i])
            by_left, by_right = new[i][0] - old[i][0], new[i][1] - old[i][1]
            # in groups of mean cost: how much more it took than the ends' costs had said
            error = change - (right * by_right - left * by_left)
            surprise = max(surprise, abs(error) / g.shares[i])
            if g.shares[i] < 0.8 * g.before[i] and measured[i] > 0.95 * g.seconds[i]:
                stubborn.append(i)
            error /= by_left * by_left + by_right * by_right + (max(BLUR, g.unrest) * g.shares[i]) ** 2
            ends[i] = _believable(left - error * by_left), _believable(right + error * by_right)
        each[i], seconds[i] = mean, measured[i]
    return replace(
        g,
        each=tuple(each),
        ends=tuple(ends),
        seconds=tuple(seconds),
        doubted=(),
        stubborn=tuple(stubborn),
        executions=g.executions + 1,
        unrest=max(surprise, still, DECAY * g.unrest),
        surprises=(*g.surprises, max(surprise, still))[-SURPRISES:] if g.seconds else (),
    )


def _faded(ends: tuple[float, float]) -> tuple[float, float]:
    return 1.0 + 0.9 * (ends[0] - 1.0), 1.0 + 0.9 * (ends[1] - 1.0)


def _believable(ratio: float) -> float:
    return min(max(ratio, 1.0 / STEEPEST), STEEPEST)


def _bounds(shares: Sequence[int]) -> list[tuple[int, int]]:
    at, out = 0, []
    for n in shares:
        out.append((at, at + n))
        at += n
    return out


def _tried(g: Granularity, now: float) -> tuple[Tried, ...]:
    """What was tried, with the present shares; forgotten when the same shares take another time than before."""
    known = next((t for t in g.tried if t.shares == g.shares), None)
    if known is not None and abs(now - known.seconds) > 2.0 * g.dead_band * now:
        return (Tried(g.shares, now),)
    return (*(t for t in g.tried if t.shares != g.shares), Tried(g.shares, now))[-REMEMBERED:]


# proposing


def _proposed(g: Granularity, used: Sequence[int]) -> tuple[list[float], Granularity]:
    """Groups of every device (fractions) with which all should end together."""
    if g.method == "broyden":
        return _broyden(g)
    rates = [1.0 / (g.each[i] + g.once[i] / g.shares[i]) if g.shares[i] else 0.0 for i in range(len(g.shares))]
    if g.method == "fixed_point":
        total = sum(rates)
        return [g.groups * r / total for r in rates], g
    return _edges(g, used), g


def _edges(g: Granularity, used: Sequence[int]) -> list[float]:
    """Newton's step: cut k between used devices moves by d_k so that t_i + right_i d_i - left_i d_(i-1) = T for all i,
    with the outer ends fixed; d_i = a_i + b_i T."""
    level = _level(g.groups, g.once, [e if i in used else float("inf") for i, e in enumerate(g.each)])
    a = b = 0.0
    steps: list[tuple[float, float]] = []
    for i in used:
        left, right = g.each[i] * g.ends[i][0], g.each[i] * g.ends[i][1]
        a, b = (left * a - g.seconds[i]) / right, (left * b + 1.0) / right
        steps.append((a, b))
    at = -a / b
    targets = [0.0] * len(g.shares)
    before = 0.0
    for i, (a, b) in zip(used, steps, strict=True):
        after = a + b * at if i != used[-1] else 0.0
        targets[i] = g.shares[i] + after - before
        before = after
        if not 0.5 * level[i] <= targets[i] <= 2.0 * level[i]:
            return level
    return targets


def _level(groups: int, once: Sequence[float], each: Sequence[float]) -> list[float]:
    """Groups (fractions) with which all end together when every group costs the same; none where the launch alone takes
    longer."""
    able = [i for i, e in enumerate(each) if e < float("inf")]
    while True:
        at = (groups + sum(once[i] / each[i] for i in able)) / sum(1.0 / each[i] for i in able)
        late = [i for i in able if once[i] >= at]
        if not late:
            return [(at - once[i]) / each[i] if i in able else 0.0 for i in range(len(each))]
        able = [i for i in able if i not in late]


def _broyden(g: Granularity) -> tuple[list[float], Granularity]:
    """The good Broyden method on x - F(x), with the inverse Jacobian kept; the unit matrix, with which a step is F's,
    where it leads astray."""
    count, groups = len(g.shares), g.groups
    rates = [1.0 / (g.each[i] + g.once[i] / max(n, 1)) for i, n in enumerate(g.shares)]
    total = sum(rates)
    image = [r / total for r in rates]
    x = [n / groups for n in g.shares]
    residual = tuple(a - b for a, b in zip(x, image, strict=True))
    unit = tuple(tuple(float(i == j) for j in range(count)) for i in range(count))
    inverse = g.inverse or unit
    if g.residual and any(abs(a - b) > 0.5 * BLUR * a for a, b in zip(g.shares, g.before, strict=True)):
        step = [(a - b) / groups for a, b in zip(g.shares, g.before, strict=True)]
        change = [a - b for a, b in zip(residual, g.residual, strict=True)]
        inverse = _updated(inverse, step, change)
    found = [v - sum(h * r for h, r in zip(row, residual, strict=True)) for v, row in zip(x, inverse, strict=True)]
    if not all(0.4 * y <= v <= 2.5 * y for v, y in zip(found, image, strict=True)):
        found, inverse = image, unit
    scale = groups / sum(found)
    return [v * scale for v in found], replace(g, inverse=inverse, residual=residual)


def _updated(inverse: tuple[Floats, ...], step: Sequence[float], change: Sequence[float]) -> tuple[Floats, ...]:
    """Sherman and Morrison's form of Broyden's update."""
    moved = [sum(h * c for h, c in zip(row, change, strict=True)) for row in inverse]
    size = sum(s * m for s, m in zip(step, moved, strict=True))
    if size < 0.1 * sum(s * s for s in step):
        return inverse  # the function would have turned round: noise, or another load
    across = [sum(s * row[j] for s, row in zip(step, inverse, strict=True)) for j in range(len(step))]
    return tuple(
        tuple(h + (s - m) * c / size for h, c in zip(row, across, strict=True))
        for row, s, m in zip(inverse, step, moved, strict=True)
    )


# whole groups


def _rounded(g: Granularity, targets: Sequence[float], groups: int) -> tuple[int, ...]:
    """Whole groups: a device that would get less than half of the least gets none; what rounding leaves goes, group by
    group, to where it ends first."""
    wanted = [0.0 if t < 0.5 * g.least else max(t, float(g.least)) for t in targets]
    scale = groups / sum(wanted) if sum(wanted) else 0.0
    if scale == 0.0 or groups < g.least * sum(w > 0 for w in wanted):
        best = max(range(len(targets)), key=lambda i: targets[i])
        return tuple(groups if i == best else 0 for i in range(len(targets)))
    shares = [max(int(w * scale + 1e-9), g.least) if w else 0 for w in wanted]
    some = [i for i, n in enumerate(shares) if n]
    for _ in range(abs(groups - sum(shares))):
        if sum(shares) < groups:
            shares[min(some, key=lambda i: _end(g, targets, i, shares[i] + 1))] += 1
        else:
            shares[max((i for i in some if shares[i] > g.least), key=lambda i: _end(g, targets, i, shares[i]))] -= 1
    return tuple(shares)


def _end(g: Granularity, targets: Sequence[float], device: int, groups: int) -> float:
    """How late so many groups end, beside what was aimed at."""
    return (groups - targets[device]) * g.each[device]


def _moved(g: Granularity, shares: tuple[int, ...]) -> Granularity:
    """The next execution's shares; means are those foreseen, for what will be strange then."""
    each = tuple(
        (g.foreseen(i, n) - g.once[i]) / n if n and m else e
        for i, (n, m, e) in enumerate(zip(shares, g.shares, g.each, strict=True))
    )
    return replace(g, before=g.shares, shares=shares, each=each)
