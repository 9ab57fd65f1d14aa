"""Kernels to machine code: LLVM IR through llvmlite, checked before it may be timed.

What is checked is what runs: LLVM writes a kernel's assembly once, the check reads it, and the same
text is assembled into the process. llvmlite has no type stubs; only this module calls it.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from roofline.errors import MeasurementError
from roofline.machine.kernels import amx
from roofline.machine.kernels.assembly import HotLoop, Kernel, check
from roofline.machine.kernels.harness import Plan, harness_ir
from roofline.machine.kernels.units import Architecture

_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_BENCH = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel's machine code in this process; it lives as long as this object.

    ``call`` runs it once, ``bench`` runs the timing harness; both release Python's lock while they
    run.
    """

    kernel: Kernel
    loop: HotLoop
    _call: Callable[[int, int, int], None]
    _bench: Callable[[Any], int]
    _engine: Any = field(repr=False)

    def call(self, state: int, offset: int, length: int) -> None:
        """Runs the kernel once on the calling thread."""
        self._call(state, offset, length)

    def bench(self, plan: Plan) -> int:
        """Runs the bursts of `plan` on the calling thread; returns how many were finished."""
        return self._bench(ctypes.addressof(plan))


def is_available() -> bool:
    """Whether llvmlite can be imported and its library loaded."""
    try:
        _llvm()
    except (ImportError, OSError, RuntimeError):
        return False
    return True


@functools.cache
def _llvm() -> Any:
    import llvmlite.binding as llvm  # pyright: ignore[reportMissingTypeStubs]

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()
    return llvm


# What Linux keeps for virtual machines and does not list among a CPU's flags, by LLVM's names.
_UNLISTED = {"amx-fp16": "amx_fp16", "avxvnniint8": "avx_vnni_int8"}


def host_features() -> dict[str, bool]:
    """LLVM's features of this CPU, each with whether it is there; empty where LLVM cannot tell."""
    try:
        return dict(_llvm().get_host_cpu_features())
    except (ImportError, OSError, RuntimeError):
        return {}


def unlisted_instruction_sets() -> tuple[str, ...]:
    """Instruction sets that this CPU has and Linux does not list, named as Linux would."""
    found = host_features()
    return tuple(name for feature, name in _UNLISTED.items() if found.get(feature))


def _machine(features: str, triple: str | None = None) -> Any:
    """Generates code for `features` and no more, of this process's target or of `triple`.

    IR passes are not run: code generation alone keeps a loop as it is written.
    """
    llvm = _llvm()
    target = llvm.Target.from_triple(triple or llvm.get_process_triple())
    return target.create_target_machine(cpu="", features=features, opt=3, jit=triple is None)


def assembly(kernel: Kernel, *, triple: str | None = None) -> str:
    """The assembly of a kernel for the host, or for another target `triple`.

    Raises:
        MeasurementError: LLVM refuses the kernel.
    """
    llvm = _llvm()
    machine = _machine(kernel.unit.llvm_features, triple)
    source = f'target triple = "{triple or llvm.get_process_triple()}"\n{kernel.ir()}'
    try:
        module = llvm.parse_assembly(source)
        module.verify()
    except RuntimeError as error:
        raise MeasurementError(
            f"kernel '{kernel.label}' is refused by LLVM {llvm.llvm_version_info[0]}: "
            f"{' '.join(str(error).split())}; install llvmlite 0.46 or newer"
        ) from None
    return str(machine.emit_assembly(module))


@functools.cache
def _harness(architecture: Architecture) -> bytes:
    """The timing harness as an object file; every kernel is linked to a copy of it."""
    source = f"{harness_ir(architecture)}\ndeclare void @kernel(ptr, i64, i64)\n"
    return _machine("").emit_object(_llvm().parse_assembly(source))


def compile_kernel(kernel: Kernel) -> CompiledKernel:
    """Compiles a kernel for this process and checks what came out.

    Raises:
        MeasurementError: LLVM refuses the kernel, its loop is not what the kernel declares, or the
            operating system does not let this process use its registers.
    """
    llvm = _llvm()
    if kernel.unit.by_permission:
        amx.request_permission()
    text = assembly(kernel)
    loop = check(kernel, text)
    engine = llvm.create_mcjit_compiler(_assembled(text), _machine(kernel.unit.llvm_features))
    engine.add_object_file(llvm.ObjectFileRef.from_data(_harness(kernel.unit.architecture)))
    engine.finalize_object()
    return CompiledKernel(
        kernel=kernel,
        loop=loop,
        _call=_KERNEL(engine.get_function_address("kernel")),
        _bench=_BENCH(engine.get_function_address("bench")),
        _engine=engine,
    )


def _assembled(text: str) -> Any:
    """A module whose code is an assembly text."""
    escaped = text.replace("\\", "\\5C").replace('"', "\\22")
    return _llvm().parse_assembly(
        "\n".join(f'module asm "{line}"' for line in escaped.splitlines())
    )
