"""Writes the file of `machine_code.py`: compiles all kernels with numba, and keeps the machine code instead of numba's objects.

All kernels become one LLVM module, with an entry point for each function that `touch` calls, for the types of its arguments.
The module is compiled to code that runs at any address. To link it is then to lay out its sections and to fill in the distances
between them, so no linker is needed, which small machines and images lack. Code that needs a linker is refused.
"""
# numba and llvmlite build code from untyped functions.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-any-generics, disallow-any-unimported=False

import hashlib
import json
import mmap
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils, codegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.np.arrayobj import populate_array

from store.compiled import compiling, machine_code
from store.compiled.machine_code import ARRAY, INTEGER, REFUSED

_ROOT = Path(__file__).resolve().parent.parent.parent
_BYTE, _INT, _LONG = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_POINTER = _BYTE.as_pointer()

# struct PyArrayObject_fields of numpy 2, and what it begins with (PyObject): where each field lies.
_TYPE_AT, _DATA_AT, _DIMENSION_COUNT_AT, _DIMENSIONS_AT, _DTYPE_AT, _FLAGS_AT = 8, 16, 24, 32, 56, 64
_TYPE_NAME_AT = 24  # PyTypeObject.tp_name
_BYTE_ORDER_AT, _TYPE_NUMBER_AT = 26, 28  # PyArray_Descr
_TYPE_NAME = b"numpy.ndarray\0"
_C_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400

# ELF
_SYMBOLS, _RELOCATIONS = 2, 4  # kinds of sections
_IS_WRITTEN, _IS_ALLOCATED = 1, 2  # flags of sections
_PC32, _PLT32 = 2, 4


class ExportError(Exception):
    """The kernels cannot be written as machine code."""


class _Kernel(NamedTuple):
    name: str
    dispatcher: Any
    argument_types: tuple


def export(names: Iterable[str], path: Path) -> None:
    """Compiles kernels and writes their machine code.

    Args:
        names: modules with a function `touch`.
        path: replaced in one step, after the kernels in it were called once in another process.

    Raises:
        ExportError: something in them needs a linker, or the result does not run.
        OSError: the file cannot be written.
    """
    machine_code.make_anew()
    names = tuple(names)
    modules = [import_module(name) for name in names]
    kernels = [kernel for module in modules for kernel in _kernels(module)]
    with global_compiler_lock:
        library = _Codegen("reput").create_library("kernels")
        _add_memset(library)
        entries = [_add_entry(library, f"entry{number}", kernel) for number, kernel in enumerate(kernels)]
        code, places = link(library.emit_native_object())
    sources = (getattr(module, "__file__", None) for module in tuple(sys.modules.values()))
    packages = {name.partition(".")[0] for name in names}
    own = [Path(source).resolve() for source in sources if source]
    own = [source for source in own if source.is_relative_to(_ROOT) and source.relative_to(_ROOT).parts[0] in packages]
    header: dict[str, Any] = {
        "modules": names,
        "features": compiling.cpu_features(),
        "entries": {
            kernel.name: machine_code.Entry(places[f"entry{number}"], *entry)
            for number, (kernel, entry) in enumerate(zip(kernels, entries, strict=True))
        },
        "sources": machine_code.digests(sorted(str(source.relative_to(_ROOT)) for source in own)),
        "code_at": 0,
        "code_digest": hashlib.sha256(code).hexdigest(),
    }
    header["code_at"] = -(-(len(json.dumps(header)) + 16) // mmap.PAGESIZE) * mmap.PAGESIZE
    head = json.dumps(header).encode() + b"\n"
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(head.ljust(header["code_at"], b"\0") + code)
        os.chmod(scratch, 0o644)
        _try(Path(scratch), names)
        os.replace(scratch, path)
    except BaseException:
        os.unlink(scratch)
        raise


def _try(path: Path, names: tuple[str, ...]) -> None:
    """Calls each kernel once in another process, which a wrong one would end."""
    code = (
        "import sys; from importlib import import_module; from pathlib import Path; from store.compiled import machine_code\n"
        "found = machine_code.read(Path(sys.argv[1])); machine_code.find = lambda: found\n"
        "for name in sys.argv[2:]: import_module(name).touch()\n"
        "assert 'numba' not in sys.modules"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (_ROOT, *sys.path)))}
    tried = subprocess.run(
        [sys.executable, "-c", code, str(path), *names],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
    )
    if tried.returncode:
        raise ExportError(f"they do not run, exit code {tried.returncode}: {tried.stderr[-500:]}")


