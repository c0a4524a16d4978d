"""Random helper functions: some return a value, some store through a pointer, some have out-parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.analysis.generated.accesses import PointerVariable
from tests.analysis.generated.expressions import INT, SHORT, SIZE, UINT, Variable
from tests.analysis.generated.statements import CallStatement, Helper, If, Leave, Set, Statement

if TYPE_CHECKING:
    from tests.analysis.generated.kernel import KernelMaker


def make_helper(k: KernelMaker) -> Helper:
    """A helper of the kernel; in tidy kernels none that stores."""
    makers = [_value_helper, _out_helper, *([] if k.tidy else [_writer_helper])]
    return k.r.choice(makers)(k, k.new("h"))


def _value_helper(k: KernelMaker, name: str) -> Helper:
    x, y = k.new("x"), k.new("y")
    kinds = [k.r.choice([INT, INT, UINT, SHORT]) for _ in range(2)]
    parameters = [(f"{t.name} {n}", n, "value", t) for n, t in zip((x, y), kinds, strict=True)]
    k.scope = [Variable(x, kinds[0]), Variable(y, kinds[1])]
    body: list[Statement] = []
    if k.chance(0.6):
        body.append(If(k.condition(1), [Leave("return", k.affine())]))
    found = Helper(name, parameters, [*body, Leave("return", k.affine())], k.r.choice([INT, INT, UINT, SIZE]))
    k.values.append(found)
    return found


def _writer_helper(k: KernelMaker, name: str) -> Helper:
    element = k.r.choice(k.data).kind
    q, x = k.new("q"), k.new("x")
    pointer = PointerVariable(q, element)
    parameters = [(f"global {element.name} *{q}", q, "pointer", element), (f"int {x}", x, "value", INT)]
    k.scope, k.pointers, k.inside = [Variable(x, INT)], [pointer], True
    body = [k.store_at(pointer)]
    if k.chance(0.4):
        body = [If(k.condition(1), [Leave("return")]), *body]
    if k.chance(0.4):
        body.append(k.loops.loop(lambda: [k.store_at(pointer)]))
    if k.writers and k.writers[0].parameters[0][3] == element and k.chance(0.5):
        body.append(CallStatement(k.writers[0], [pointer, k.affine()]))
    found = Helper(name, parameters, body)
    k.writers.append(found)
    k.inside = False
    return found


def _out_helper(k: KernelMaker, name: str) -> Helper:
    x, a, b = k.new("x"), k.new("o"), k.new("o")
    k.scope = [Variable(x, INT)]
    first = Set(a, INT, k.quasi(), f"*{a} = {{e}}")
    k.scope.append(Variable(a, INT, dereferenced=True))
    second = Set(b, INT, k.quasi(), f"*{b} = {{e}}")
    parameters = [(f"int {x}", x, "value", INT), (f"int *{a}", a, "out", INT), (f"int *{b}", b, "out", INT)]
    return Helper(name, parameters, [first, second])
