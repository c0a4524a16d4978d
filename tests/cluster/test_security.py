"""Who may use a cluster's workers, and what they take: TLS, no pickle, and nothing that belongs to no session."""

from __future__ import annotations

import asyncio
import subprocess
import warnings
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pytest
from distributed.comm import connect
from distributed.protocol import to_serialize

import manycl as mc
from manycl.cluster.commands import NodeCommands
from manycl.cluster.exchange import ReceiveArbiter
from manycl.cluster.node import DATA, SESSION
from tests.cluster.conftest import cluster
from tests.cluster.counting import Even
from tests.cluster.losing import address_of
from tests.cluster.test_programs import stencil


def test_over_tls(tmp_path: Path) -> None:
    """The client and all workers have the same certificate, and take no other one."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=manycl", "-days", "2"]
    subprocess.run([*words, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    mine = {
        f"tls_{role}_{what}": str(path)
        for role in ("client", "scheduler", "worker")
        for what, path in (("key", key), ("cert", certificate))
    }
    security = distributed.Security(tls_ca_file=str(certificate), require_encryption=True, **mine)
    with mc.Queue("cpu") as alone:
        expected = stencil(alone)
    with cluster(2, security=security) as client, warnings.catch_warnings():
        warnings.simplefilter("error")
        with mc.Queue(client, policy=Even()) as queue:
            assert stencil(queue).tobytes() == expected.tobytes()
            assert all(address_of(queue, node).startswith("tls://") for node in range(2))


ASKING = 4
"""Pickles of what a worker is asked to run: the answer to that before, and what asks for the number."""


def count_pickles() -> None:
    """Have this process count what Dask pickles and unpickles from now on."""
    from distributed.protocol import pickle

    is_counted = hasattr(pickle, "counted")
    pickle.counted = 0  # type: ignore[attr-defined]
    for name in ("dumps", "loads") if not is_counted else ():
        function = getattr(pickle, name)

        def counted(*given: Any, function: Any = function, **options: Any) -> Any:
            pickle.counted += 1  # type: ignore[attr-defined]
            return function(*given, **options)

        setattr(pickle, name, counted)


def pickles() -> int:
    from distributed.protocol import pickle

    found: int = pickle.counted  # type: ignore[attr-defined]
    return found


def test_nothing_is_pickled_in_a_session(client: Any) -> None:
    with mc.Queue(client, policy=Even()) as queue:
        stencil(queue)
        client.run(count_pickles)
        count_pickles()
        stencil(queue)
        mine, theirs = pickles(), client.run(pickles)
        assert mine == 0
        assert max(theirs.values()) <= ASKING
        queue.array(np.zeros(4)).as_dask().sum().compute()
        assert pickles() > 0
        assert max(client.run(pickles).values()) > 2 * ASKING


def test_what_belongs_to_no_session_is_dropped(client: Any) -> None:
    frame = to_serialize(np.zeros(8, np.uint8))
    delivery = {"tag": 1, "fault": "", "frame": frame}

    def kept(dask_worker: Any) -> list[Any]:
        sessions = dask_worker.plugins["manycl"].sessions.values()
        return [key for session in sessions for key in session.arbiter._there]

    def known(dask_worker: Any) -> list[str]:
        return [*dask_worker.plugins["manycl"].sessions]

    with mc.Queue(client, policy=Even()) as queue:
        stencil(queue)
        address = address_of(queue, 0)
        (session,) = client.run(known)[address]

        async def sent(name: str, source: int) -> Any:
            async with distributed.core.rpc(address) as worker:
                return await getattr(worker, DATA)(session=name, source=source, deliveries=[delivery])

        for name, source in (("another", 1), (session, 2), (session, -1)):
            assert client.sync(sent, name, source) == "refused"
        assert client.run(kept)[address] == []

        async def opened_again() -> Any:
            comm = await connect(address)
            await comm.write({"op": SESSION, "reply": False, "session": session, "place": 0, "addresses": [address]})
            return await comm.read()

        with pytest.raises(OSError, match="close"):
            client.sync(opened_again)
        stencil(queue)


def test_frames_of_another_size_are_refused() -> None:
    class Memory:
        def allocate(self, nbytes: int) -> np.ndarray:
            return np.zeros(nbytes, np.uint8)

        def write(self, memory: np.ndarray, low: int, high: int) -> np.ndarray:
            return memory[low:high]

    told: list[dict[str, Any]] = []

    async def commands() -> None:
        arbiter = ReceiveArbiter()
        done = NodeCommands(Memory(), arbiter, None, lambda **words: told.append(words))  # type: ignore[arg-type]
        for tag, nbytes in ((1, 7), (2, 9), (3, 8)):
            arbiter.offer(1, tag, np.ones(nbytes, np.uint8))
            given = [("memory", 5, 16), ("receive", tag, 5, 0, [[4, 8, 0, 1]], 1, tag)]
            done.do_all({"commands": given, "frames": [], "sent": 0.0})
        assert done.of(5).tolist() == [0] * 4 + [1] * 8 + [0] * 4

    asyncio.run(commands())
    assert [words["failed"] for words in told] == [[1], [2]]
    assert all("8 are expected" in words["fault"] for words in told)
