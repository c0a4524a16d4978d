"""Every corpus kernel that may run in ranges does so through the engine, on devices that share no memory: the bits of
one device, whatever the cuts."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from manycl.errors import RunError
from manycl.machine import Machine
from manycl.plan.plan import WHOLE, Assignment
from manycl.run.engine.engine import RunFailure
from manycl.run.session.session import Session
from tests.analysis import truth
from tests.analysis.corpus_case import Case
from tests.analysis.corpus_case import Launch as CaseLaunch
from tests.analysis.divided import divided, load
from tests.analysis.regions.test_regions import IDS, LAUNCHES, facts_of

EVERYTHING = bool(os.environ.get("NIGHTLY"))
# PoCL 3.0 writes a fourth element, and changes a struct that is an argument for all work-items
POCL_IS_WRONG = {"store_half_aligned_three", "nested_struct_argument"}
SAMPLE = slice(None) if EVERYTHING else slice(5, None, 31)
LIMITED = slice(None) if EVERYTHING else slice(9, None, 67)


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """Four one-core devices, each with memory of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_ZERO_COPY", "0")
        with Session("cpu/4", remember=False) as found:
            yield found


def use(session: Session, machine: Machine) -> None:
    """From now on, the devices are as a machine says, with what they hold."""
    session.devices._in_use = session.devices.machine = machine  # what learning begins with, too
    session.backend.memory.rearrange(machine, session.backend.drivers, machine.indices)


@pytest.mark.parametrize(("case", "ndrange"), LAUNCHES[SAMPLE], ids=IDS[SAMPLE])
def test_ranges_on_devices_of_their_own(session: Session, case: Case, ndrange: CaseLaunch) -> None:
    facts = facts_of(case, ndrange)
    wanted = [d for d, n in enumerate(ndrange.groups) if n > 1 and facts.split(d).mergeable]
    if not wanted or case.name in POCL_IS_WRONG:
        pytest.skip("its groups may not run apart, or PoCL does not run it right")
    loaded = load(session, case, ndrange)
    start = truth.contents(ndrange, 1)
    whole = loaded.run([Assignment(0, 0, 0, 0.0, 0.0, WHOLE)], start)
    for dimension in wanted:
        for devices in (2, 3, 4):
            chance = random.Random(f"{case.name} {dimension} {devices}")
            plan = divided(loaded, dimension, ndrange.groups[dimension], devices, chance)
            found = loaded.run(plan, start)
            for index, data in whole.items():
                wrong = np.flatnonzero(found[index] != data)
                assert not len(wrong), f"argument {index}, {plan}: bytes {wrong[:8]}"
    for key in loaded.keys.values():
        session.buffers.discard(key)


@pytest.mark.parametrize(("case", "ndrange"), LAUNCHES[LIMITED], ids=IDS[LIMITED])
def test_ranges_with_little_memory(
    session: Session, case: Case, ndrange: CaseLaunch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole launches, and ranges on two devices, with less memory than the buffers take: in ranges on windows."""
    facts = facts_of(case, ndrange)
    wanted = [d for d, n in enumerate(ndrange.groups) if n > 1 and facts.split(d).mergeable]
    if not wanted or case.name in POCL_IS_WRONG:
        pytest.skip("its groups may not run apart, or PoCL does not run it right")
    monkeypatch.setattr("manycl.run.tiling.windows.PAGE", 128)
    monkeypatch.setattr("manycl.run.tiling.windows.SMALL", 256)
    loaded = load(session, case, ndrange)
    start = truth.contents(ndrange, 1)
    whole = loaded.run([Assignment(0, 0, 0, 0.0, 0.0, WHOLE)], start)
    total = sum(len(data) for data in start.values())
    plenty = session.machine
    for share in (0.8, 0.5, 0.3):
        room = max(int(total * share), 1)
        devices = tuple(replace(d, global_memory=room, max_allocation=room) for d in plenty.devices)
        for key in loaded.keys.values():
            for device in plenty.devices:
                session.buffers.evict(key, device.memory)
        use(session, replace(plenty, devices=devices))
        chance = random.Random(f"{case.name} {share}")
        split = divided(loaded, wanted[0], ndrange.groups[wanted[0]], 2, chance)
        try:
            for plan in ([Assignment(0, 0, 0, 0.0, 0.0, WHOLE)], split):
                found = loaded.run(plan, start)
                for index, data in whole.items():
                    wrong = np.flatnonzero(found[index] != data)
                    assert not len(wrong), f"argument {index}, {share}, {plan}: bytes {wrong[:8]}"
        except RunFailure:
            raise
        except RunError:
            continue  # it needs more at once
        finally:
            use(session, plenty)
    for key in loaded.keys.values():
        session.buffers.discard(key)