def _kernels(module: ModuleType) -> list[_Kernel]:
    """The functions that `touch` calls, with the types of the arguments that it gives them."""
    module.touch()
    kept = {name: value for name, value in vars(module).items() if hasattr(value, "py_func")}
    found: dict[str, _Kernel] = {}

    def noting(name: str, dispatcher: Any) -> Any:
        def call(*arguments: Any) -> Any:
            argument_types = tuple(map(dispatcher.typeof_pyval, arguments))
            found.setdefault(name, _Kernel(f"{module.__name__}.{name}", dispatcher, argument_types))
            return dispatcher(*arguments)

        return call

    try:
        vars(module).update({name: noting(name, dispatcher) for name, dispatcher in kept.items()})
        module.touch()
    finally:
        vars(module).update(kept)
    return [kernel for kernel in found.values() if kernel.dispatcher.targetoptions.get("nogil")]


class _Library(codegen.AOTCodeLibrary):
    """A library of which only the entry points are seen from outside, so that all else is dropped when nothing calls it."""

    def _optimize_final_module(self):
        for value in (*self._final_module.functions, *self._final_module.global_variables):
            if not value.is_declaration and not value.name.startswith(("entry", "memset")):
                value.linkage = "internal"
        super()._optimize_final_module()


class _Codegen(codegen.AOTCPUCodegen):
    _library_class = _Library

    def __init__(self, name: str) -> None:
        super().__init__(name, cpu_name="host")

    def _customize_tm_features(self):
        return ",".join(compiling.cpu_features())


def _add_memset(library: Any) -> None:
    """Adds the C function that the compiler calls to set a long array to one value: there is no C library to link."""
    module = cpu_target.target_context.create_module("memset")
    function = ir.Function(module, ir.FunctionType(_POINTER, [_POINTER, _INT, _LONG]), "memset")
    target, value, size = function.args
    builder = ir.IRBuilder(function.append_basic_block())
    byte = builder.trunc(value, _BYTE)
    with cgutils.for_range(builder, size) as loop:  # the compiler does not take a loop of this function for a memset
        builder.store(byte, builder.gep(target, [loop.index]))
    builder.ret(target)
    library.add_ir_module(module)


def _add_entry(library: Any, entry_name: str, kernel: _Kernel) -> tuple[str, int]:
    """Adds the function that is called from outside; returns the kinds of its arguments and how many numbers it returns.

    It returns the only number, REFUSED, or 0; several numbers go to an array behind the arguments.
    """
    context = cpu_target.target_context
    compiled = kernel.dispatcher.overloads.get(kernel.argument_types)
    if compiled is None:
        raise ExportError(f"{kernel.name} is not compiled for what touch() calls it with")
    result_type: Any = compiled.signature.return_type
    is_tuple = isinstance(result_type, types.BaseTuple)
    results = () if result_type == types.none else tuple(result_type) if is_tuple else (result_type,)
    is_array = [isinstance(kind, types.Array) for kind in compiled.signature.args]
    numbers = [kind for kind, array in zip(compiled.signature.args, is_array, strict=True) if not array]
    if not all(isinstance(kind, types.Integer | types.Boolean) for kind in (*numbers, *results)):
        raise ExportError(f"{kernel.name} takes or returns more than arrays and integers: {compiled.signature}")

    module = context.create_module(entry_name)
    parameters = [_POINTER if array else _LONG for array in is_array]
    many = [_LONG.as_pointer()] if len(results) > 1 else []
    function = ir.Function(module, ir.FunctionType(_LONG, [*parameters, *many]), entry_name)
    builder = ir.IRBuilder(function.append_basic_block())
    refusing = function.append_basic_block("refusing")
    arguments = []
    for given, kind in zip(function.args, compiled.signature.args, strict=False):
        if isinstance(kind, types.Array):
            arguments.append(_read_array(context, builder, given, kind, refusing))
        else:
            arguments.append(_narrowed(builder, given, kind))
    callee = context.declare_function(module, compiled.fndesc)
    status, result = context.call_conv.call_function(builder, callee, result_type, compiled.signature.args, arguments)
    with builder.if_then(status.is_error, likely=False):
        builder.branch(refusing)
    values = cgutils.unpack_tuple(builder, result) if is_tuple else [result]
    values = [_widened(builder, value, kind) for value, kind in zip(values, results, strict=False)]
    if many:
        for place, value in enumerate(values):
            builder.store(value, builder.gep(function.args[-1], [ir.Constant(_LONG, place)]))
    builder.ret(values[0] if len(values) == 1 else ir.Constant(_LONG, 0))
    builder.position_at_end(refusing)
    builder.ret(ir.Constant(_LONG, REFUSED))
    library.add_ir_module(module)
    library.add_linking_library(compiled.library)
    return "".join(ARRAY if array else INTEGER for array in is_array), len(results)


def _narrowed(builder: Any, value: Any, kind: Any) -> Any:
    if isinstance(kind, types.Boolean):
        return builder.icmp_unsigned("!=", value, ir.Constant(_LONG, 0))
    return builder.trunc(value, ir.IntType(kind.bitwidth)) if kind.bitwidth < 64 else value


