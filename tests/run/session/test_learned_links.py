"""A session finds out how fast its links are from its own transfers, and remembers it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from manycl.api.program import Program
from manycl.api.queue import Queue
from manycl.machine import HOST
from manycl.model.history.measured import OBSERVED

PROGRAM = Program("kernel void halve(global float *x) { x[get_global_id(0)] *= 0.5f; }")
ITEMS = 1 << 19


def test_bandwidths_are_learned_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    monkeypatch.setenv("MANYCL_MODELS", "1")
    monkeypatch.setenv("MANYCL_DATA", str(tmp_path))
    seen = []
    for turn in range(2):
        with Queue("cpu/2#0") as queue:
            memory = queue.session.machine.devices[0].memory
            assert ("host->cpu0.0.bandwidth" in queue.session.machine.notes) == (turn > 0)
            for _ in range(4):
                array = queue.array(np.ones(ITEMS, np.float32))
                PROGRAM.halve(queue, (ITEMS,), (64,), array)
                assert (array.get() == 0.5).all()
            PROGRAM.halve(queue, (ITEMS,), (64,), array)
            queue.finish()
            queue.session.devices.learn()
            machine = queue.session.machine
            assert machine.notes["host->cpu0.0.bandwidth"] == OBSERVED
            seen.append(machine.link(HOST, memory).bandwidth)
    assert 0 < min(seen) <= max(seen) < 1e13


def test_what_kernels_took_is_forgotten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MANYCL_DATA", str(tmp_path))
    with Queue("cpu/2#0") as queue:
        array, session = queue.array(np.ones(ITEMS, np.float32)), queue.session

        def estimated() -> float:
            with queue.prepare() as prepared:
                PROGRAM.halve(queue, (ITEMS,), (64,), array)
            return session.problem(prepared.graph).estimates.launch(0, 0)

        guessed = estimated()
        for _ in range(3):
            PROGRAM.halve(queue, (ITEMS,), (64,), array)
            queue.finish()
        assert estimated() != guessed
        PROGRAM.halve(queue, (ITEMS,), (64,), array)
        queue.finish()  # not learned from yet
        session.models.forget()
        assert estimated() == guessed


def test_what_enqueuing_takes_is_noted_unless_kernels_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    with Queue("cpu/2#0") as queue:
        arrays = [queue.array(np.ones(ITEMS, np.float32)) for _ in range(3)]
        with queue.prepare() as prepared:
            for array in arrays:
                PROGRAM.halve(queue, (ITEMS,), (64,), array)
        noted = []
        for _ in range(4):
            record = queue.session.run(prepared.graph, "in_order").record
            noted.append({kind: count for kind, (count, _) in record.enqueued.items()})  # type: ignore[attr-defined]
            for array in arrays:
                array.set(np.ones(ITEMS, np.float32))
        assert (0, False) not in noted[0]
        assert noted[1:] == [{(0, True): 3, (0, False): 3}] * 3
        queue.session.devices.learn()
        (device,) = queue.session.machine.devices
        assert device.enqueuing > 0.0
        assert device.enqueuing_copy > 0.0
