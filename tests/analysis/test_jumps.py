"""Random programs of jumps, against a machine that has only them: it runs one statement after another."""

from __future__ import annotations

import random

import numpy as np

from manycl.analysis.known_launch import KnownLaunch
from manycl.analysis.launched import LaunchFacts
from manycl.analysis.reading import frontend, kernels
from manycl.analysis.reading.options import read_options
from manycl.group_range import GroupRange

ITEMS, ROOM, MOST = 8, 64, 400
PROGRAMS = 60

# a statement: what it is written as, whether it jumps for an item and its two counters, what it does to these, and
# the label that it jumps to
Statement = tuple[str, str, int]


def made(seed: int) -> list[Statement]:
    """Some stores and steps, and jumps between them: those back end by themselves."""
    chance = random.Random(seed)
    count = chance.randint(4, 10)
    found: list[Statement] = []
    for place in range(count):
        kind = chance.choice(["store", "step", "ahead", "ahead if", "back", "back if", "twice"])
        target = chance.randrange(place + 1, count + 1) if "ahead" in kind else chance.randrange(place + 1)
        condition = chance.choice(["i & 1", "k & 1", "k > 3", "i + k < 7", "w == 2"])
        if kind == "back" and chance.random() < 0.3:
            kind = "back, in a loop"
        found.append((kind, condition, target))
    return found


def text(number: int, program: list[Statement]) -> str:
    lines = [f"kernel void k{number}(global int *d) {{ int i = get_global_id(0), k = 0, w = 0;"]
    for place, (kind, condition, target) in enumerate(program):
        lines.append(f"at{place}: " + {
            "store": f"d[i * {ROOM} + (k * 3 + w) % {ROOM}] = {place};",
            "step": "w++;",
            "ahead": f"if (w > 1) {{ w++; goto at{target}; }}",
            "ahead if": f"if ({condition}) goto at{target};",
            "back": f"if (++k < 9) goto at{target};",
            "back if": f"k++; if (({condition}) && k < 12) {{ w++; goto at{target}; }}",
            "back, in a loop": f"for (int j = 0; j < 3; j++) {{ if (++k < 9) goto at{target}; w += j; }}",
            "twice": f"for (int j = 0; j < 2; j++) {{ if ({condition}) goto at{place + 1}; d[i * {ROOM} + 40 + j] = 1; }}",  # noqa: E501
        }[kind])  # fmt: skip
    return "\n".join([*lines, f"at{len(program)}: ; }}"])


def stored(program: list[Statement], i: int) -> set[int] | None:
    """The elements that an item writes; None where it runs for ever, or nearly."""
    k = w = at = 0
    found = set()
    for _ in range(MOST):
        if at == len(program):
            return found
        kind, condition, target = program[at]
        holds = {"i & 1": i & 1, "k & 1": k & 1, "k > 3": k > 3, "i + k < 7": i + k < 7, "w == 2": w == 2}
        there = at + 1
        if kind == "store":
            found.add(i * ROOM + (k * 3 + w) % ROOM)
        elif kind == "step":
            w += 1
        elif kind == "ahead" and w > 1:
            w, there = w + 1, target
        elif kind == "ahead if" and holds[condition]:
            there = target
        elif kind == "back":
            k += 1
            there = target if k < 9 else there
        elif kind == "back if":
            k += 1
            again = {**holds, "k & 1": k & 1, "k > 3": k > 3, "i + k < 7": i + k < 7}[condition] and k < 12
            w, there = (w + 1, target) if again else (w, there)
        elif kind == "back, in a loop":
            for j in range(3):
                k += 1
                if k < 9:
                    there = target
                    break
                w += j
        elif kind == "twice":
            for j in range(2):
                if holds[condition]:
                    break
                found.add(i * ROOM + 40 + j)
        at = there
    return None


def test_what_random_jumps_write() -> None:
    programs = [made(seed) for seed in range(PROGRAMS)]
    unit = frontend.load("\n".join(map(text, range(PROGRAMS), programs)), "<source>", None, read_options(()))
    facts = kernels.kernel_facts(unit)
    followed = exact = checked = 0
    for number, program in enumerate(programs):
        items = [stored(program, i) for i in range(ITEMS)]
        true = [found for found in items if found is not None]
        if len(true) < ITEMS:
            continue
        known = LaunchFacts(unit, facts[f"k{number}"], KnownLaunch((ITEMS,), (2,), sizes={0: 4 * ITEMS * ROOM}))
        checked += 1
        followed += not known.summary.failure
        for first, count in ((0, 4), (1, 1), (2, 2)):
            region = known.region(0, "write", GroupRange(0, first, count))
            said = set(np.flatnonzero(region.mask(4 * ITEMS * ROOM)[::4]).tolist())
            real = set().union(*true[2 * first : 2 * (first + count)])
            assert real <= said, (text(number, program), sorted(real - said))
            assert not region.exact or real == said, (text(number, program), sorted(said - real))
            exact += region.exact
    assert checked > PROGRAMS / 2
    assert followed > checked / 2
    assert exact > checked
