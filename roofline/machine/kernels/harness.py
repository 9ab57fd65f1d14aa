"""The timing harness in LLVM IR: bursts of a kernel, timed where they run, started together.

``i64 bench(ptr plan)`` runs up to ``bursts`` bursts of ``passes`` kernel calls. Before each burst
the threads of a team meet at a barrier; round each burst the wall clock and the thread's own CPU
clock are read, so that time the thread did not have the CPU can be told from time it did. It gives
back the number of finished bursts: fewer than asked for when the time limit ran out or the team was
told to stop.
"""

from __future__ import annotations

import ctypes
import functools
import time

from roofline.machine.kernels.units import Architecture

TIMES = 4
"""Clock readings per burst, in ns: wall start, wall end, CPU start, CPU end."""

TEAM_BYTE = 192
"""Arrivals, phase and stop flag of a team, each in a cache line of its own."""

STOP_BYTE = 128


class Plan(ctypes.Structure):
    """What one thread shall run; the layout is that of ``%plan`` in the IR below."""

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
    """The address of ``clock_gettime`` and the ids of its wall clock and thread CPU clock.

    The address is handed to the compiled code as a value, which works wherever the C library is
    linked into the process, without a symbol table that knows its name.
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

; Waits until all threads of the team are here. False: told to stop, or the deadline has passed.
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
  %told = icmp ne i64 %stop.now, 0
  br i1 %told, label %fail, label %patient
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
    """The harness as LLVM IR text; it calls a ``@kernel`` that the same module defines."""
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
