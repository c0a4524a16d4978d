"""Programs: read by manycl's analysis, and built by the best real device, whose compiler's words are the program's.
What the analysis cannot read, or has no source, is run on that device alone. What it reads, and native devices can
compile, is built for that device when it is asked for what nobody else knows: building takes longer."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manycl.analysis import ProgramFacts, parse_program
from manycl.analysis.reading.options import are_own, included
from manycl.api import program as api
from manycl.drivers.opencl.real import cl, compiled
from manycl.errors import RECURSION, ManyclError, OptionError
from manycl.stand_in.errors import error, refuse
from manycl.stand_in.native_model import NativeModel, build_info, compiles
from manycl.stand_in.objects.contexts import Context, Device
from manycl.stand_in.objects.objects import OpenCLObject

if TYPE_CHECKING:
    from manycl.stand_in.objects.kernels import Kernel

_INFO = compiled.program_info
_BUILD_ROUTINE = "clBuildProgram"
_KIND = compiled.program_kind
_LOG = compiled.program_build_info.LOG
_SIGNATURE = b"manycl program 2\n"
_OWN_HEADERS = str(Path(str(cl.__file__)).parent)
_CACHE_DEFEATED = re.compile(r"\n\n__constant int pyopencl_defeat_cache_[0-9a-f]{32} = 0;\Z")
"""What PyOpenCL's own cache adds to sources, so that no other one knows them."""
_NOT_READ = "its program has no source that manycl can read"


def _stays(key: tuple[Any, ...] | None) -> bool:
    """Return whether what decides a binary is known, and all files that its text includes are PyOpenCL's own, which
    stay."""
    return key is not None and all(file.startswith(_OWN_HEADERS) for file in key[2])


