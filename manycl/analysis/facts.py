"""The facts that the analysis of an OpenCL C program finds out: the frozen values that every later stage works with."""

from __future__ import annotations

from dataclasses import dataclass, field

FLOATS = ("half", "float", "double")
SHARED = "keeps its value between kernels, which no dependence between launches accounts for"
"""What is warned of, of a variable through which kernels may pass data without having it as an argument."""


@dataclass(frozen=True, slots=True)
class ArgumentFacts:
    """One parameter of a kernel.

    ``kind``: ``buffer`` (pointer to global or constant memory), ``local`` (pointer to local memory), ``scalar`` (any
    by-value argument, also vectors and structs), ``image``, ``sampler``, ``pipe`` or ``other``.
    For a buffer, ``reads`` and ``writes`` say what the kernel may do with it; both are true where the analysis cannot
    tell, and ``reason`` then says why. ``element`` is the pointee type (or the scalar's type) as OpenCL C names it
    after typedefs; ``base`` is its scalar type (``float`` for ``float4``; empty for structs and void), ``lanes`` its
    vector width, ``size`` the bytes of one element (0 unknown).
    """

    index: int
    name: str
    kind: str
    element: str
    base: str
    lanes: int
    size: int
    address_space: str  # "global", "constant", "local", "private"
    is_const: bool = False
    reads: bool = False
    writes: bool = False
    reason: str = ""
    steers: bool = False
    """Whether the accesses of the kernel may depend on the value of this floating-point scalar."""

    @property
    def decides(self) -> bool:
        """True if the analysis is told the value of a scalar."""
        return self.base not in FLOATS or self.steers

    @property
    def direction(self) -> str:
        """``read``, ``written``, ``both`` or ``unused``; empty for what is no buffer or image."""
        if self.kind not in ("buffer", "image", "pipe"):
            return ""
        return {(True, False): "read", (False, True): "written", (True, True): "both"}.get(
            (self.reads, self.writes), "unused"
        )


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """One kernel: 1-based ``line`` in the user's file; ``dimensions`` the highest NDRange dimension it asks ids of.
    ``sees_groups``: by what it may tell how its work-items are grouped; empty: it does the same however they are,
    unless a buffer that it writes is another argument as well, and ``sees_groups_shared`` says by what then.
    ``prints``: by printf. ``extensions``: without which it cannot be built."""

    name: str
    line: int
    arguments: tuple[ArgumentFacts, ...]
    dimensions: int = 1
    required_work_group: tuple[int, int, int] | None = None
    uses_barrier: bool = False
    uses_double: bool = False
    local_bytes: int = 0  # of __local variables declared in the kernel and what it calls
    sees_groups: str = ""
    sees_groups_shared: str = ""
    prints: bool = False
    extensions: tuple[str, ...] = ()

    @property
    def needs(self) -> list[str]:
        """Return the features that a device needs to run the kernel: ``double precision``, ``images``, extensions."""
        images = any(a.kind == "image" for a in self.arguments)
        return [*["double precision"] * self.uses_double, *["images"] * images, *self.extensions]


@dataclass(frozen=True, slots=True)
class ProgramFacts:
    """A program: its source as given, the build options, and its kernels by name."""

    source: str
    options: tuple[str, ...]
    kernels: dict[str, KernelFacts]
    path: str = "<source>"
    warnings: tuple[str, ...] = field(default=())
    tree: bytes = field(default=b"", compare=False, repr=False)  # for :mod:`manycl.analysis.reading.tree`

    @property
    def shared(self) -> tuple[str, ...]:
        """Warnings of variables that keep their values between kernels."""
        return tuple(warning for warning in self.warnings if SHARED in warning)
