"""Blocks: tiles of work-items whose loops are run strip by strip, so that what one tile has read is still in the cache
when the next one reads it.

A tile that has run a strip of a loop (``STRIP`` turns of it) puts away what its work-items keep, and goes on there
when all tiles of its block have run the strip. Work-items do not wait for one another in the kernels this is done for,
so each computes what it would have computed, in the same order. The terms are the field's: *register tile*, *strip
mining* (Goto and van de Geijn, *Anatomy of High-Performance Matrix Multiplication*, ACM TOMS 34(3), 2008; Lam, Rothberg
and Wolf, *The Cache Performance and Optimizations of Blocked Algorithms*, ASPLOS 1991).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from manycl.analysis.reading.tree import Node
from manycl.analysis.work_group.contexts import Contexts, Mode
from manycl.analysis.work_group.parts import CutLoop
from manycl.analysis.work_group.syntax import Variable
from manycl.analysis.work_group.texts import AT, Texts

STRIP = 256
"""Turns of a loop that a tile runs before the next one does."""
_PUT_AWAY = {Mode.LOCAL, Mode.SAME, Mode.AGAIN, Mode.COPIED, Mode.TABLE}
_LEAVING = ("BREAK_STMT", "CONTINUE_STMT", "RETURN_STMT")


def registers(lanes: int) -> int:
    """Vectors that a tile of work-items may fill with what it keeps: registers of all machines have so much room."""
    return 24 if lanes >= 16 else 12


def register_tile(contexts: Contexts, lanes: int) -> tuple[int, int]:
    """Vectors across and rows of a tile that keeps its context arrays in registers. Several vectors share what is read
    of a row, and several rows what is read of a column."""
    words = 0
    for ref, mode in contexts.modes.items():
        if mode == Mode.COPIED:
            words += max(1, contexts.variables[ref].node.type.size // 4)
    most = max(1, registers(lanes) // max(1, words))
    across = 4 if most >= 24 else 2 if most >= 12 else 1
    return across, most // across


@dataclass(slots=True)
class Strips:
    """The loops of a kernel at which tiles may be put away, as they are written. ``@IN_STRIPS`` is 1 where the text is
    that of tiles that are, in a ``struct @tile``."""

    texts: Texts
    loops: int = 0
    _kept: dict[int, Variable] = field(default_factory=dict)

    def may_be_cut(self, loop: CutLoop) -> bool:
        """Whether all that there is at a loop's head can be put away; the loop is within no other one, and all
        work-items of the tile take it."""
        modes = self.texts.contexts.modes
        if loop.masked or loop.node.kind != "FOR_STMT":
            return False
        if any(mode not in _PUT_AWAY for mode in modes.values()):
            return False
        if any(each.kind in _LEAVING for each in loop.node.walk()):
            return False
        alive = self._alive(loop.node)
        same = [variable for variable in alive if modes[variable.ref] == Mode.SAME]
        return len(same) < len(alive) and not any(_is_fixed(variable, loop.node) for variable in same)

    def _alive(self, loop: Node) -> list[Variable]:
        """What may have a value at a loop's head that cannot be computed again."""
        found = []
        for variable in self.texts.contexts.variables.values():
            scope, start = variable.scope, variable.node.start
            if self.texts.contexts.modes[variable.ref] not in (Mode.SAME, Mode.COPIED):
                continue
            if scope is None:
                if not variable.is_constant:
                    found.append(variable)
            elif scope is loop or (scope.start <= loop.start and loop.end <= scope.end and start < loop.start):
                found.append(variable)
        return found

    def loop(self, part: CutLoop, head: tuple[str, str, str], body: str) -> str:
        """The text of a loop at whose head a tile may be put away."""
        self.loops += 1
        alive = self._alive(part.node)
        self._kept |= {variable.ref: variable for variable in alive}
        init, condition, step = head
        return f"""{{ {init};
#if @IN_STRIPS
uint @turns = 0;
if (0) {{ @resume{self.loops}:; @turns = 0;
{self._copies(alive, "{0} = @t->{0};")}
}}
#endif
for (; {condition}; {step}) {{
#if @IN_STRIPS
if (@turns++ == {STRIP}) {{
{self._copies(alive, "@t->{0} = {0};")}
@t->at = {self.loops}; return 1; }}
#endif
{body}
}}
}}"""

    def _copies(self, variables: list[Variable], words: str) -> str:
        """What copies them; ``words`` are for one of a name."""
        of_tile, of_items = "", ""
        for variable in variables:
            name, type_ = variable.name, variable.node.type
            if self.texts.contexts.modes[variable.ref] == Mode.SAME:
                of_tile += words.format(name)
            elif type_.kind == "vector":
                of_items += "".join(words.format(f"{name}_@[{lane}]{AT}") for lane in range(type_.lanes))
            else:
                of_items += words.format(f"{name}_@{AT}")
        return f"{of_tile}\n@ITEMS {of_items} @END"

    def resumed(self, body: str) -> str:
        """The body of the function that runs a tile until it is put away (1) or done (0)."""
        cases = "".join(f"case {n}: goto @resume{n}; " for n in range(1, self.loops + 1))
        begin, end = f"switch (@t->at) {{ {cases}}}", "@t->at = 0; return 0;"
        return f"#if @IN_STRIPS\n{begin}\n#endif\n{body}\n#if @IN_STRIPS\n{end}\n#endif"

    @property
    def members(self) -> str:
        """What is put away, as the members of ``struct @tile``."""
        found = "int at; "
        for variable in self._kept.values():
            is_same = self.texts.contexts.modes[variable.ref] == Mode.SAME
            found += f"{self.texts.typed(variable, '') if is_same else self.texts.context_array(variable)}; "
        return found


def _is_fixed(variable: Variable, loop: Node) -> bool:
    """Whether a variable of the tile is declared so that nothing can be assigned to it: what is declared anew, as what
    is outside of the loop is, keeps no ``const`` that is written before it."""
    written = variable.scope is loop or variable.declarator.startswith("*")
    return variable.node.type.const and (written or re.search(r"\b(__)?const\b", variable.specifiers) is None)
