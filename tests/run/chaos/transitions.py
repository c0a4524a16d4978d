"""For tests of runs: every command graph is judged before it is played, every transition of a run's state is followed
by its ``validate``, and what has led to one that breaks an invariant is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from manycl.run.commands.command_graph import CommandGraph
from manycl.run.engine import engine, setup
from manycl.run.engine.dynamic import Dynamic
from manycl.run.engine.playback import Playback
from manycl.run.stealing.player import MovingPlayer
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


@pytest.fixture(scope="module", autouse=True)
def validated() -> Iterator[None]:
    """Import it: for all tests of a module."""
    with pytest.MonkeyPatch.context() as patch:
        asking, following = Dynamic.of, MovingPlayer.following
        patch.setattr(Dynamic, "of", lambda *given: watched(asking(*given)))
        patch.setattr(MovingPlayer, "following", lambda *given: watched(following(*given)))
        patch.setattr(engine, "Playback", lambda *given: watched(Playback(*given)))
        patch.setattr(setup, "Playback", lambda *given: watched(Playback(*given)))
        compile_: Callable[..., CommandGraph] = setup.compiled
        patch.setattr(setup, "compiled", lambda *given: verified(compile_(*given)))
        yield
