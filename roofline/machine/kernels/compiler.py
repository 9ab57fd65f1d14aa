"""Compilation of kernels: LLVM IR through llvmlite, checked before execution.

LLVM writes the assembly once; the same text is checked and assembled. llvmlite has no type stubs
and is used in this module only.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from roofline.errors import MeasurementError
from roofline.machine.kernels import register_loop
from roofline.machine.kernels.assembly import Architecture, Kernel, check

# ``i64 bench(ptr plan)`` runs up to ``bursts`` bursts of ``passes`` kernel calls. A barrier
# precedes each burst; wall clock and thread CPU clock are read around it, to detect lost CPU time.
# It returns the number of finished bursts, lower if the time limit expired or the team was stopped.

TIMES = 4
"""Clock readings per burst, in ns: wall start, wall end, CPU start, CPU end."""

TEAM_BYTE = 192
"""Arrival count, phase and stop flag of a team, each in its own cache line."""

STOP_BYTE = 128


class Plan(ctypes.Structure):
    """Bursts to run on one thread; the layout is that of ``%plan`` in the IR."""

    _fields_ = (
        ("state", ctypes.c_void_p),
        ("team", ctypes.c_void_p),
        ("threads", ctypes.c_int64),
        ("bursts", ctypes.c_int64),
        ("passes", ctypes.c_int64),
        ("length", ctypes.c_int64),
        ("first", ctypes.c_int64),
        ("period", ctypes.c_int64),
        ("limit_ns", ctypes.c_int64),
        ("clock_gettime", ctypes.c_void_p),
        ("wall_clock", ctypes.c_int64),
        ("cpu_clock", ctypes.c_int64),
        ("times", ctypes.c_void_p),
    )


@functools.cache
def clocks() -> tuple[int, int, int]:
    """Return the address of ``clock_gettime`` and the ids of wall clock and thread CPU clock.

    Compiled code gets the address as a value, without symbol lookup.
    """
    function = ctypes.CDLL(None).clock_gettime
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    # macOS's monotonic clock ticks in microseconds; its raw uptime clock in nanoseconds.
    wall = getattr(time, "CLOCK_UPTIME_RAW", time.CLOCK_MONOTONIC)
    return address, wall, time.CLOCK_THREAD_CPUTIME_ID


_PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}

_IR = """
%plan = type {{ ptr, ptr, i64, i64, i64, i64, i64, i64, i64, ptr, i64, i64, ptr }}
{pause_declaration}

define i64 @now(ptr %clock_gettime, i64 %id) {{
  %time = alloca {{ i64, i64 }}
  %narrow = trunc i64 %id to i32
  %rc = call i32 %clock_gettime(i32 %narrow, ptr %time)
  %s = load i64, ptr %time
  %ns.at = getelementptr i64, ptr %time, i64 1
  %ns = load i64, ptr %ns.at
  %whole = mul i64 %s, 1000000000
  %sum = add i64 %whole, %ns
  ret i64 %sum
}}

