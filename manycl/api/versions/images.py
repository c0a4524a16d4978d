"""Kernels with images, which are called with arrays (:mod:`manycl.analysis.texts.images`)."""

from __future__ import annotations

from typing import Any, NamedTuple

from manycl.analysis.annotations import merge
from manycl.analysis.facts import ArgumentFacts, ProgramFacts
from manycl.analysis.texts.images import SAMPLER
from manycl.api.arrays.arrays import Array
from manycl.api.events import Event
from manycl.api.program import Kernel
from manycl.errors import LaunchError
from manycl.graph.launch import find_kernel
from manycl.graph.versions.images import Image, image_of, sizes, with_arrays


class Pixels(NamedTuple):
    """An array of bytes as an image."""

    array: Array
    image: Image


def sampler(normalized_coords: bool = False, addressing: str = "clamp", filtering: str = "nearest") -> int:
    """Return what a kernel's argument ``sampler_t`` is given. ``addressing``: ``none``, ``clamp_to_edge``, ``clamp``,
    ``repeat`` or ``mirrored_repeat``; ``filtering``: ``nearest`` or ``linear``. Raises LaunchError for others."""
    words = f"ADDRESS_{addressing.upper()}", f"FILTER_{filtering.upper()}"
    if not SAMPLER.keys() >= {*words}:
        raise LaunchError(f"no sampler has the addressing mode {addressing!r} and the filter {filtering!r}")
    return sum(SAMPLER[word] for word in words) + bool(normalized_coords)


class ImageKernel(Kernel):
    """A kernel with two-dimensional images, in whose places it is given arrays of the shape (height, width), or
    (height, width, channels) with one, two or four channels."""

    def __init__(self, program: ProgramFacts, facts: Any) -> None:
        super().__init__(program, facts)
        self._by_pixels: dict[tuple[str, ...], Kernel] = {}

    def __call__(self, queue: Any, global_size: Any, local_size: Any, *args: Any, **options: Any) -> Event:
        """Enqueue the kernel, as :meth:`Kernel.__call__`. ``read_imagef`` and ``write_imagef`` take integers of an
        array as normalized ones."""
        if len(args) != len(self._arguments):
            return super().__call__(queue, global_size, local_size, *args, **options)  # which raises
        images = [self._image(*both) for both in zip(self._arguments, args, strict=True)]
        pixels = tuple([image[0] if image else "" for image in images])
        kernel = self._by_pixels.get(pixels)
        if kernel is None:
            program = with_arrays(self.program, self.name, images)
            kernel = self._by_pixels[pixels] = Kernel(program, find_kernel(program, self.name))
            kernel.annotations = merge(kernel.annotations, self.annotations)
        given = [value.array if isinstance(value, Pixels) else value for value in args]
        return kernel(queue, global_size, local_size, *given, *sizes(images), **options)

    def annotate(self, *what: Any, **promised: Any) -> None:
        """Annotate arguments that are no images, as :meth:`Kernel.annotate`."""
        super().annotate(*what, **promised)
        self._by_pixels.clear()

    def add_version(self, *what: Any, **how: Any) -> None:
        """Raises LaunchError: what is known of a kernel with images is known when it has arrays."""
        raise LaunchError(f"kernel {self.name}: kernels with images have no other versions")

    add_sequence = add_version

    def _image(self, fact: ArgumentFacts, value: Any) -> Image | None:
        if fact.kind != "image":
            return None
        if isinstance(value, Pixels):
            return value.image
        if not isinstance(value, Array):
            raise LaunchError(f"{self._where(fact)} is an image: it needs an array, not {type(value).__name__}")
        try:
            return image_of(value.shape, value.dtype)
        except LaunchError as error:
            raise LaunchError(f"{self._where(fact)} {error.message}") from None
