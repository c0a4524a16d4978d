"""The fields of application files, version 1, as fields.toml has them, with the kinds of values that it names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from manycl.applications.assemble import EdgeText
from manycl.applications.formats.kinds import (
    EXPRESSION,
    Either,
    FieldTable,
    Listed,
    Named,
    Scope,
    ValueKind,
    as_it_is,
    placed,
    read_tables,
    repetitions,
    some,
    text,
    whole,
)
from manycl.graph.graph import Placement
from manycl.utilities.json_lines import Location

_EDGE = re.compile(r"\s*(\S+)\.(\w+)\s*->\s*(\S+)\.(\w+)\s*\Z")


def _edge(value: str, scope: Scope, place: Location) -> EdgeText:
    match = _EDGE.match(text(value, scope, place))
    if match is None:
        raise place.error(f"{value!r:.80} is not an edge", hint="an edge looks like '0.2 -> 2.0' or 'q.C -> a.A'")
    return EdgeText((match[1], match[2]), (match[3], match[4]), place)


def _id(value: Any, scope: Scope, place: Location) -> str:
    """A name, which may be a number."""
    return text(str(value), scope, place)


def _kinds(tables: dict[str, FieldTable]) -> dict[str, ValueKind]:
    """The kinds by the names that the file has for them; tables are kinds, too."""
    string, number, words = ValueKind("string"), ValueKind("number"), ValueKind("string", text, minLength=1)
    plain, edge, device = ValueKind("string", minLength=1), ValueKind("string", _edge), ValueKind("string", text)
    bounds, ids = Listed(EXPRESSION, 2, 2), Listed(Either(number, string, read=placed(_id)), 1)
    contents = ["random", "zeros", "range", "undefined"]

    def chosen(value: Any, scope: Scope, place: Location) -> Any:
        if not isinstance(value, dict):
            return text(value, scope, place)
        fields = tables["placement"].fields_of(value, scope, place)
        preferred = fields["then" if fields["if"] else "else"]
        only, never, at_most = fields["only"], fields["never"], fields["at_most"]
        return Placement(only, never, at_most, preferred) if only or never or at_most else preferred

    argument = Either(EXPRESSION, ValueKind("null"), Listed(EXPRESSION, 1), tables["argument"])
    kinds: dict[str, ValueKind] = {
        "version of the format": ValueKind("number", const=1),
        "true": ValueKind("boolean", const=True),
        "string": string,
        "plain text": plain,
        "text": words,
        "texts": Listed(words),
        "types": Listed(plain, 1),
        "expression": EXPRESSION,
        "expressions": Listed(EXPRESSION, 1),
        "positive number": ValueKind("number", exclusiveMinimum=0),
        "count": whole(1),
        "index": whole(0),
        "tenths": whole(0, 10),
        "id": Either(number, plain, read=_id),
        "ids": ids,
        "sizes": some(whole(1), 1, 3),
        "shape": some(whole(1), 1, 8),
        "offset": Listed(whole(0), 1, 3),
        "bounds": bounds,
        "macros": Named(EXPRESSION, identifiers=True),
        "parameters": Named(Either(number, string, ValueKind("null")), identifiers=True, read=as_it_is),
        "repeat": Named(Either(EXPRESSION, Listed(EXPRESSION)), 1, identifiers=True, read=repetitions),
        "counts": Named(whole(1)),
        "objective": ValueKind("string", enum=["time", "energy", "edp"]),
        "args": Either(Listed(argument, read=as_it_is), Named(argument, read=as_it_is)),
        "initial contents": tables["init"].shortened("kind", ValueKind("string", enum=contents)),
        "contents": ValueKind("string", enum=[*contents, "constant", "file"]),
        "buffers": Named(tables["buffer"]),
        "temporary buffers": Named(tables["temporary"]),
        "annotations": Named(tables["annotation"], read=as_it_is),
        "elements": Either(bounds, tables["directions"]),
        "device": Either(device, tables["placement"], read=chosen),
        "name of a device": device,
        "names of devices": some(words),
        "kinds of devices": some(ValueKind("string", enum=["cpu", "gpu", "accelerator"])),
        "versions": Listed(tables["version"], 1),
        "steps": Listed(tables["step"], 1),
        "kernels": Listed(tables["kernel"], 1),
        "edge list": Listed(edge),
        "edges": Listed(Either(edge, tables["edge_group"])),
        "components": Listed(tables["component"].shortened("kernels", ids)),
        "outputs": Listed(tables["output"].shortened("buffer", string)),
        "pairs of buffers": Listed(Listed(ValueKind("string", placed(text), minLength=1), 2, 2)),
    }
    assert kinds.keys().isdisjoint(tables)
    return kinds | tables


TABLES = read_tables(Path(__file__).with_suffix(".toml"), _kinds, {"annotation": 1, "directions": 1, "placement": 1})
"""By name."""
DOCUMENT, ARGUMENT = TABLES["document"], TABLES["argument"]
OF_KERNELS = ("id", "name", "args", "versions", "annotations")
"""Fields that a group does not have."""
NOT_HANDED_DOWN = ("options", "macros", "repeat", "kernels", "description")
"""Fields that a group's kernels, a kernel's versions and a version's kernels do not have from what is around them (of
build options and macros, which add up, see :class:`~manycl.applications.formats.kinds.Fields`)."""