class _Program(OpenCLObject):
    """``facts``: what the analysis has found out, once it is built (None: it runs on one device alone, for the
    ``reason``). ``is_native``: it is built for native devices, and not yet for the real one."""

    _is_object = False  # it was compiled, and is there to be linked

    def __init__(self, context: Context, source: Any, binaries: Sequence[bytes] | None = None) -> None:
        self.own_context = context
        self.facts: ProgramFacts | None = None
        self.reason = _NOT_READ
        self._kernels: dict[str, api.Kernel] = {}
        self._text: str | None = None
        self._kind = _KIND.SOURCE
        self._real: Any = None
        self._is_kept = False  # whether others may have the same real program
        self._options = b""  # that it was built with, also before it was a binary
        self._later: bytes | None = None  # options that the real one is still to be built with
        self._words = ""  # of the analysis, where there is no real device to say what is wrong
        if binaries is None:
            text = source.decode() if isinstance(source, bytes | bytearray) else str(source)
            self._text = _CACHE_DEFEATED.sub("", text)
            return
        refuse("INVALID_VALUE", not source or not binaries, "clCreateProgramWithBinary")
        self._kind = _KIND.BINARY
        binary = bytes(binaries[0])
        if binary.startswith(_SIGNATURE):
            self._options, _, text_of = binary[len(_SIGNATURE) :].partition(b"\0")
            self._text = text_of.decode()
        else:
            one = context.runtime.one
            self._real = compiled._Program(one.context, [one.device], [binary])

    @classmethod
    def of_real(cls, context: Context, real: Any, kind: Any) -> _Program:
        """One that only the real device has."""
        program = cls.__new__(cls)
        program.own_context, program.facts, program.reason = context, None, _NOT_READ
        program._kernels, program._text, program._kind, program._real = {}, None, kind, real
        program._is_kept, program._options, program._later, program._words = False, b"", None, ""
        return program

    @classmethod
    def create_with_built_in_kernels(cls, context: Context, devices: Sequence[Device], kernel_names: str) -> _Program:
        one = context.runtime.one
        made = compiled._Program.create_with_built_in_kernels(one.context, [one.device], kernel_names)
        return cls.of_real(context, made, _KIND.BINARY)

    @property
    def real(self) -> Any:
        """The program of the best real device."""
        if self._real is None:
            made = compiled._Program(self.own_context.real, self._text)
            if self._later is not None:
                made._build(self._later, None)
                self._later = None
            self._real = made
        return self._real

    @property
    def is_native(self) -> bool:
        return self._later is not None

    def kind(self) -> Any:
        return self._kind

    # building

    def _build(self, options: bytes = b"", devices: Sequence[Device] | None = None) -> None:
        """Raises what the real device's compiler makes of it. What was built of the same text before is taken as it
        is: compilers take tens of milliseconds also for what is in their caches."""
        self.facts = None
        self._kernels, self._is_object = {}, False
        if self._kind == _KIND.BINARY:
            options = b" ".join(filter(None, (self._options, options)))
        else:
            self._options = options
        builds, key = self.own_context.runtime.builds, self._key(options)
        known = builds.get(key) if key is not None and self._real is None else None
        if known is not None:
            self._real, self.facts, self._kernels = known
            self._is_kept = True
            self._later = options if self._real is None else None
            return
        self._part()
        self._later = None
        facts = self._read(options)
        runtime = self.own_context.runtime
        is_alone = isinstance(runtime.one.device, NativeModel)  # who else might know an option?
        if facts is not None and (is_alone or (are_own(facts.options) and compiles(runtime.session, facts))):
            self._real, self._later = None, options
        if not (self.is_native and _stays(key)):
            self._build_real(facts, options)
        self.facts = facts
        if key is not None and facts is not None:
            self._is_kept = True
            builds.keep(key, (self._real, facts, self._kernels))

    def _build_real(self, facts: ProgramFacts | None, options: bytes) -> None:
        """Build it for the real device now: it may have to run it, or files that the text includes may change."""
        if isinstance(self.own_context.runtime.one.device, NativeModel) and self._text is not None:
            if facts is None:
                raise error("BUILD_PROGRAM_FAILURE", _BUILD_ROUTINE, self._words or self.reason)
        elif self.is_native:
            self.real  # noqa: B018
        else:
            self.real._build(options, None)

    def _key(self, options: bytes) -> tuple[Any, ...] | None:
        """Return what decides the binary; None where that is not known."""
        if self._text is None:
            return None
        try:
            read = included(self._text, shlex.split(options.decode()))
        except ValueError:  # no words: the real device says so
            return None
        return None if read is None else (self._text, options, read)

    def _part(self) -> None:
        """Leave the real program to others who have it, before it changes."""
        if self._is_kept:
            self._real, self._is_kept = None, False

    def _read(self, options: bytes) -> ProgramFacts | None:
        """Return what manycl's analysis knows of it; None (and a ``reason``) where the real device runs it alone."""
        if self._text is None:
            return None
        try:
            facts = parse_program(self._text, options=[*shlex.split(options.decode()), "-I."])
        except ManyclError as failure:
            self.reason = f"the analysis cannot read its program: {failure.message.splitlines()[0]}"
            self._words = str(failure)
            if RECURSION in self._words or isinstance(failure, OptionError):
                status = "BUILD_PROGRAM_FAILURE" if RECURSION in self._words else "INVALID_BUILD_OPTIONS"
                raise error(status, _BUILD_ROUTINE, self._words) from None
            return None
        if facts.shared:  # each device would have one of its own
            self.reason = facts.shared[0]
            return None
        return facts

    def compile(self, options: bytes = b"", devices: Any = None, headers: Sequence[tuple[str, _Program]] = ()) -> None:
        self._part()
        self._later, self._is_object = None, True
        self.real.compile(options, None, [(name, program.real) for name, program in headers])

    @staticmethod
    def link(context: Context, programs: Sequence[_Program], options: bytes = b"", devices: Any = None) -> _Program:
        made = compiled._Program.link(context.real, [program.real for program in programs], options, None)
        return _Program.of_real(context, made, _KIND.BINARY)

    def set_specialization_constant(self, spec_id: int, buffer: Any) -> None:
        self.real.set_specialization_constant(spec_id, buffer)

    # kernels

    def kernel(self, name: str) -> api.Kernel:
        """Manycl's kernel, the same each time: what is known of its launches is kept with it."""
        found = self._kernels.get(name)
        if found is None:
            assert self.facts is not None
            found = self._kernels[name] = api.kernel_of(self.facts, name)
        return found

    def all_kernels(self) -> list[Kernel]:
        from manycl.stand_in.objects.kernels import Kernel

        return [Kernel(self, name) for name in str(self.get_info(_INFO.KERNEL_NAMES)).split(";") if name]

    # information

    def get_info(self, param: int) -> Any:
        if param == _INFO.CONTEXT:
            return self.own_context
        if param == _INFO.DEVICES:
            return self.own_context.get_info(compiled.context_info.DEVICES)
        if param == _INFO.NUM_DEVICES:
            return len(self.own_context.get_info(compiled.context_info.DEVICES))
        if param == _INFO.SOURCE and self._text is not None:
            return self._text
        if param == _INFO.BINARIES:
            return self._binaries()
        if param == _INFO.BINARY_SIZES:
            return [len(binary) for binary in self.get_info(_INFO.BINARIES)]
        if self.is_native and self.facts is not None:
            names = tuple(self.facts.kernels)
            if param == _INFO.NUM_KERNELS:
                return len(names)
            if param == _INFO.REFERENCE_COUNT:
                return 1
            if param == _INFO.KERNEL_NAMES:
                return ";".join(names)
        return self.real.get_info(param)

    def _binaries(self) -> list[bytes]:
        """The source, where there is one: whoever loads it builds it again, for all devices that there are then. What
        is compiled and not linked is the real device's."""
        if self._text is None or self._is_object:
            return [bytes(binary) for binary in self.real.get_info(_INFO.BINARIES)[:1]]
        return [_SIGNATURE + self._options + b"\0" + self._text.encode()]

    def own_build_info(self) -> dict[int, Any]:
        """Return what is known of its last build without asking a real device."""
        if self.is_native or (self._words and self._real is None):
            return build_info(self.is_native, self._options.decode(), self._words)
        return {}

    def get_build_info(self, device: Device, param: int) -> Any:
        own = self.own_build_info()
        if param in own:
            return own[param]
        found = self.real.get_build_info(self.own_context.runtime.one.device, param)
        # PyOpenCL warns of whatever a compiler said, and compilers of GPUs say what they have made
        is_remark = param == _LOG and self.facts is not None and "warning" not in found.lower()
        return "" if is_remark and b"verbose" not in self._options else found


def _create_program_with_il(context: Context, il: bytes) -> _Program:
    return _Program.of_real(context, compiled._create_program_with_il(context.real, il), _KIND.IL)
