"""The text of a group function: regions as loops over work-items, and what lies around them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from manycl.analysis.reading.tree import Node, stripped
from manycl.analysis.work_group.contexts import Contexts, Mode
from manycl.analysis.work_group.parts import (
    CutBranch,
    CutJump,
    CutLoop,
    CutScope,
    ParallelRegion,
    Part,
    assignments,
    jumps,
    nodes_of,
)
from manycl.analysis.work_group.passes.strides import Stepped
from manycl.analysis.work_group.queries import Edit
from manycl.analysis.work_group.syntax import NoGroupFunctionError, Statement, Variable
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
    """The loops of a kernel at which tiles may be put away, as they are written. A tile that has run a strip of a loop
    puts away what its work-items keep, and goes on there when all tiles of its block have run the strip, so that what
    one has read is still in the cache (register tiles, strip mining: Lam, Rothberg and Wolf, ASPLOS 1991). Work-items
    do not wait for one another in such kernels: each computes what it would have, in the same order. ``@IN_STRIPS`` is
    1 where the text is that of tiles that are put away, in a ``struct @tile``."""

    texts: Texts
    loops: int = 0
    _kept: dict[int, Variable] = field(default_factory=dict)

    def may_be_cut(self, loop: CutLoop) -> bool:
        """Return whether all that there is at a loop's head can be put away; the loop is within no other one, and all
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
        """Return the variables that may have a value at a loop's head which cannot be computed again."""
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
        """Return the C statements that copy variables; ``words``: the template of one, without its name."""
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
        """The members of ``struct @tile``: the variables that are saved between strips, as C declarations."""
        found = "int at; "
        for variable in self._kept.values():
            is_same = self.texts.contexts.modes[variable.ref] == Mode.SAME
            found += f"{self.texts.typed(variable, '') if is_same else self.texts.context_array(variable)}; "
        return found


def _is_fixed(variable: Variable, loop: Node) -> bool:
    """Return whether a variable of the tile is declared so that nothing can be assigned to it: what is declared anew,
    as what is outside of the loop is, keeps no ``const`` that is written before it."""
    written = variable.scope is loop or variable.declarator.startswith("*")
    return variable.node.type.const and (written or re.search(r"\b(__)?const\b", variable.specifiers) is None)


MOST_TWICE = 2
"""Levels of code that is there twice: for groups of which all work-items go on, and for others."""


