"""Programs: made, built, linked, and what is told of them."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from manycl.drivers.opencl.real import compiled
from manycl.stand_in.errors import error, refuse
from manycl.stand_in.objects.contexts import Context
from manycl.stand_in.objects.programs import _create_program_with_il, _Program
from manycl_c import raw
from manycl_c.calls import counted, does, makes, tells
from manycl_c.handles import handles
from manycl_c.host import Address, answer, memory, put, text, words
from manycl_c.objects.contexts import context_of, devices_in
from manycl_c.objects.platforms import device_of

_INFO = compiled.program_info
_CODE = "INVALID_PROGRAM"
_IL_VERSION = 0x105B  # CL_DEVICE_IL_VERSION
_Told = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
kernels_of: WeakKeyDictionary[_Program, WeakSet[Any]] = WeakKeyDictionary()
"""The kernels that there are: while there are some, a program is not built anew."""

program_of = handles.finder(_Program, _CODE)


@makes("clCreateProgramWithSource")
def create_program_with_source(context: Address, count: int, strings: Address, lengths: Address) -> _Program:
    found = context_of(context)
    refuse("INVALID_VALUE", not count or not strings)
    parts, sizes = words(strings, count), words(lengths, count) or [0] * count
    refuse("INVALID_VALUE", not all(parts))
    source = b"".join(
        ctypes.string_at(part, size) if size else text(part) for part, size in zip(parts, sizes, strict=True)
    )
    return _Program(found, source.split(b"\0", 1)[0].decode(errors="replace"))


@makes("clCreateProgramWithBinary")
def create_program_with_binary(
    context: Address, count: int, devices: Address, lengths: Address, binaries: Address, status: Address
) -> _Program:
    found = context_of(context)
    refuse("INVALID_VALUE", not count or not devices or not lengths or not binaries)
    chosen = devices_in(devices, count, found)
    sizes, places = words(lengths, count), words(binaries, count)
    refuse("INVALID_VALUE", not all(sizes) or not all(places))
    data = [memory(place, size).tobytes() for place, size in zip(places, sizes, strict=True)]
    program = _Program(found, chosen, data)
    for number in range(count):
        put(status + 4 * number if status else None, "i", 0)
    return program


def _check_il(context: Context) -> None:
    """Raise LogicError where the real device takes no intermediate language."""
    model = context.runtime.one.device
    refuse("INVALID_OPERATION", len(raw.ask("clGetDeviceInfo", model.int_ptr, _IL_VERSION)) <= 1)


@makes("clCreateProgramWithIL")
def create_program_with_il(context: Address, il: Address, length: int) -> _Program:
    found = context_of(context)
    _check_il(found)
    if not il or not length:
        raise error("INVALID_VALUE", "")
    return _create_program_with_il(found, memory(il, length).tobytes())


@makes("clCreateProgramWithBuiltInKernels")
def create_program_with_built_in_kernels(context: Address, count: int, devices: Address, names: Address) -> _Program:
    context_of(context)
    raise error("INVALID_VALUE", "")  # manycl's device has none


counted("Program", _Program, _CODE)


@does("clSetProgramReleaseCallback")
def set_program_release_callback(program: Address, function: Address, data: Address) -> None:
    program_of(program)
    raise error("INVALID_OPERATION", "")  # no device's programs have anything to do when they go


@does("clSetProgramSpecializationConstant")
def set_program_specialization_constant(program: Address, number: int, size: int, value: Address) -> None:
    found = program_of(program)
    _check_il(found.own_context)
    raw.do("clSetProgramSpecializationConstant", found.real.int_ptr, number, size, value)


# building


def _notifying(program: _Program, notify: Address, data: Address, work: Callable[[], None]) -> None:
    """Do it, and tell the program that it is done, well or not."""
    refuse("INVALID_VALUE", data and not notify)
    refuse("INVALID_OPERATION", kernels_of.get(program))
    try:
        work()
    finally:
        if notify:
            _Told(notify)(handles.of(program).address, data)


@does("clBuildProgram")
def build_program(
    program: Address, count: int, devices: Address, options: Address, notify: Address, data: Address
) -> None:
    found = program_of(program)
    devices_in(devices, count, found.own_context)
    words_ = text(options) if options else b""
    _notifying(found, notify, data, lambda: found._build(words_))


@does("clCompileProgram")
def compile_program(
    program: Address,
    count: int,
    devices: Address,
    options: Address,
    headers_count: int,
    headers: Address,
    names: Address,
    notify: Address,
    data: Address,
) -> None:
    found = program_of(program)
    devices_in(devices, count, found.own_context)
    refuse("INVALID_VALUE", bool(headers_count) != bool(headers) or bool(headers_count) != bool(names))
    given = [program_of(header) for header in words(headers, headers_count)]
    called = [text(name).decode() for name in words(names, headers_count)]
    words_ = text(options) if options else b""
    pairs = list(zip(called, given, strict=True))
    _notifying(found, notify, data, lambda: found.compile(words_, None, pairs))


@makes("clLinkProgram")
def link_program(
    context: Address,
    count: int,
    devices: Address,
    options: Address,
    programs_count: int,
    programs: Address,
    notify: Address,
    data: Address,
) -> _Program:
    found = context_of(context)
    devices_in(devices, count, found)
    refuse("INVALID_VALUE", not programs_count or not programs or (data and not notify))
    given = [program_of(one) for one in words(programs, programs_count)]
    made = _Program.link(found, given, text(options) if options else b"")
    if notify:
        _Told(notify)(handles.of(made).address, data)
    return made


# information


@does("clGetProgramInfo")
def get_program_info(program: Address, param: int, size: int, out: Address, needed: Address) -> None:
    found = program_of(program)
    if param == _INFO.BINARIES:
        _put_binaries(found, size, out, needed)
    else:
        answer(_program_answer(found, param), size, out, needed)


def _program_answer(program: _Program, param: int) -> bytes:
    context: Context = program.own_context
    devices = context.get_info(compiled.context_info.DEVICES)
    if param == _INFO.REFERENCE_COUNT:
        return struct.pack("=I", handles.of(program).count)
    if param == _INFO.CONTEXT:
        return struct.pack("=Q", handles.of(context).address)
    if param == _INFO.NUM_DEVICES:
        return struct.pack("=I", len(devices))
    if param == _INFO.DEVICES:
        return struct.pack(f"={len(devices)}Q", *(handles.of(device).address for device in devices))
    if param == _INFO.SOURCE:
        source = program.get_info(param)
        return (source.encode() if isinstance(source, str) else bytes(source)) + b"\0"
    if param == _INFO.BINARY_SIZES:
        sizes = _sizes(program, len(devices))
        return struct.pack(f"={len(sizes)}Q", *sizes)
    if program.is_native and param == _INFO.NUM_KERNELS:
        return struct.pack("=Q", program.get_info(param))
    if program.is_native and param == _INFO.KERNEL_NAMES:
        return str(program.get_info(param)).encode() + b"\0"
    return raw.ask("clGetProgramInfo", program.real.int_ptr, param)


def _sizes(program: _Program, count: int) -> list[int]:
    """Of the binaries: of several devices the first one's stands for all."""
    found = [len(binary) for binary in program.get_info(_INFO.BINARIES)]
    return [*found, *[0] * (count - len(found))]


def _put_binaries(program: _Program, size: int, out: Address, needed: Address) -> None:
    count = len(program.own_context.get_info(compiled.context_info.DEVICES))
    if out:
        refuse("INVALID_VALUE", size < 8 * count)
        for place, binary in zip(words(out, count), program.get_info(_INFO.BINARIES), strict=False):
            if place:
                ctypes.memmove(place, binary, len(binary))
    put(needed, "Q", 8 * count)


@tells("clGetProgramBuildInfo")
def get_program_build_info(program: Address, device: Address, param: int) -> bytes:
    found, one = program_of(program), device_of(device)
    refuse("INVALID_DEVICE", one not in found.own_context.get_info(compiled.context_info.DEVICES))
    own = found.own_build_info()
    if param in own:
        value = own[param]
        return value.encode() + b"\0" if isinstance(value, str) else struct.pack("=i", value)
    real = found.own_context.runtime.one.device
    return raw.ask("clGetProgramBuildInfo", found.real.int_ptr, real.int_ptr, param)
