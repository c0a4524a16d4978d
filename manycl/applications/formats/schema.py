"""Checks a document against the published schema, with messages that name the field.

In every ``anyOf`` of the schema the branches differ in the JSON type they take, so the message can be about the branch
that was meant. (The general validator of the jsonschema package takes longer for a thousand kernels than all the rest
of loading, and that of jsonschema-rs as long to import; the tests hold the two to the same verdicts.)
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from manycl.expressions import suggest
from manycl.utilities.json_lines import Location, Where

SCHEMA_PATH = Path(__file__).with_name("specification.schema.json")
_NAMES = {"object": "an object", "array": "a list", "string": "a string", "number": "a number", "null": "null"}
_TYPES: dict[type[Any], str] = {
    dict: "object",
    list: "array",
    str: "string",
    int: "number",
    float: "number",
    type(None): "null",
    bool: "boolean",
}

Node = dict[str, Any]


class ViolationError(Exception):
    """What is wrong, and where in the document."""

    def __init__(self, where: Where, problem: str) -> None:
        super().__init__(problem)
        self.where = where
        self.problem = problem


def check(document: Any, place: Location) -> None:
    """Raises SpecificationError at the first place where the document violates the schema."""
    try:
        _check(document, _schema(), ())
    except ViolationError as violation:
        raise place.at(*violation.where).error(violation.problem) from None
    except RecursionError:
        raise place.error("nested too deeply") from None


@cache
def _schema() -> Node:
    """The schema, in which each reference is the node that it refers to."""
    schema: Node = json.loads(SCHEMA_PATH.read_text("utf-8"))

    def linked(node: Any) -> Any:
        if isinstance(node, list):
            return [linked(inner) for inner in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return schema["$defs"][node["$ref"].removeprefix("#/$defs/")]
        for key, inner in node.items():
            node[key] = linked(inner)
        return node

    return linked(schema)  # type: ignore[no-any-return]


def _branches(node: Node) -> dict[str, Node]:
    """What a node asks of values of each JSON type that it takes; ``boolean`` is not a number."""
    if "by_type" not in node:
        if "anyOf" in node:
            found = [item for branch in node["anyOf"] for item in _branches(branch).items()]
        else:
            names = {_TYPES[type(value)] for value in node.get("enum", ())} or {node["type"]}
            found = [(name, node) for name in names]
        node["by_type"] = dict(found)
        assert len(node["by_type"]) == len(found), "two branches of an anyOf take the same type"
    return node["by_type"]  # type: ignore[no-any-return]


def _check(value: Any, node: Node, where: Where) -> None:
    """Raises ViolationError at the first place where a value is not what a node of the schema asks for."""
    if "const" in node:
        if _TYPES[type(value)] != _TYPES[type(node["const"])] or value != node["const"]:
            raise ViolationError(where, f"must be {json.dumps(node['const'])}, not {show(value)}")
        return
    kind, branches = _TYPES[type(value)], _branches(node)
    if kind not in branches and "enum" not in node:
        raise ViolationError(where, f"must be {' or '.join(_NAMES[name] for name in branches)}, not {show(value)}")
    node = branches.get(kind, node)
    if "enum" in node:
        if value not in node["enum"]:
            close = suggest(value, node["enum"]) if kind == "string" else ""
            raise ViolationError(where, f"must be one of {', '.join(node['enum'])}, not {show(value)}{close}")
    elif kind == "number":
        if "exclusiveMinimum" in node and value <= node["exclusiveMinimum"]:
            raise ViolationError(where, f"must be more than {node['exclusiveMinimum']}, not {show(value)}")
    elif kind == "string":
        if len(value) < node.get("minLength", 0):
            raise ViolationError(where, "must not be empty")
    elif kind == "array":
        _check_list(value, node, where)
    elif kind == "object":
        _check_object(value, node, where)


def _check_list(value: list[Any], node: Node, where: Where) -> None:
    least, most = node.get("minItems", 0), node.get("maxItems", len(value))
    if len(value) < least:
        words = "must not be an empty list" if least == 1 else f"must have at least {least} items"
        raise ViolationError(where, words)
    if len(value) > most:
        raise ViolationError(where, f"must have at most {most} items, not {len(value)}")
    for index, element in enumerate(value):
        _check(element, node["items"], (*where, index))


def _check_object(value: dict[str, Any], node: Node, where: Where) -> None:
    if len(value) < node.get("minProperties", 0):
        raise ViolationError(where, "must not be an empty object")
    known, others = node.get("properties", {}), node["additionalProperties"]
    pattern = node.get("propertyNames", {}).get("pattern", "")
    for key, element in value.items():
        inner = known.get(key, others)
        if inner is False:
            raise ViolationError((*where, key), f"unknown field{suggest(key, known)}")
        if pattern and not re.search(pattern, key):
            raise ViolationError((*where, key), "is not a name (letters, digits and _, no digit first)")
        _check(element, inner, (*where, key))
    for key in node.get("required", ()):
        if key not in value:
            raise ViolationError(where, f"the field {key!r} is missing")


def show(value: Any) -> str:
    """A JSON value in a few characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