@dataclass(slots=True)
class GroupEmitter(Texts):
    """Writes one kernel's group function. The text uses macros of its surroundings: ``@ITEMS`` opens the loops over
    work-items, with the pragmas of a loop without dependences, ``@ITEMS_CHECKED`` without such a promise, ``@END``
    closes them, ``@EXTENT`` is the extents of context arrays and ``@ALL`` the number of work-items."""

    _alive: bool = False
    _masks: list[str] = field(default_factory=list)  # of the work-items that run what is written, innermost last
    _loops: list[int] = field(default_factory=list)  # masked loops: how many masks there were outside of each
    _counter: int = 0
    _twice: int = 0
    _within: int = 0  # cut loops around what is written
    _strips: Strips = field(init=False)

    # parts

    def body(self, parts: list[Part]) -> str:
        """The statements of the group function, its arrays included."""
        self._alive = self._must_count(parts)
        self._strips = Strips(self)
        modes, parameters = self.contexts.modes, [v for v in self.contexts.variables.values() if v.scope is None]
        start = "".join(self.copied_out(v) for v in parameters if modes[v.ref] == Mode.COPIED)
        start += "".join(f"{v.name}_@{AT} = {v.name};" for v in parameters if modes[v.ref] == Mode.PLACED)
        if self._alive:
            self.arrays.append("uchar @alive @EXTENT;")
            start += f"@alive{AT} = 1;"
            self._masks.append("@alive")
        text = self._parts(parts)
        opening = f"@ITEMS {start} @END\n" if start else ""
        whole = opening + text
        if self._strips.loops:
            whole = self._strips.resumed(whole)
        return "\n".join(self.arrays) + "\n" + whole

    @property
    def put_away(self) -> str:
        """The members of a structure for a tile that is put away at a loop's head; "" where none is."""
        return self._strips.members if self._strips.loops else ""

    def _must_count(self, parts: list[Part]) -> bool:
        """Return whether some work-items may return while others go on to further regions."""
        for index, part in enumerate(parts):
            returns = any(_returns(node) for node in nodes_of(part))
            if returns and (index + 1 < len(parts) or not isinstance(part, ParallelRegion)):
                return True
        return False

    def _parts(self, parts: list[Part]) -> str:
        found: list[str] = []
        for index, part in enumerate(parts):
            rest = parts[index + 1 :]
            found.append(self._part(part))
            if not isinstance(part, ParallelRegion) or not any(_returns(s.node) for s in part.statements):
                continue
            if rest and self._masks == ["@alive"] and self._twice < MOST_TWICE:
                self._twice += 1
                masked = self._parts(rest)
                self._masks.pop()
                before, self._alive = self._alive, any(_returns(n) for p in rest for n in nodes_of(p))
                if not self._alive:
                    plain = self._parts(rest)
                    count = f"@count{part.number}"
                    # (what the rest steps for all of them would not be stepped any more)
                    none = " else break;" if self._within else ""
                    found.append(f"if ({count} == @ALL) {{\n{plain}\n}} else if ({count}) {{\n{masked}\n}}{none}")
                else:
                    found.append(masked)
                self._alive = before
                self._masks.append("@alive")
                self._twice -= 1
                return "\n".join(found)
        return "\n".join(found)

    def _part(self, part: Part) -> str:
        match part:
            case ParallelRegion():
                return self._region(part)
            case CutScope():
                return f"{{\n{self._parts(part.parts)}\n}}"
            case CutJump():
                return f"{self.unit.words(part.node)};"
            case CutBranch():
                return self._masked_branch(part) if part.masked else self._branch(part)
            case CutLoop():
                return self._masked_loop(part) if part.masked else self._loop(part)

    def _branch(self, part: CutBranch) -> str:
        text = f"if ({self.words(part.condition)}) {{\n{self._parts(part.then)}\n}}"
        if part.other is not None:
            text += f" else {{\n{self._parts(part.other)}\n}}"
        return text

    def _loop(self, part: CutLoop) -> str:
        head = part.head
        is_outermost = not self._within and not self._masks
        self._within += 1
        body = f"{{\n{self._parts(part.parts)}\n}}"
        self._within -= 1
        if part.node.kind == "WHILE_STMT":
            assert head.condition is not None
            return f"while ({self.words(head.condition)}) {body}"
        if part.node.kind == "DO_STMT":
            assert head.condition is not None
            return f"do {body} while ({self.words(head.condition)});"
        init, condition, step = (
            self.words(node).rstrip().rstrip(";") if node is not None else "" for node in part.heads()
        )
        if is_outermost and self._strips.may_be_cut(part):
            return self._strips.loop(part, (init, condition, step), body)
        return f"for ({init}; {condition}; {step}) {body}"

    # regions

    def _region(self, region: ParallelRegion) -> str:
        edits = [edit for statement in region.statements for edit in self._jumps(statement.node)]
        body = "".join(self.text(statement.start, statement.end, edits) for statement in region.statements)
        again = "\n".join(self._once(statement) for statement in region.statements)
        return f"{self._items(region.number, [s.node for s in region.statements], body)}\n{again}".rstrip()

    def _items(self, number: int, nodes: list[Node], body: str, masked: bool = True) -> str:
        """The loops over work-items around ``body``."""
        used = self.contexts.used_in.get(number, set())
        declared = {
            child.ref
            for node in nodes
            if node.kind == "DECL_STMT"
            for child in node.children
            if child.kind == "VAR_DECL"
        }
        written = self.contexts.written_in.get(number, set())
        before, prologue, epilogue = "", "", ""
        variables = self.contexts.variables
        for variable in self.contexts.needed_again([ref for ref in used if ref not in declared]):
            if variable.ref not in declared:
                prologue += self.computed_again(variable)
        for ref in sorted(used, key=lambda r: variables[r].node.start):
            variable, mode = variables[ref], self.contexts.modes[ref]
            name = variable.name
            if mode == Mode.COPIED:
                if ref not in declared:
                    prologue += self.copied_in(variable)
                if ref in written:
                    epilogue += self.copied_out(variable)
            elif mode == Mode.SAME and ref in written and ref not in declared:
                before += f"const __typeof__({name}) {name}_@before = {name};"
                prologue += f"{self.typed(variable, '')} = {name}_@before;"
        returns = any(_returns(node) for node in nodes)
        label = f"@end{number}_{self._next()}"
        body = body.replace("@END_LABEL", label)
        behind = f"{label}:;" if f"goto {label}" in body else ""
        count = ""
        if returns and self._alive:
            prologue += "uchar @on = 1;"
            epilogue += f"@alive{AT} = @on; @count{number} += @on;"
            count = f"uint @count{number} = 0;"
        inner = f"{prologue}\n{body}\n{behind}{epilogue}"
        if masked and self._masks:
            inner = f"if ({self._masks[-1]}{AT}) {{\n{inner}\n}}"
        items = "@ITEMS" if self.is_safe(nodes) else "@ITEMS_CHECKED"
        block = f"{items}\n{inner}\n@END"
        if before:
            block = f"{{ {before}\n{block}\n}}"
        return f"{count}\n{block}" if count else block

    def _once(self, statement: Statement) -> str:
        """Return what a region's statement does to variables of the group, done once behind it."""
        node, found = statement.node, list[str]()
        if node.kind == "DECL_STMT":
            for child in node.children:
                variable = self.contexts.variables.get(child.ref)
                if variable is not None and self.contexts.modes[child.ref] == Mode.SAME:
                    value = f" = {self.words(variable.value)}" if variable.value is not None else ""
                    found.append(f"{self.typed(variable, '')}{value};")
        else:
            for each in assignments(node):
                if self.contexts.modes.get(stripped(each.children[0]).ref) == Mode.SAME:
                    found.append(f"{self.words(each)};")
        return "\n".join(found)

    def _jumps(self, node: Node) -> list[Edit]:
        """The edits of what leaves a region early."""
        edits: list[Edit] = []
        for each in node.walk():
            if each.kind == "RETURN_STMT":
                on = "@on = 0; " if self._alive else ""
                clear = "".join(f"{mask}{AT} = 0; " for mask in self._masks if mask != "@alive")
                edits.append((each.start, each.end, f"{{ {on}{clear}goto @END_LABEL; }}"))
        if self._loops:
            for each in jumps(node):
                masks = self._masks[self._loops[-1] :]
                if each.kind == "CONTINUE_STMT":  # it is there again in the next turn
                    masks = masks[1:]
                clear = "".join(f"{mask}{AT} = 0; " for mask in masks)
                edits.append((each.start, each.end, f"{{ {clear}goto @END_LABEL; }}"))
        elif any(True for _ in jumps(node)):
            raise NoGroupFunctionError("a jump out of a loop that was taken apart")
        return edits

    # masks

    def _masked_branch(self, part: CutBranch) -> str:
        number = self._next()
        then, other, count = f"@then{number}", f"@else{number}", f"@taken{number}"
        self.arrays.append(f"uchar {then} @EXTENT;")
        text = f"{then}{AT} = @c;"
        if part.other is not None:
            self.arrays.append(f"uchar {other} @EXTENT;")
            text += f"{other}{AT} = !@c;"
        cond = f"const uchar @c = ({self.words(part.condition)}) ? 1 : 0; {text} {count} += @c;"
        if self._masks:
            clear = f"{then}{AT} = 0;" + (f"{other}{AT} = 0;" if part.other is not None else "")
            items = self._items(
                part.number, [part.condition], f"if ({self._masks[-1]}{AT}) {{ {cond} }} else {{ {clear} }}", False
            )
        else:
            items = self._items(part.number, [part.condition], cond, False)
        masked = f"if ({count}) {{\n{self._under(then, part.then)}\n}}"
        if part.other is not None:
            masked += f"\nif ({count} != @ALL) {{\n{self._under(other, part.other)}\n}}"
        if not self._masks and self._twice < MOST_TWICE:
            self._twice += 1
            masked = f"if ({count} == @ALL) {{\n{self._parts(part.then)}\n}} else {{\n{masked}\n}}"
            self._twice -= 1
        return f"{{ uint {count} = 0;\n{items}\n{masked}\n}}"

    def _under(self, mask: str, parts: list[Part]) -> str:
        self._masks.append(mask)
        text = self._parts(parts)
        self._masks.pop()
        return text

    def _masked_loop(self, part: CutLoop) -> str:
        number = self._next()
        mask, inner, count = f"@loop{number}", f"@turn{number}", f"@left{number}"
        self.arrays += [f"uchar {mask} @EXTENT;", f"uchar {inner} @EXTENT;"]
        start = f"{mask}{AT} = {self._masks[-1] + AT if self._masks else '1'};"
        init_number, condition_number, step_number = part.numbers
        text = ""
        stepping = part.stepped if part.stepped and part.stepped.variable in self.contexts.stepped else None
        if part.head.init is not None and stepping is None:
            words = self.words(part.head.init).rstrip().rstrip(";") + ";"
            text += self._items(init_number, [part.head.init], words) + "\n"
        text += f"@ITEMS {start} @END\n"
        tested = "1"
        if part.head.condition is not None:
            tested = f"({self.words(part.head.condition)})"
        nodes = [part.head.condition] if part.head.condition is not None else []
        self._masks.append(mask)
        test = f"uint {count} = 0;\n" + self._items(
            condition_number, nodes, f"const uchar @c = {tested} ? 1 : 0; {mask}{AT} = @c; {count} += @c;"
        )
        step = ""
        if part.head.step is not None and stepping is None:
            step = self._items(step_number, [part.head.step], self.words(part.head.step) + ";")
        self._loops.append(len(self._masks) - 1)
        self._masks.append(inner)
        body = self._parts(part.parts)
        self._masks.pop()
        self._loops.pop()
        self._masks.pop()
        turn = f"@ITEMS {inner}{AT} = {mask}{AT}; @END"
        if stepping is not None:
            return self._stepped_loop(part, stepping, (text, test, f"{turn}\n{body}"), count)
        leave = f"if (!{count}) break;"
        if part.node.kind == "DO_STMT":
            return f"{{ {text} for (;;) {{\n{turn}\n{body}\n{test}\n{leave}\n}} }}"
        return f"{{ {text} for (;;) {{\n{test}\n{leave}\n{turn}\n{body}\n{step}\n}} }}"

    def _stepped_loop(self, part: CutLoop, stepping: Stepped, texts: tuple[str, str, str], count: str) -> str:
        """A loop whose variable the group counts; without masks while all work-items are in it."""
        start, test, body = texts
        offset = self.offset(self.contexts.variables[stepping.variable])
        more = f"(long)({self.words(stepping.step)})" if stepping.step is not None else "1"
        nodes = [statement for inner in part.parts for statement in nodes_of(inner)]
        leaves = any(_returns(node) for node in nodes) or any(True for _ in jumps(part.head.body))
        if not leaves and not self._masks and self._twice < MOST_TWICE:
            self._twice += 1
            body = f"if ({count} == @ALL) {{\n{self._parts(part.parts)}\n}} else {{\n{body}\n}}"
            self._twice -= 1
        head = f"for (long {offset} = 0; ; {offset} {'-' if stepping.down else '+'}= {more})"
        return f"{{ {start} {head} {{\n{test}\nif (!{count}) break;\n{body}\n}} }}"

    def _next(self) -> int:
        self._counter += 1
        return self._counter


def _returns(node: Node) -> bool:
    return any(each.kind == "RETURN_STMT" for each in node.walk())
