"""Kernels to machine code: LLVM IR through llvmlite, checked before it may be timed.

llvmlite has no type stubs; every call into it is in this module.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from roofline.errors import MeasurementError
from roofline.machine.kernels.assembly import HotLoop, Kernel, check
from roofline.machine.kernels.harness import Plan, harness_ir

_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_BENCH = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel's machine code in this process; it lives as long as this object.

    ``call(state, offset, length)`` runs it once; ``bench(plan address)`` runs the timing harness.
    Both release Python's lock while they run.
    """

    kernel: Kernel
    loop: HotLoop
    call: Callable[[int, int, int], None]
    _bench: Callable[[Any], int]
    _engine: Any = field(repr=False)

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


def _llvm() -> Any:
    import llvmlite.binding as llvm  # pyright: ignore[reportMissingTypeStubs]

    return llvm


def _machine(kernel: Kernel, triple: str | None, cpu: str) -> tuple[Any, Any]:
    llvm = _llvm()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    name = triple or llvm.get_process_triple()
    target = llvm.Target.from_triple(name)
    # The features are those of the kernel's unit and no more, and IR passes are not run: code
    # generation alone keeps the loop as it is written.
    machine = target.create_target_machine(
        cpu=cpu, features=kernel.unit.llvm_features, opt=3, jit=triple is None
    )
    source = f'target triple = "{name}"\n{kernel.ir()}\n{harness_ir(kernel.unit.architecture)}'
    try:
        module = llvm.parse_assembly(source)
        module.verify()
    except RuntimeError as error:
        raise MeasurementError(
            f"kernel '{kernel.label}' is refused by LLVM {llvm.llvm_version_info[0]}: "
            f"{' '.join(str(error).split())}; install llvmlite 0.46 or newer"
        ) from None
    return machine, module


def assembly(kernel: Kernel, *, triple: str | None = None, cpu: str = "") -> str:
    """The assembly of a kernel and its harness for the host, or for another target `triple`.

    Raises:
        MeasurementError: LLVM refuses the kernel.
    """
    machine, module = _machine(kernel, triple, cpu)
    return str(machine.emit_assembly(module))


def compile_kernel(kernel: Kernel) -> CompiledKernel:
    """Compiles a kernel for this process and checks what came out.

    Raises:
        MeasurementError: LLVM refuses the kernel, or its loop is not what the kernel declares.
    """
    llvm = _llvm()
    machine, module = _machine(kernel, None, "")
    loop = check(kernel, str(machine.emit_assembly(module)))
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return CompiledKernel(
        kernel=kernel,
        loop=loop,
        call=_KERNEL(engine.get_function_address("kernel")),
        _bench=_BENCH(engine.get_function_address("bench")),
        _engine=engine,
    )
