"""Loops: a counter and closed forms where that is right, unrolled where only that is exact, widened otherwise.

A loop's body is run once silently with symbols for what it changes. What grows by the same amount in every iteration
becomes ``start + step * k`` for a counter ``k``; the condition then says for which ``k`` the body runs, provided that
it cannot become true again. In a launch, loops that need more than this are run iteration by iteration, up to a
limit. Everything else that changes is unknown in the loop and behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from manycl.analysis.interpreter.abstract import ControlState, Env, Exits, Unanalysable, meet
from manycl.analysis.interpreter.values import (
    LOST,
    OPAQUE,
    Aggregate,
    Cell,
    Opaque,
    Pointer,
    Target,
    Vector,
    blank,
    integer,
)
from manycl.analysis.reading.tree import CType, Node, assigned, loop_head
from manycl.analysis.summary import Loop
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.closed_form import ClosedForms, Form, Iteration
from manycl.analysis.symbolic.expr import Expr


@dataclass(slots=True)
class Parts:
    """A loop: its condition (None: always true) is tested before the body unless ``after``."""

    condition: Node | None
    body: Node
    step: Node | None
    after: bool
    line: int
    name: str = ""
    label: str = ""  # of a loop made by jumps to it


class LoopParts(ClosedForms):
    """Loops, as they are written."""

    assigned_refs: dict[int, frozenset[int]]
    plain_bodies: dict[int, bool]

    def parts(self, node: Node) -> Parts:
        """The parts of a loop that is about to run: what comes before its first iteration is executed."""
        line, head = self.line(node.start), loop_head(self.unit, node)
        if head is None:
            raise Unanalysable(f"the head of a loop that is not understood, line {line}")
        name, init = "", head.init
        if init is not None:
            self.execute(init)
            if init.children and (init.kind == "DECL_STMT" or init.op == "="):
                name = init.children[0].name
        return Parts(head.condition, head.body, head.step, node.kind == "DO_STMT", line, name, node.name)

    def assigned_cells(self, node: Node) -> set[int]:
        """Variables of the function that are assigned by name somewhere in a loop."""
        refs = self.assigned_names(node)
        return {cell for ref in refs if (cell := self.cell(ref)) is not None and cell in self.env}

    def assigned_names(self, node: Node) -> frozenset[int]:
        refs = self.assigned_refs.get(id(node))
        if refs is None:
            refs = self.assigned_refs[id(node)] = _assigned(node)
        return refs

    def leaves_alone(self, body: Node) -> bool:
        """Return whether a body plainly changes nothing that the form of its loop depends on: then it need not be
        tried."""
        found = self.plain_bodies.get(id(body))
        if found is None:
            found = self.plain_bodies[id(body)] = self.is_plain(body)
        if not found:
            return False
        cells = [self.cell(ref) for ref in self.assigned_names(body)]
        return all(cell is None or cell not in self.env or _is_floating(self.types[cell]) for cell in cells)

    def is_plain(self, body: Node) -> bool:
        """Neither jumps nor ways to change a private variable but by its name."""
        for node in body.walk():
            if node.kind in ("BREAK_STMT", "CONTINUE_STMT", "RETURN_STMT", "GOTO_STMT", "LABEL_STMT", "CALL_EXPR"):
                if node.kind != "CALL_EXPR" or any(_is_private_pointer(c.type) for c in node.children[1:]):
                    return False
            elif (node.kind == "UNARY_OPERATOR" and node.op == "&") or (
                node.op in ("", "*") and node.children and _is_private_pointer(node.children[0].type)
            ):
                return False
        return True


def _is_floating(type_: CType) -> bool:
    return type_.kind in ("float", "vector") and type_.base in ("float", "double", "half")


def _is_private_pointer(type_: CType) -> bool:
    space = type_.target.address_space if type_.kind == "pointer" and type_.target is not None else "global"
    return type_.kind == "pointer" and space not in ("global", "local", "constant")


def _assigned(node: Node) -> frozenset[int]:
    found = set()
    for each in node.walk():
        target = assigned(each)
        while target is not None:
            if target.kind == "DECL_REF_EXPR":
                found.add(target.ref)
                break
            through = target.kind in ("PAREN_EXPR", "UNEXPOSED_EXPR", "MEMBER_REF_EXPR", "ARRAY_SUBSCRIPT_EXPR")
            if (
                not through
                or not target.children
                or (target.children[0].type.kind == "pointer" and target.kind == "MEMBER_REF_EXPR")
            ):
                break
            target = target.children[0]
            if target.type.kind == "pointer" and target.kind != "UNEXPOSED_EXPR":
                break
    return frozenset(found)


MOST_UNROLLED = 64  # iterations
MOST_TRIAL_STEPS = 40_000
_ROUNDS = 6  # of finding out what a loop changes


class _TooLongError(Exception):
    """A loop cannot be run to its end within the limits."""


class Loops(LoopParts):
    """Loops, run abstractly."""

    def loop(self, node: Node) -> None:
        if node.name:  # jumps from before it
            self.arrive(node.name)
        parts = self.parts(node)
        if self.path is None:
            return
        if parts.after is False and parts.condition is not None and self.never(parts.condition):
            self.condition(parts.condition)
            return
        self.loops_begun += 1
        changed = self.assigned_cells(node)
        found, changed = self.discover(parts, changed)
        form = self.form(parts.line, found, changed)
        if self.concrete and form.improvable and self.unrolled(parts):
            return
        self.close(parts, form, changed)

    def never(self, condition: Node) -> bool:
        """Return whether the condition is false at once."""
        self.silent += 1
        path, env = self.path, self.env
        self.env = self.copied(env)
        try:
            return self.condition(condition) == x.ZERO
        finally:
            self.path, self.env = path, env
            self.silent -= 1

    # -- finding out what it does

    def discover(self, parts: Parts, changed: set[int]) -> tuple[Iteration, set[int]]:
        for _ in range(_ROUNDS):
            found = self.one_iteration(parts, changed)
            more: set[int] = set()
            ends = [*([found.end] if found.end is not None else []), *found.breaks]
            for cell in found.start:
                if cell not in changed and any(end.env.get(cell) is not found.start[cell] for end in ends):
                    more.add(cell)
            if not more:
                return found, changed
            changed = changed | more
        raise Unanalysable(f"what the loop in line {parts.line} changes is not found out")

    def one_iteration(self, parts: Parts, changed: set[int]) -> Iteration:
        assert self.path is not None
        path, env, loops = self.path, self.env, self.loops
        returns, jumps = len(self.frames[-1].returns), self.jumps()
        names, lossy = dict(self.names), self.lossy
        first = self.names.get("?", 0)
        self.silent += 1
        self.discovering += 1
        start = self.copied(env)
        for cell in changed:
            start[cell] = self.symbol(cell, env[cell])
        self.env = dict(start)
        tried = self.concrete or not self.leaves_alone(parts.body)
        condition, breaks = self.turn(parts, self.execute if tried else lambda body: None, True)
        end = ControlState(self.path, self.env) if self.path is not None else None
        returned = len(self.frames[-1].returns) > returns or self.jumps() != jumps
        del self.frames[-1].returns[returns:]
        self.jump_back(jumps)
        self.silent -= 1
        self.discovering -= 1
        base = path
        self.path, self.env, self.loops = path, env, loops
        self.names = names | {"?": self.names.get("?", 0)}
        lost = self.lossy != lossy
        return Iteration(start, condition, end, breaks, returned, base, first, lost, parts.after)

    def turn(self, parts: Parts, run: Callable[[Node], None], narrows: bool) -> tuple[Expr, list[ControlState]]:
        """Do an iteration, under its condition if that ``narrows`` the path; return the condition, and the breaks."""
        condition = x.ONE
        self.exits.append(Exits(continues=[], label=parts.label))
        if not parts.after and parts.condition is not None and self.path is not None:
            condition = self.condition(parts.condition)
            if narrows and self.path is not None:
                self.path = self.path.where(condition)
        run(parts.body)
        self.meet_continues()
        if parts.after and parts.condition is not None and self.path is not None:
            condition = self.condition(parts.condition)
        if parts.step is not None and self.path is not None:
            self.value(parts.step)
        return condition, self.exits.pop().breaks

    def meet_continues(self) -> None:
        states = list(self.exits[-1].continues or [])
        states += self.frames[-1].jumps.pop(self.exits[-1].label, [])
        self.exits[-1].continues = []
        self.note(states)
        self.continue_from(states)

    def symbol(self, cell: int, value: Cell) -> Cell:
        """Return what stands for a variable at the start of any iteration."""
        type_ = self.types[cell]
        if isinstance(value, Aggregate):
            return blank()
        if isinstance(value, Pointer):
            offset = x.var(self.name(f"@{cell}"), -(1 << 62), 1 << 62)
            return Pointer(tuple(Target(t.condition, t.base, x.add(t.offset, offset)) for t in value.targets))
        width = integer(type_)
        if width is not None and type_.kind != "vector":
            return x.var(self.name(f"@{cell}"), *x.type_range(*width))
        if width is None:  # one of its own, so that what has changed is seen
            return Vector(tuple(Opaque() for _ in range(type_.lanes))) if type_.kind == "vector" else Opaque()
        return self.fresh_of(type_)

    # -- running it

    def close(self, parts: Parts, form: Form, changed: set[int]) -> None:
        """Run the body once for all iterations, then go on behind the loop."""
        assert self.path is not None
        path, env, loops = self.path, self.env, self.loops
        returns, jumps = len(self.frames[-1].returns), self.jumps()
        highest = x.INFINITE if form.trips is None else form.trips.high
        breaks: list[ControlState] = []
        head: Env = dict(env)
        if highest > 0:
            plain = all(s == x.ONE and env[c] == x.ZERO for c, s in form.steps.items() if s != x.ZERO)
            name = self.name(parts.name if parts.name and plain else f"{parts.name or 'k'}#")
            counter = x.var(name, 0, highest - 1 if highest < x.INFINITE else x.INFINITE)
            loop = Loop(name, form.trips, form.exact, parts.line, form.reason)
            if counter.op == "var":
                self.loops = (*loops, loop)
                if not self.silent:
                    self.all_loops.append(loop)
            head = self.head(form, env, counter)
            breaks = self.iterate(parts, form, counter, head)
        self.loops = loops
        returned = len(self.frames[-1].returns) > returns
        self.path, self.env = path, self.behind(form, env, head, breaks)
        if returned:
            del self.frames[-1].returns[returns:]
            type_ = self.unit.functions[self.frames[-1].function].result
            value: Cell = OPAQUE if type_.kind == "void" else self.unknown_of(type_)
            self.frames[-1].returns.append((self.left_perhaps(changed, parts), value))
        left = [label for label, count in self.jumps().items() if count > jumps.get(label, 0)]
        self.jump_back(jumps)
        for label in left:
            self.frames[-1].jumps.setdefault(label, []).append(self.left_perhaps(changed, parts))
        if self.path is not None and not parts.after and parts.condition is not None:
            before = self.counted_apart()
            self.condition(parts.condition)
            self.count_where(self.ended(form), before)

    @staticmethod
    def ended(form: Form) -> Expr:
        """Return whether the condition ends the loop, not a break."""
        if form.out is None or form.whole is None:
            return x.ONE
        return x.less(form.whole, x.add(form.out, x.ONE))

    def iterate(self, parts: Parts, form: Form, counter: Expr, head: Env) -> list[ControlState]:
        self.env = dict(head)
        if form.trips is not None and self.path is not None:
            self.path = self.path.where(x.less(counter, form.trips))
        return self.turn(parts, self.iteration, not form.exact)[1]

    loops_begun = 0

    def iteration(self, body: Node) -> None:
        """Run a body, and count the iteration unless it has loops of its own."""
        path, begun = self.path, self.loops_begun
        self.looping += 1
        self.execute(body)
        self.looping -= 1
        if self.loops_begun == begun and path is not None:
            self.count("iteration", path=path)

    def head(self, form: Form, env: Env, counter: Expr) -> Env:
        head = dict(env)
        if counter == x.ZERO:  # the only iteration
            return head
        for cell, step in form.steps.items():
            head[cell] = _grown(env[cell], x.mul(step, counter))
        for cell, value in form.settled.items():
            head[cell] = meet(x.equal(counter, x.ZERO), env[cell], value)
        for cell, bounds in form.lost.items():
            head[cell] = self.lost(cell, env[cell], bounds)
        return head

    def lost(self, cell: int, before: Cell, bounds: tuple[int, int] | None) -> Cell:
        if isinstance(before, Aggregate):
            return blank()
        if isinstance(before, Pointer):
            return LOST
        if bounds is not None:
            return self.fresh(*bounds, f"a variable changed in a loop, line {self.line()}")
        return self.fresh_of(self.types[cell], f"a variable changed in a loop, line {self.line()}")

    def behind(self, form: Form, env: Env, head: Env, breaks: list[ControlState]) -> Env:
        """Return what variables hold behind the loop."""
        result = dict(env)
        known = form.exact and form.trips is not None
        times: Expr | None = None
        if known and not breaks:
            times = form.trips
        elif known and form.trips is not None:  # the iteration that is left is not completed
            whole = x.subtract(form.trips, x.ONE)
            times = whole if form.whole is None else x.minimum(form.whole, whole)
        for cell, step in form.steps.items():
            untouched = all(state.env.get(cell) == head.get(cell) for state in breaks)
            if step == x.ZERO and untouched:
                continue
            if times is not None and untouched:
                result[cell] = _grown(env[cell], x.mul(step, x.maximum(times, x.ZERO)))
            else:
                most = form.trips.high if form.trips is not None else x.INFINITE
                some = self.fresh(0, max(most, 0), f"how often a loop runs, line {self.line()}")
                result[cell] = _grown(env[cell], x.mul(step, some)) if untouched else self.lost(cell, env[cell], None)
        for cell, value in form.settled.items():
            if times is not None and not breaks:
                result[cell] = meet(x.less(x.ZERO, times), value, env[cell])
            else:
                result[cell] = self.lost(cell, env[cell], None)
        for cell, bounds in form.lost.items():
            result[cell] = self.lost(cell, env[cell], bounds)
        return result

    def left_perhaps(self, changed: set[int], parts: Parts) -> ControlState:
        """Some iteration may have left the loop for elsewhere: then nothing behind the loop runs."""
        assert self.path is not None
        gone = self.fresh(0, 1, f"whether the loop in line {parts.line} is left")
        path = self.path.where(gone)
        assert path is not None
        env = dict(self.env)
        for cell in changed:
            env[cell] = self.lost(cell, env[cell], None)
        self.path = self.path.where(x.negate(gone))
        return ControlState(path, env)

    def jumps(self) -> dict[str, int]:
        """Return the number of states that wait at each label for the jumps to it to join."""
        return {label: len(states) for label, states in self.frames[-1].jumps.items()}

    def jump_back(self, jumps: dict[str, int]) -> None:
        """Take back the jumps since."""
        found = self.frames[-1].jumps
        self.frames[-1].jumps = {label: found[label][:count] for label, count in jumps.items()}

    # -- iteration by iteration

    def unrolled(self, parts: Parts) -> bool:
        """Run every iteration; false, and nothing has happened, if there are too many."""
        path, env, loops = self.path, self.env, self.loops
        returns, depth, frames = len(self.frames[-1].returns), len(self.exits), len(self.frames)
        jumps = self.jumps()
        names, recorded, inside = dict(self.names), self.recorded(), (self.looping, self.lone)
        self.env = self.copied(env)
        try:
            self.run_all(parts, self.steps + MOST_TRIAL_STEPS)
        except _TooLongError:
            self.path, self.env, self.loops = path, env, loops
            self.forget(recorded)
            del self.exits[depth:], self.frames[frames:]
            self.looping, self.lone = inside
            del self.frames[-1].returns[returns:]
            self.jump_back(jumps)
            self.names = names | {"?": self.names.get("?", 0)}
            return False
        return True

    def run_all(self, parts: Parts, most_steps: int) -> None:
        ends: list[ControlState] = []
        for _ in range(MOST_UNROLLED + 1):
            if not parts.after and parts.condition is not None:
                self.test(parts.condition, ends)
            if self.dead():
                break
            self.exits.append(Exits(continues=[], label=parts.label))
            self.iteration(parts.body)
            self.meet_continues()
            ends.extend(self.exits.pop().breaks)
            if self.dead():
                break
            if parts.after and parts.condition is not None:
                self.test(parts.condition, ends)
            if self.dead():
                break
            if parts.step is not None:
                self.value(parts.step)
            if self.steps > most_steps:
                raise _TooLongError
        else:
            raise _TooLongError
        self.continue_from(ends)

    def test(self, condition: Node, ends: list[ControlState]) -> None:
        holds = self.condition(condition)
        if self.path is None:
            return
        over = self.path.where(x.negate(holds))
        if over is not None:
            ends.append(ControlState(over, self.copied(self.env)))
        self.path = self.path.where(holds)


def _grown(value: Cell, amount: Expr) -> Cell:
    if isinstance(value, Expr):
        return x.add(value, amount)
    return value.moved(amount) if isinstance(value, Pointer) else value
