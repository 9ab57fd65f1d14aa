"""The kernels compute what they say, and compile to what they declare, on every instruction set."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from roofline.errors import MeasurementError
from roofline.foundation.dtypes import dtype
from roofline.machine.host import describe_host
from roofline.machine.kernels import compiler, compute, stream, units
from roofline.machine.kernels.assembly import check, hot_loop
from roofline.machine.trials import compute_state, stream_state

llvm = pytest.importorskip("llvmlite.binding")

HOST = describe_host()
TRIPLES = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}
CPUS = {"avx512": "skylake-avx512", "avx512-bf16": "cooperlake", "avx2": "haswell"}
STREAM_UNITS = [
    units.stream_unit("x86_64", ["sse2", "fma", "avx", "avx512f"]),
    units.stream_unit("x86_64", ["sse2", "fma", "avx"]),
    units.stream_unit("x86_64", ["sse2"]),
    units.stream_unit("aarch64", ["asimd"]),
]
ALL_STREAMS = [
    kernel
    for unit in STREAM_UNITS
    if unit
    for kernel in stream.stream_kernels(unit, non_temporal=True)
]
HOST_COMPUTE = compute.compute_kernels(HOST.architecture, HOST.instruction_sets)
HOST_UNIT = units.stream_unit(HOST.architecture, HOST.instruction_sets)
HOST_STREAMS = stream.stream_kernels(HOST_UNIT, non_temporal=True) if HOST_UNIT else ()


def label(kernel: compute.ComputeKernel | stream.StreamKernel) -> str:
    return f"{kernel.unit.architecture} {kernel.label}"


# --- what is compiled, for this and for other machines -------------------------------------------


@pytest.mark.parametrize("kernel", compute.COMPUTE_KERNELS, ids=label)
def test_a_compute_loop_is_nothing_but_its_instruction(kernel: compute.ComputeKernel) -> None:
    triple = TRIPLES[kernel.unit.architecture]
    cpu = CPUS.get(kernel.unit.name, "")
    text = compiler.assembly(kernel, triple=triple, cpu=cpu)
    loop = check(kernel, text)
    # 28 sums unrolled four times on 32 registers, 12 on 16; the rest is loop control.
    wanted = {32: 112, 16: 48}[kernel.unit.registers]
    assert len(loop.instructions) - wanted in range(2, 6)
    assert loop.stack_accesses == 0


@pytest.mark.parametrize(
    ("name", "element", "flop"),
    [
        # Worked out by hand: 512 bit are 16 float32 or 8 float64, a multiply and an add each.
        ("avx512", "float32", 112 * 32),
        ("avx512", "float64", 112 * 16),
        ("avx2", "float32", 48 * 16),
        ("sse", "float64", 48 * 4),
        ("scalar", "float32", 48 * 2),
        ("neon", "float32", 112 * 8),
        ("avx512-bf16", "bfloat16", 112 * 64),
        ("neon-bf16", "bfloat16", 112 * 16),
    ],
)
def test_flop_of_one_iteration(name: str, element: str, flop: int) -> None:
    (kernel,) = [
        k
        for k in compute.COMPUTE_KERNELS
        if (k.unit.name, k.dtype.name) == (name, element)
        and (name != "scalar" or k.unit.architecture == "x86_64")
    ]
    assert kernel.flop(1) == flop
    assert kernel.flop(1000) == 1000 * flop


@pytest.mark.parametrize("system", ["apple-darwin", "unknown-linux-gnu"])
def test_both_assembly_dialects_of_arm_are_read(system: str) -> None:
    kernel = compute.fma_kernel(dtype("float64"), units.NEON)
    assert check(kernel, compiler.assembly(kernel, triple=f"aarch64-{system}")).count("fmla") == 112


@pytest.mark.parametrize(
    ("unit", "accumulators"), [(units.AVX512, 40), (units.AVX2, 20), (units.NEON, 40)]
)
def test_too_many_accumulators_are_refused(unit: units.VectorUnit, accumulators: int) -> None:
    kernel = compute.fma_kernel(dtype("float32"), unit, accumulators)
    text = compiler.assembly(kernel, triple=TRIPLES[unit.architecture])
    with pytest.raises(MeasurementError, match=r"spills: \d+ stack accesses"):
        check(kernel, text)


def test_vectors_wider_than_the_unit_are_refused() -> None:
    wide = compute.fma_kernel(dtype("float32"), units.AVX512)
    narrow = dataclasses.replace(wide, unit=units.AVX2)
    with pytest.raises(MeasurementError, match="avx2"):
        check(narrow, compiler.assembly(narrow, triple=TRIPLES["x86_64"]))


def test_a_kernel_that_llvm_refuses_says_so() -> None:
    kernel = compute.fma_kernel(dtype("float32"), units.AVX2)
    broken = dataclasses.replace(kernel, instruction="call nonsense")
    with pytest.raises(MeasurementError, match=r"'fma float32 avx2' is refused by LLVM \d+"):
        compiler.assembly(broken, triple=TRIPLES["x86_64"])


@pytest.mark.parametrize("kernel", ALL_STREAMS, ids=label)
def test_a_stream_loop_does_not_spill(kernel: stream.StreamKernel) -> None:
    text = compiler.assembly(kernel, triple=TRIPLES[kernel.unit.architecture])
    loop = check(kernel, text)
    assert bool(loop.non_temporal_stores) == kernel.name.endswith("-nt")
    if kernel.unit.architecture == "x86_64":
        register = {64: "zmm", 32: "ymm", 16: "xmm"}[kernel.vector_byte]
        assert loop.count(rf".*%{register}") >= 8


def test_a_loop_is_found_among_labels_comments_and_directives() -> None:
    text = """
