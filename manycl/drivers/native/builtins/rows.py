"""A row of the tables of functions that treat elements alike."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """``bodies``: by type, an expression or statements of parameters ``x``, ``y``, ``z``, ``w`` that make one element;
    ``$T`` is its type, ``$U`` the unsigned one of its size, ``$B`` its bits, ``$LOW`` and ``$HIGH`` its limits.
    ``only_vectors``: scalars are another row's. ``relational``: true is 1 of scalars and -1 of vectors."""

    name: str
    result: str
    parameters: tuple[str, ...]
    bodies: dict[str, str]
    only_vectors: bool = False
    relational: bool = False

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(self.bodies)
