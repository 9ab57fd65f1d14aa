"""The kernels for Arm compute what they say: their checked assembly, run under qemu-user."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from roofline.machine.kernels import assembly, compiler, compute, stream
from roofline.machine.kernels.assembly import Kernel, check
from roofline.machine.kernels.compute import ComputeKernel
from roofline.machine.kernels.stream import StreamKernel, stream_state
from tests.machine.kernel_results import (
    LENGTH,
    Array,
    assert_result,
    combination,
    initial_state,
    stream_result,
)

pytest.importorskip("llvmlite.binding")

TOOLS = ("qemu-aarch64", "aarch64-linux-gnu-as", "aarch64-linux-gnu-ld")
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]

pytestmark = [
    pytest.mark.qemu,
    pytest.mark.skipif(
        bool(MISSING),
        reason=f"{', '.join(MISSING)} not found; install qemu-user and binutils-aarch64-linux-gnu",
    ),
]

ALL_SETS = ["asimd", "fphp", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "svebf16", "svei8mm"]
EXTENSIONS = "armv8.6-a+fp16+sve+bf16+i8mm+dotprod"

# Linux's system calls write (64) and exit (93). The state lies at an address that no kernel knows.
START = """
    .globl _start
_start:
    adrp x0, state
    add x0, x0, :lo12:state
    mov x1, #{offset}
    mov x2, #{length}
    bl kernel
    adrp x1, state
    add x1, x1, :lo12:state
    ldr x2, =end
    sub x2, x2, x1
    mov x0, #1
    mov x8, #64
    svc #0
    mov x0, #0
    mov x8, #93
    svc #0
    .data
    .balign 4096
state:
{data}
end:
"""


def run(kernel: Kernel, folder: Path, data: str, offset: int, length: int, cpu: str) -> bytes:
    """The data after one call of a kernel; `data` are the directives that lay it out."""
    text = compiler.assembly(kernel, triple="aarch64-unknown-linux-gnu")
    check(kernel, text)
    source, code, program = (folder / f"kernel{suffix}" for suffix in (".s", ".o", ""))
    start = START.format(offset=offset, length=length, data=data)
    source.write_text(f"{text}\n    .text\n{start}", encoding="utf-8")
    command("aarch64-linux-gnu-as", f"-march={EXTENSIONS}", "-o", str(code), str(source))
    command("aarch64-linux-gnu-ld", "-o", str(program), str(code))
    return command("qemu-aarch64", "-cpu", cpu, str(program))


def command(*words: str) -> bytes:
    done = subprocess.run(words, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr.decode()}"
    return done.stdout


def label(kernel: ComputeKernel | StreamKernel) -> str:
    bits = f" {kernel.unit.bits}" if kernel.unit.scalable else ""
    return f"{kernel.label}{bits}"


FIXED = compute.compute_kernels("aarch64", ALL_SETS)
SCALABLE = [
    kernel
    for bits in (128, 512, 2048)
    for kernel in compute.compute_kernels("aarch64", ALL_SETS, sve_bits=bits)
    if kernel.unit.scalable
]


@pytest.mark.parametrize("kernel", [*FIXED, *SCALABLE], ids=label)
def test_compute_kernels_compute_their_sums(kernel: ComputeKernel, tmp_path: Path) -> None:
    cpu = "max"
    if kernel.unit.scalable:
        # Linux, and qemu after it, gives programs no more than 64 bytes unless it is told to.
        cpu = f"max,sve{kernel.unit.bits}=on,sve-default-vector-length={kernel.unit.bits // 8}"
    for form in (kernel, kernel.second_variant()):
        image = tmp_path / "state"
        image.write_bytes(initial_state(form).tobytes())
        after = run(form, tmp_path, f'    .incbin "{image}"', 0, LENGTH, cpu)
        assert_result(form, np.frombuffer(after, dtype=np.uint8))


NEON = assembly.stream_unit("aarch64", ["asimd"])
STREAMS = stream.stream_kernels(NEON) if NEON else ()
FACTOR = 0.75
ELEMENTS, SKIP = 2048, 1024


def stream_data(state: Array, arrays: Path) -> str:
    """Directives for a state whose three addresses the linker fills in, and for the arrays."""
    rest = ", ".join(str(byte) for byte in state[3 * 8 :])
    addresses = ", ".join(f"arrays + {i * ELEMENTS * 4}" for i in range(3))
    return f'    .quad {addresses}\n    .byte {rest}\narrays:\n    .incbin "{arrays}"'


@pytest.mark.parametrize("kernel", STREAMS, ids=label)
def test_stream_kernels_do_what_their_name_says(kernel: StreamKernel, tmp_path: Path) -> None:
    before = np.random.default_rng(3).standard_normal((3, ELEMENTS), dtype=np.float32)
    arrays = tmp_path / "arrays"
    arrays.write_bytes(before.tobytes())
    part = slice(SKIP, ELEMENTS)
    a, b, c = before[:, part]
    for form in (kernel, kernel.second_variant()):
        data = stream_data(stream_state((0, 0, 0), FACTOR), arrays)
        after = run(form, tmp_path, data, SKIP * 4, (ELEMENTS - SKIP) * 4, "max")
        found = np.frombuffer(after[stream.STATE_BYTE :], dtype=np.float32).reshape(3, -1)
        expected = before.copy()
        expected[0, part] = stream_result(kernel, FACTOR, a, b, c)
        # A fused multiply-add rounds once, numpy twice.
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
        if kernel.name == "read":
            seen = np.frombuffer(after[stream.RESULT_BYTE :][:16], dtype=np.uint32)
            np.testing.assert_array_equal(seen, combination(form, a))