kernel:                                 # @kernel
    .cfi_startproc
    movq (%rdi), %rax
.LBB0_1:                                # =>This Inner Loop
    vaddps %zmm0, %zmm1, %zmm1
    movq %rax, 8(%rsp)                  # 8-byte Spill
    addq $1, %rcx
    jb .LBB0_1
    retq
.Lfunc_end0:
other:
.LBB1_1:
    jmp .LBB1_1
"""
    loop = hot_loop(text)
    assert loop.instructions == (
        "vaddps %zmm0, %zmm1, %zmm1",
        "movq %rax, 8(%rsp)",
        "addq $1, %rcx",
        "jb .LBB0_1",
    )
    assert loop.stack_accesses == 1


@pytest.mark.parametrize("text", ["other:\n retq", "kernel:\n retq\n.Lfunc_end0:"])
def test_code_without_a_loop_is_refused(text: str) -> None:
    with pytest.raises(MeasurementError):
        hot_loop(text)


# --- which kernels a host can run ----------------------------------------------------------------


def test_a_host_runs_only_what_its_system_reports() -> None:
    names = {k.unit.name for k in compute.compute_kernels("x86_64", ["sse2", "avx", "fma", "avx2"])}
    assert names == {"scalar", "sse", "avx2"}
    assert compute.compute_kernels("x86_64", ["sse2"]) == ()
    assert {k.unit.name for k in compute.compute_kernels("aarch64", ["asimd"])} == {
        "scalar",
        "neon",
    }
    assert compute.compute_kernels("riscv64", ["fma", "asimd"]) == ()


def test_streams_use_the_widest_vectors() -> None:
    assert [unit.bits for unit in STREAM_UNITS if unit] == [512, 256, 128, 128]
    assert units.stream_unit("riscv64", []) is None


# --- what they compute, on this host -------------------------------------------------------------


@pytest.mark.parametrize("kernel", HOST_COMPUTE, ids=label)
def test_compute_kernels_compute_their_sums(kernel: compute.ComputeKernel) -> None:
    compiled = compiler.compile_kernel(kernel)
    random = np.random.default_rng(7)
    # Small integers are exact in every type, so the result can be compared exactly.
    lanes = 64 * 8 // kernel.dtype.bits
    sums = lanes if kernel.dtype.bits > 16 else 16
    m, a = random.integers(-4, 5, (2, lanes)).astype(float)
    start = random.integers(-9, 10, (kernel.accumulators, sums)).astype(float)
    state = compute_state(kernel, m, a, start)
    length = 3
    compiled.call(state.ctypes.data, 0, length)

    products = m * a if kernel.dtype.bits > 16 else (m * a).reshape(-1, 2).sum(axis=1)
    expected = start + length * 4 * products  # unrolled four times
    kind = np.float64 if kernel.dtype.name == "float64" else np.float32
    found = state.view(kind).reshape(2 + kernel.accumulators, -1)[2:]
    active = max(kernel.unit.bits, 32 if kind is np.float32 else 64) // (8 * found.itemsize)
    np.testing.assert_array_equal(found[:, :active], expected[:, :active])
    np.testing.assert_array_equal(found[:, active:], start[:, active:])


GUARD = 64


@pytest.mark.parametrize("kernel", HOST_STREAMS, ids=label)
def test_stream_kernels_do_what_their_name_says(kernel: stream.StreamKernel) -> None:
    compiled = compiler.compile_kernel(kernel)
    elements, skip, factor = 4096, 1024, 0.75
    data = _aligned(3 * (elements + GUARD))
    data[:] = np.random.default_rng(3).standard_normal(data.size, dtype=np.float32)
    a, b, c = data.reshape(3, -1)
    before = data.copy().reshape(3, -1)
    state = stream_state((a.ctypes.data, b.ctypes.data, c.ctypes.data), factor)
    compiled.call(state.ctypes.data, skip * 4, (elements - skip) * 4)

    part = slice(skip, elements)
    expected = before.copy()
    match kernel.name.removesuffix("-nt"):
        case "read":
            lanes = kernel.vector_byte // 4
            seen = np.bitwise_xor.reduce(before[0, part].view(np.uint32).reshape(-1, lanes), axis=0)
            found = state[stream.RESULT_BYTE :].view(np.uint32)[:lanes]
            np.testing.assert_array_equal(found, seen)
        case "write":
            expected[0, part] = factor
        case "copy":
            expected[0, part] = before[1, part]
        case "triad":
            expected[0, part] = before[1, part] + factor * before[2, part]
        case "update":
            expected[0, part] = factor - before[0, part]
    # A fused multiply-add rounds once, numpy twice.
    np.testing.assert_allclose(np.stack([a, b, c]), expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(a[elements:], before[0, elements:])


def _aligned(elements: int) -> np.ndarray:
    raw = np.zeros(elements * 4 + 64, dtype=np.uint8)
    skip = -raw.ctypes.data % 64
    return raw[skip : skip + elements * 4].view(np.float32)


@pytest.mark.parametrize(
    ("name", "byte", "flop"),
    [
        # Of 1024 float32 a stream (4 KiB), as STREAM counts: every named load and store once.
        ("read", 4096, 0),
        ("write", 4096, 0),
        ("copy", 8192, 0),
        ("triad", 12288, 2048),
        ("update", 8192, 1024),
        ("copy-nt", 8192, 0),
    ],
)
def test_bytes_and_flop_of_stream_kernels(name: str, byte: int, flop: int) -> None:
    (kernel,) = [k for k in ALL_STREAMS if k.name == name and k.vector_byte == 64]
    assert kernel.byte(4096) == byte
    assert kernel.flop(4096) == flop