; Waits for all threads of the team. False: stopped, or the deadline has passed.
define i1 @meet(ptr %team, i64 %threads, ptr %clock_gettime, i64 %id, i64 %deadline) {{
entry:
  %phase.at = getelementptr i8, ptr %team, i64 64
  %stop.at = getelementptr i8, ptr %team, i64 {stop_byte}
  %stopped = load atomic i64, ptr %stop.at acquire, align 8
  %leave = icmp ne i64 %stopped, 0
  br i1 %leave, label %fail, label %arrive
arrive:
  %phase = load atomic i64, ptr %phase.at acquire, align 8
  %before = atomicrmw add ptr %team, i64 1 acq_rel
  %count = add i64 %before, 1
  %last = icmp eq i64 %count, %threads
  br i1 %last, label %release, label %spin
release:
  store atomic i64 0, ptr %team monotonic, align 8
  %phase.next = add i64 %phase, 1
  store atomic i64 %phase.next, ptr %phase.at release, align 8
  ret i1 true
spin:
  %n = phi i64 [ 0, %arrive ], [ %n.next, %patient ], [ %n.next, %ask ]
  {pause}
  %phase.now = load atomic i64, ptr %phase.at acquire, align 8
  %open = icmp ne i64 %phase.now, %phase
  br i1 %open, label %go, label %wait
wait:
  %n.next = add i64 %n, 1
  %stop.now = load atomic i64, ptr %stop.at acquire, align 8
  %must.stop = icmp ne i64 %stop.now, 0
  br i1 %must.stop, label %fail, label %patient
patient:
  %low = and i64 %n.next, 1023
  %due = icmp eq i64 %low, 0
  br i1 %due, label %ask, label %spin
ask:
  %time = call i64 @now(ptr %clock_gettime, i64 %id)
  %late = icmp sgt i64 %time, %deadline
  br i1 %late, label %give.up, label %spin
give.up:
  store atomic i64 1, ptr %stop.at release, align 8
  br label %fail
go:
  ret i1 true
fail:
  ret i1 false
}}

define i64 @bench(ptr %plan) {{
entry:
{loads}
  %stop.at = getelementptr i8, ptr %team, i64 {stop_byte}
  %begin = call i64 @now(ptr %clock_gettime, i64 %wall_clock)
  %deadline = add i64 %begin, %limit_ns
  br label %burst
burst:
  %b = phi i64 [ 0, %entry ], [ %b.next, %next ]
  %offset = phi i64 [ %first, %entry ], [ %offset.next, %next ]
  %some = icmp slt i64 %b, %bursts
  br i1 %some, label %barrier, label %done
barrier:
  %ready = call i1 @meet(ptr %team, i64 %threads, ptr %clock_gettime, i64 %wall_clock,
                         i64 %deadline)
  br i1 %ready, label %start, label %done
start:
  %cpu.start = call i64 @now(ptr %clock_gettime, i64 %cpu_clock)
  %wall.start = call i64 @now(ptr %clock_gettime, i64 %wall_clock)
  br label %pass
pass:
  %p = phi i64 [ 0, %start ], [ %p.next, %pass ]
  call void @kernel(ptr %state, i64 %offset, i64 %length)
  %p.next = add i64 %p, 1
  %again = icmp slt i64 %p.next, %passes
  br i1 %again, label %pass, label %end
end:
  %wall.end = call i64 @now(ptr %clock_gettime, i64 %wall_clock)
  %cpu.end = call i64 @now(ptr %clock_gettime, i64 %cpu_clock)
  %row = mul i64 %b, {times}
  %at0 = getelementptr i64, ptr %times, i64 %row
  %at1 = getelementptr i64, ptr %at0, i64 1
  %at2 = getelementptr i64, ptr %at0, i64 2
  %at3 = getelementptr i64, ptr %at0, i64 3
  store i64 %wall.start, ptr %at0
  store i64 %wall.end, ptr %at1
  store i64 %cpu.start, ptr %at2
  store i64 %cpu.end, ptr %at3
  %b.next = add i64 %b, 1
  %late = icmp sgt i64 %wall.end, %deadline
  br i1 %late, label %stop, label %next
next:
  %moved = add i64 %offset, %length
  %moved.end = add i64 %moved, %length
  %fits = icmp sle i64 %moved.end, %period
  %offset.next = select i1 %fits, i64 %moved, i64 0
  br label %burst
stop:
  store atomic i64 1, ptr %stop.at release, align 8
  ret i64 %b.next
done:
  ret i64 %b
}}
"""


def harness_ir(architecture: Architecture) -> str:
    """Return the timing harness as LLVM IR; it calls ``@kernel`` of the same module."""
    declaration, pause = _PAUSE[architecture]
    loads: list[str] = []
    for i, (name, kind, *_) in enumerate(Plan._fields_):
        ir_type = "ptr" if kind is ctypes.c_void_p else "i64"
        loads += [
            f"  %{name}.at = getelementptr %plan, ptr %plan, i64 0, i32 {i}",
            f"  %{name} = load {ir_type}, ptr %{name}.at",
        ]
    return _IR.format(
        pause_declaration=declaration,
        pause=pause,
        loads="\n".join(loads),
        times=TIMES,
        stop_byte=STOP_BYTE,
    )


_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_BENCH = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """Machine code of a kernel in this process, valid while this object exists.

    Calls release the GIL.
    """

    kernel: Kernel
    _call: Callable[[int, int, int], None]
    _bench: Callable[[Any], int]
    _engine: Any = field(repr=False)

    def call(self, state: int, offset: int, length: int) -> None:
        """Run the kernel once on the calling thread."""
        # A method keeps this object, and so the code, alive during the call.
        self._call(state, offset, length)

    def bench(self, plan: Plan) -> int:
        """Run the bursts of `plan` on the calling thread; return the number finished."""
        return self._bench(ctypes.addressof(plan))


def is_available() -> bool:
    """Return True if llvmlite can be loaded."""
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


# Instruction sets that Linux does not list in CPU flags, by LLVM's names.
_UNLISTED = {"amx-fp16": "amx_fp16", "avxvnniint8": "avx_vnni_int8"}


def host_features() -> dict[str, bool]:
    """Return LLVM's features of this CPU; empty if unknown."""
    try:
        return dict(_llvm().get_host_cpu_features())
    except (ImportError, OSError, RuntimeError):
        return {}