def _widened(builder: Any, value: Any, kind: Any) -> Any:
    if value.type == _LONG:
        return value
    is_signed = not isinstance(kind, types.Boolean) and kind.signed
    return builder.sext(value, _LONG) if is_signed else builder.zext(value, _LONG)


def _read_array(context: Any, builder: Any, given: Any, kind: types.Array, refusing: Any) -> Any:
    """numba's struct of a numpy array; goes to `refusing` when the object is no array of that kind."""

    def field(at, type_, of=given):
        return builder.load(builder.bitcast(builder.gep(of, [ir.Constant(_LONG, at)]), type_.as_pointer()))

    def demand(truth):
        going_on = builder.append_basic_block()
        builder.cbranch(truth, going_on, refusing)
        builder.position_at_end(going_on)

    if kind.layout != "C" or not kind.aligned:
        raise ExportError(f"not a contiguous array: {kind}")
    type_name = field(_TYPE_NAME_AT, _POINTER, field(_TYPE_AT, _POINTER))
    for at, byte in enumerate(_TYPE_NAME):
        demand(builder.icmp_unsigned("==", field(at, _BYTE, type_name), ir.Constant(_BYTE, byte)))
    dtype = field(_DTYPE_AT, _POINTER)
    number = np.dtype(str(kind.dtype)).num
    demand(builder.icmp_unsigned("==", field(_TYPE_NUMBER_AT, _INT, dtype), ir.Constant(_INT, number)))
    demand(builder.icmp_unsigned("!=", field(_BYTE_ORDER_AT, _BYTE, dtype), ir.Constant(_BYTE, ord(">"))))
    demand(builder.icmp_unsigned("==", field(_DIMENSION_COUNT_AT, _INT), ir.Constant(_INT, kind.ndim)))
    flags = ir.Constant(_INT, _C_CONTIGUOUS | _ALIGNED | (_WRITEABLE if kind.mutable else 0))
    demand(builder.icmp_unsigned("==", builder.and_(field(_FLAGS_AT, _INT), flags), flags))

    dimensions = field(_DIMENSIONS_AT, _POINTER)
    shape = [field(8 * place, _LONG, dimensions) for place in range(kind.ndim)]
    item_size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    strides = [ir.Constant(_LONG, item_size)]
    for size in reversed(shape[1:]):
        strides.insert(0, builder.mul(size, strides[0]))
    array = context.make_array(kind)(context, builder)
    data = builder.bitcast(field(_DATA_AT, _POINTER), array.data.type)
    populate_array(array, data, shape, strides, ir.Constant(_LONG, item_size), None)
    return array._getvalue()


def link(data: bytes) -> tuple[bytes, dict[str, int]]:
    """Lays out an object file (ELF, x86-64) so that it runs at the begin of any page; returns it and where its symbols are.

    Raises:
        ExportError: it refers to something outside, or to absolute addresses.
    """
    section_at, section_size, section_count = struct.unpack_from("<Q", data, 40) + struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, section_at + section_size * n) for n in range(section_count)]
    code, places = bytearray(), {}
    for number, (_, _, flags, _, at, size, _, _, alignment, _) in enumerate(sections):
        if flags & (_IS_ALLOCATED | _IS_WRITTEN) == _IS_ALLOCATED and size:
            code.extend(bytes(-len(code) % max(alignment, 1)))
            places[number] = len(code)
            code += data[at : at + size]
    symbols: dict[str, int] = {}
    for _, kind, _, _, at, size, symbol_section, target, _, _ in sections:
        if kind != _RELOCATIONS or target not in places:
            continue
        symbols_at, _, names_section = sections[symbol_section][4:7]
        names_at = sections[names_section][4]
        for entry in range(at, at + size, 24):
            place, info, addend = struct.unpack_from("<QQq", data, entry)
            name_at, _, _, where, value, _ = struct.unpack_from("<IBBHQQ", data, symbols_at + 24 * (info >> 32))
            if where not in places or info & 0xFFFFFFFF not in (_PC32, _PLT32):
                name = data[names_at + name_at : data.index(b"\0", names_at + name_at)].decode()
                raise ExportError(f"relocation {info & 0xFFFFFFFF} to {name or 'a section'} needs a linker")
            distance = places[where] + value + addend - places[target] - place
            struct.pack_into("<i", code, places[target] + place, distance)
    for _, kind, _, _, at, size, names_section, _, _, _ in sections:
        if kind != _SYMBOLS:
            continue
        for entry in range(at, at + size, 24):
            name_at, _, _, where, value, _ = struct.unpack_from("<IBBHQQ", data, entry)
            if where in places:
                begin = sections[names_section][4] + name_at
                symbols[data[begin : data.index(b"\0", begin)].decode()] = places[where] + value
    return bytes(code), symbols
