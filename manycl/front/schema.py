"""Checks a document against the published schema, with messages that name the field.

The schema file is compiled to functions once, for the keywords that it uses and no others; in every ``anyOf``
the branches differ in the JSON type they take, so the message can be about the branch that was meant. (The
general validator of the jsonschema package takes longer for a thousand kernels than all the rest of loading;
the tests hold the two to the same verdicts.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from manycl.expressions import suggest
from manycl.front.json_lines import Location, Where

SCHEMA_PATH = Path(__file__).with_name("specification.schema.json")

Check = Callable[[Any, Where], None]

_IGNORED = {"$schema", "$id", "$defs", "title", "description"}
_NAMES = {
    "object": "an object",
    "array": "a list",
    "string": "a string",
    "number": "a number",
    "null": "null",
}


class ViolationError(Exception):
    """What is wrong, and where in the document."""

    def __init__(self, where: Where, problem: str) -> None:
        super().__init__(problem)
        self.where = where
        self.problem = problem


def check(document: Any, place: Location) -> None:
    """Raises SpecificationError at the first place where the document violates the schema."""
    try:
        validator()(document, ())
    except ViolationError as violation:
        raise place.at(*violation.where).error(violation.problem) from None
    except RecursionError:
        raise place.error("nested too deeply") from None


@cache
def validator() -> Check:
    """The compiled schema: raises ViolationError."""
    return _Compiler(json.loads(SCHEMA_PATH.read_text("utf-8"))).compile("#")


def json_type(value: Any) -> str:
    """The JSON type of a parsed value; ``boolean`` is not a number."""
    match value:
        case bool():
            return "boolean"
        case None:
            return "null"
        case str():
            return "string"
        case int() | float():
            return "number"
        case list():
            return "array"
    return "object"


class _Compiler:
    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        self.done: dict[str, Check] = {}

    def compile(self, reference: str) -> Check:
        """The check of ``#`` or ``#/$defs/NAME``; recursive definitions are entered when they are used."""
        if reference not in self.done:
            self.done[reference] = lambda value, where: self.done[reference](value, where)
            node = self.schema if reference == "#" else self.schema["$defs"][reference.removeprefix("#/$defs/")]
            self.done[reference] = self.node(node)
        return self.done[reference]

    def node(self, node: dict[str, Any]) -> Check:
        checks = [getattr(self, "k_" + key)(node) for key in _KEYWORDS if key in node]
        if "$ref" in node:
            checks.append(self.compile(node["$ref"]))
        unknown = set(node) - set(_KEYWORDS) - _IGNORED - {"$ref", "required", "propertyNames"}
        assert not unknown, f"the schema uses {unknown}"
        if len(checks) == 1:
            return checks[0]  # type: ignore[no-any-return]

        def run(value: Any, where: Where) -> None:
            for c in checks:
                c(value, where)

        return run

    def types(self, node: dict[str, Any]) -> set[str]:
        """The JSON types that a node takes."""
        while "$ref" in node:
            node = self.schema["$defs"][node["$ref"].removeprefix("#/$defs/")]
        if "enum" in node:
            return {json_type(v) for v in node["enum"]}
        return {node["type"]} if "type" in node else set().union(*(self.types(b) for b in node["anyOf"]))

    def k_type(self, node: dict[str, Any]) -> Check:
        wanted = node["type"]

        def run(value: Any, where: Where) -> None:
            if json_type(value) != wanted:
                raise ViolationError(where, f"must be {_NAMES[wanted]}, not {show(value)}")

        return run

    def k_const(self, node: dict[str, Any]) -> Check:
        wanted = node["const"]

        def run(value: Any, where: Where) -> None:
            if json_type(value) != json_type(wanted) or value != wanted:
                raise ViolationError(where, f"must be {json.dumps(wanted)}, not {show(value)}")

        return run

    def k_enum(self, node: dict[str, Any]) -> Check:
        wanted = node["enum"]

        def run(value: Any, where: Where) -> None:
            if value not in wanted:
                close = suggest(value, wanted) if isinstance(value, str) else ""
                raise ViolationError(where, f"must be one of {', '.join(wanted)}, not {show(value)}{close}")

        return run

    def k_minimum_length(self, node: dict[str, Any], key: str, words: str) -> Check:
        bound = node[key]

        def run(value: Any, where: Where) -> None:
            if len(value) < bound:
                raise ViolationError(where, words)

        return run

    def k_minLength(self, node: dict[str, Any]) -> Check:  # noqa: N802
        return self.k_minimum_length(node, "minLength", "must not be empty")

    def k_minItems(self, node: dict[str, Any]) -> Check:  # noqa: N802
        least = node["minItems"]
        words = "must not be an empty list" if least == 1 else f"must have at least {least} items"
        return self.k_minimum_length(node, "minItems", words)

    def k_minProperties(self, node: dict[str, Any]) -> Check:  # noqa: N802
        return self.k_minimum_length(node, "minProperties", "must not be an empty object")

    def k_maxItems(self, node: dict[str, Any]) -> Check:  # noqa: N802
        bound = node["maxItems"]

        def run(value: Any, where: Where) -> None:
            if len(value) > bound:
                raise ViolationError(where, f"must have at most {bound} items, not {len(value)}")

        return run

    def k_exclusiveMinimum(self, node: dict[str, Any]) -> Check:  # noqa: N802
        bound = node["exclusiveMinimum"]

        def run(value: Any, where: Where) -> None:
            if value <= bound:
                raise ViolationError(where, f"must be more than {bound}, not {show(value)}")

        return run

    def k_items(self, node: dict[str, Any]) -> Check:
        item = self.node(node["items"])

        def run(value: Any, where: Where) -> None:
            for index, element in enumerate(value):
                item(element, (*where, index))

        return run

    def k_properties(self, node: dict[str, Any]) -> Check:
        known = {key: self.node(inner) for key, inner in node["properties"].items()}
        required = node.get("required", [])

        def run(value: Any, where: Where) -> None:
            for key, element in value.items():
                inner = known.get(key)
                if inner is None:
                    raise ViolationError((*where, key), f"unknown field{suggest(key, known)}")
                inner(element, (*where, key))
            for key in required:
                if key not in value:
                    raise ViolationError(where, f"the field {key!r} is missing")

        return run

    def k_additionalProperties(self, node: dict[str, Any]) -> Check:  # noqa: N802
        if node["additionalProperties"] is False:  # k_properties refuses them
            return lambda value, where: None
        item = self.node(node["additionalProperties"])
        pattern = re.compile(node.get("propertyNames", {}).get("pattern", ""))

        def run(value: Any, where: Where) -> None:
            for key, element in value.items():
                if not pattern.search(key):
                    raise ViolationError((*where, key), "is not a name (letters, digits and _, no digit first)")
                item(element, (*where, key))

        return run

    def k_anyOf(self, node: dict[str, Any]) -> Check:  # noqa: N802
        branches: dict[str, Check] = {}
        for branch in node["anyOf"]:
            compiled = self.node(branch)
            for name in self.types(branch):
                assert name not in branches, "two branches of an anyOf take the same type"
                branches[name] = compiled
        wanted = " or ".join(_NAMES[name] for name in branches)

        def run(value: Any, where: Where) -> None:
            branch = branches.get(json_type(value))
            if branch is None:
                raise ViolationError(where, f"must be {wanted}, not {show(value)}")
            branch(value, where)

        return run


_KEYWORDS = (
    "type", "const", "enum", "minLength", "minItems", "minProperties", "maxItems", "exclusiveMinimum",
    "items", "properties", "additionalProperties", "anyOf",
)  # fmt: skip


def show(value: Any) -> str:
    """A JSON value in a few characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