def unlisted_instruction_sets() -> tuple[str, ...]:
    """Return instruction sets of this CPU that Linux does not list, by Linux names."""
    found = host_features()
    return tuple(name for feature, name in _UNLISTED.items() if found.get(feature))


def _machine(features: str, triple: str | None = None) -> Any:
    """Return a target machine for `features` alone; no IR passes change the loop."""
    llvm = _llvm()
    target = llvm.Target.from_triple(triple or llvm.get_process_triple())
    return target.create_target_machine(cpu="", features=features, opt=3, jit=triple is None)


def assembly(kernel: Kernel, *, triple: str | None = None) -> str:
    """Return the assembly of a kernel for the host or a target `triple`."""
    llvm = _llvm()
    machine = _machine(kernel.unit.llvm_features, triple)
    source = f'target triple = "{triple or llvm.get_process_triple()}"\n{kernel.ir()}'
    try:
        module = llvm.parse_assembly(source)
        module.verify()
    except RuntimeError as error:
        raise MeasurementError(
            f"LLVM {llvm.llvm_version_info[0]} rejects kernel '{kernel.label}': "
            f"{' '.join(str(error).split())}; install llvmlite 0.46 or newer"
        ) from None
    return str(machine.emit_assembly(module))


@functools.cache
def _harness(architecture: Architecture) -> bytes:
    """Return the timing harness as an object file, linked to every kernel."""
    source = f"{harness_ir(architecture)}\ndeclare void @kernel(ptr, i64, i64)\n"
    return _machine("").emit_object(_llvm().parse_assembly(source))


def compile_kernel(kernel: Kernel) -> CompiledKernel:
    """Compile a kernel for this process, after checking its loop."""
    llvm = _llvm()
    if kernel.unit.by_permission:
        register_loop.request_permission()
    text = assembly(kernel)
    check(kernel, text)
    escaped = text.replace("\\", "\\5C").replace('"', "\\22").splitlines()
    module = llvm.parse_assembly("\n".join(f'module asm "{line}"' for line in escaped))
    engine = llvm.create_mcjit_compiler(module, _machine(kernel.unit.llvm_features))
    engine.add_object_file(llvm.ObjectFileRef.from_data(_harness(kernel.unit.architecture)))
    engine.finalize_object()
    return CompiledKernel(
        kernel=kernel,
        _call=_KERNEL(engine.get_function_address("kernel")),
        _bench=_BENCH(engine.get_function_address("bench")),
        _engine=engine,
    )
