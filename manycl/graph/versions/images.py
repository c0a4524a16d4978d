"""Launches of kernels with images: of the kernel that has arrays instead (:mod:`manycl.analysis.texts.images`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from manycl.analysis import parse_program, service
from manycl.analysis.facts import ProgramFacts
from manycl.errors import LaunchError

BASES = {"uint8": "uchar", "int8": "char", "uint16": "ushort", "int16": "short", "uint32": "uint", "int32": "int"} | {
    "float16": "half",
    "float32": "float",
}
"""What a channel of a pixel is in OpenCL C, by NumPy's names."""
_LANES = {1: "", 2: "2", 4: "4"}
Image = tuple[str, int, int]
"""The type of an image's pixels in OpenCL C, the width and the height."""


def image_of(shape: Sequence[int], dtype: np.dtype[Any]) -> Image:
    """Return what image an array is: of the shape (height, width), or (height, width, channels). Raises LaunchError
    where it is none."""
    lanes = _LANES.get(shape[2] if len(shape) == 3 else 1)
    base = BASES.get(dtype.name)
    if len(shape) not in (2, 3) or lanes is None or base is None or shape[0] * shape[1] >> 31:
        raise LaunchError(
            f"is an image: it needs an array of the shape (height, width) or (height, width, channels), with 1, 2 or 4"
            f" channels of up to 32 bits, not {tuple(shape)} of {dtype}"
        )
    return base + lanes, shape[1], shape[0]


def with_arrays(program: ProgramFacts, kernel: str, images: Sequence[Image | None]) -> ProgramFacts:
    """Return the program with a kernel that has arrays in place of images, the same each time. ``images``: by argument.
    Behind its own arguments the kernel has ``sizes(images)``. Raises LaunchError where there is none."""
    made = service.image_kernel(program, kernel, tuple([image[0] if image else "" for image in images]))
    if made.reason:
        raise LaunchError(f"kernel {kernel} cannot have arrays for images: {made.reason}")
    return parse_program(made.source, path=program.path, options=made.options)


def sizes(images: Sequence[Image | None]) -> list[int]:
    """Return the widths and heights of images."""
    return [number for image in images if image for number in image[1:]]
