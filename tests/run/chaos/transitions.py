"""For tests of runs: every command graph is judged before it is played, every transition of a run's state is followed
by its ``validate``, and what has led to one that breaks an invariant is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from manycl.run.commands.backend import Run, nodes_of
from manycl.run.commands.chunk_commands import PacketEmitter
from manycl.run.commands.command_graph import CommandGraph
from manycl.run.engine import engine, setup
from manycl.run.engine.dynamic import Dynamic
from manycl.run.engine.playback import Playback
from manycl.run.stealing.player import MovingPlayer
from tests.run.chaos.chaos import ChaosBackend
from tests.run.commands.verify_commands import verify_commands

TOLD = 40  # transitions, the last ones


def watched(state: Any) -> Any:
    """The state, which judges itself after every transition."""
    log: list[tuple[Any, Any]] = []

    def judged(transition: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            commands = transition(*given)
            log.append((given, commands))
            try:
                state.validate()
            except AssertionError as error:
                lines = (f"{heard} -> {commands}" for heard, commands in log[-TOLD:])
                raise AssertionError("\n".join([str(error), f"after {len(log)} transitions:", *lines])) from error
            return commands

        return call

    state.start, state.handle = judged(state.start), judged(state.handle)
    return state


def verified(command_graph: CommandGraph) -> CommandGraph:
    if command_graph.lowered.room is None:
        verify_commands(command_graph)
    return command_graph


DROPPED: list[int] = []
"""The packets that were begun anew on other devices, one after another."""


def rubbish_of_dropped_packets(patch: pytest.MonkeyPatch) -> None:
    """What a dropped packet writes is rubbish, from the moment on when it is dropped; nobody writes to it, and what the
    packet reads stays as it is (as of any command), until the packet has ended."""
    begin, perform, write, drop = ChaosBackend.begin, ChaosBackend.perform, ChaosBackend._write, PacketEmitter.drop
    runs: dict[int, Run] = {}
    rubbish: dict[int, str] = {}
    spoilt: set[tuple[int, int]] = set()
    latest: list[ChaosBackend] = []

    def begun(self: ChaosBackend, *given: Any) -> int:
        found = begin(self, *given)
        latest[:] = [self]
        runs.clear()
        rubbish.clear()
        spoilt.clear()
        return found

    def performed(self: ChaosBackend, commands: Any) -> None:
        perform(self, commands)
        for command in commands:
            if isinstance(command, Run):
                assert command.token not in runs, "two commands have one name"
                runs[command.token] = command

    def dropped(self: PacketEmitter, token: int) -> list[int]:
        command, backend = runs[token], latest[0]
        seen = {} if token in backend._ended else backend._read(command)
        rubbish[token] = f"rubbish of dropped {token} in run {backend._run}"
        for node, key in written(backend, command) if token in backend._begun else ():
            if key not in seen.get(node, ()):
                backend._memory_of(command)[key] = rubbish[token]
                spoilt.add((token, key))
        DROPPED.append(token)
        return drop(self, token)

    def wrote(self: ChaosBackend, command: Any, seen: Any) -> None:
        if not isinstance(command, Run) or command.token not in rubbish:
            write(self, command, seen)
            return
        held = self._memory_of(command)
        for _, key in written(self, command):
            is_spoilt = (command.token, key) in spoilt
            assert not is_spoilt or held.get(key) == rubbish[command.token], f"{command} was not alone with {key}"
            held[key] = rubbish[command.token]

    def written(backend: ChaosBackend, command: Run) -> list[tuple[int, int]]:
        return [(node, key) for node in nodes_of(command) for key in backend._graph.nodes[node].writes]

    patch.setattr(ChaosBackend, "begin", begun)
    patch.setattr(ChaosBackend, "perform", performed)
    patch.setattr(ChaosBackend, "_write", wrote)
    patch.setattr(PacketEmitter, "drop", dropped)


@pytest.fixture(scope="module", autouse=True)
def validated() -> Iterator[None]:
    """Import it: for all tests of a module."""
    with pytest.MonkeyPatch.context() as patch:
        rubbish_of_dropped_packets(patch)
        asking, following = Dynamic.of, MovingPlayer.following
        patch.setattr(Dynamic, "of", lambda *given: watched(asking(*given)))
        patch.setattr(MovingPlayer, "following", lambda *given: watched(following(*given)))
        patch.setattr(engine, "Playback", lambda *given: watched(Playback(*given)))
        patch.setattr(setup, "Playback", lambda *given: watched(Playback(*given)))
        compile_: Callable[..., CommandGraph] = setup.compiled
        patch.setattr(setup, "compiled", lambda *given: verified(compile_(*given)))
        yield
