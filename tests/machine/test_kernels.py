"""Every kernel compiles to what it declares, counts its work right, and runs where it can."""

from __future__ import annotations

import pytest

from roofline.machine.kernels import assembly, compiler, compute, stream
from roofline.machine.kernels.assembly import check
from roofline.machine.kernels.compute import COMPUTE_KERNELS, ComputeKernel
from roofline.machine.kernels.stream import StreamKernel

pytest.importorskip("llvmlite.binding")

TRIPLES = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}
STREAM_UNITS = [
    assembly.stream_unit("x86_64", ["sse2", "fma", "avx", "avx512f"]),
    assembly.stream_unit("x86_64", ["sse2", "fma", "avx"]),
    assembly.stream_unit("x86_64", ["sse2"]),
    assembly.stream_unit("aarch64", ["asimd"]),
]
STREAMS = [kernel for unit in STREAM_UNITS if unit for kernel in stream.stream_kernels(unit)]


def label(kernel: ComputeKernel | StreamKernel) -> str:
    return f"{kernel.unit.architecture} {kernel.label}"


@pytest.mark.parametrize("kernel", [*COMPUTE_KERNELS, *STREAMS], ids=label)
def test_both_forms_compile_to_what_they_declare(kernel: ComputeKernel | StreamKernel) -> None:
    loops = []
    for form in (kernel, kernel.second_variant()):
        text = compiler.assembly(form, triple=TRIPLES[kernel.unit.architecture])
        loops.append(check(form, text))
        assert loops[-1].stack_accesses == 0
    assert loops[0].instructions != loops[1].instructions


@pytest.mark.parametrize("kernel", COMPUTE_KERNELS, ids=label)
def test_a_compute_loop_is_nothing_but_its_instructions(kernel: ComputeKernel) -> None:
    text = compiler.assembly(kernel, triple=TRIPLES[kernel.unit.architecture])
    per_step = {"dot int8 sse": 3, "dot int8 avx2": 3, "dot int8 avx512": 3}.get(kernel.label, 1)
    if kernel.name == "mul-add" and kernel.unit.architecture == "x86_64":
        per_step = 2
    wanted = per_step * kernel.accumulators * kernel.unroll
    # Counter, comparison and branch are the rest.
    assert len(check(kernel, text).instructions) - wanted in range(2, 5)


@pytest.mark.parametrize(
    "kernel",
    [k for k in (*COMPUTE_KERNELS, *STREAMS) if k.unit.architecture == "aarch64"],
    ids=label,
)
def test_the_assembly_of_macs_is_read_as_well(kernel: ComputeKernel | StreamKernel) -> None:
    for form in (kernel, kernel.second_variant()):
        check(form, compiler.assembly(form, triple="aarch64-apple-darwin"))


@pytest.mark.parametrize(
    ("architecture", "label", "step"),
    [
        # Operations of the steps of all sums, worked out by hand: 512 bits are 16 float32 or
        # 8 float64; a multiply and an add each.
        ("x86_64", "fma float32 avx512", 16 * 2),
        ("x86_64", "fma float64 avx512", 8 * 2),
        ("x86_64", "fma float32 avx2", 8 * 2),
        ("x86_64", "fma float64 sse", 2 * 2),
        ("x86_64", "fma float32 scalar", 2),
        ("x86_64", "fma float16 avx512-fp16", 32 * 2),
        # One of two steps adds only.
        ("x86_64", "fma-add float32 avx512", 16 * 1.5),
        ("x86_64", "fma-add float64 avx2", 4 * 1.5),
        ("x86_64", "mul-add int32 avx512", 16 * 2),
        ("x86_64", "mul-add int32 scalar", 2),
        # Every product of two bytes is multiplied and added.
        ("x86_64", "dot int8 sse", 16 * 2),
        ("x86_64", "dot int8 avx512", 64 * 2),
        ("x86_64", "dot int8 avx-vnni", 32 * 2),
        ("x86_64", "dot int8 avx512-vnni", 64 * 2),
        ("x86_64", "dot int8 avx-vnni-int8", 32 * 2),
        ("x86_64", "dot bfloat16 avx512-bf16", 32 * 2),
        # 16 x 32 times 32 x 16 bfloat16; 16 x 64 times 64 x 16 int8.
        ("x86_64", "tile-dot bfloat16 amx", 16 * 32 * 16 * 2),
        ("x86_64", "tile-dot float16 amx", 16 * 32 * 16 * 2),
        ("x86_64", "tile-dot int8 amx", 16 * 64 * 16 * 2),
        ("aarch64", "fma float32 neon", 4 * 2),
        ("aarch64", "fma float16 neon", 8 * 2),
        ("aarch64", "fma float16 scalar", 2),
        ("aarch64", "fma-add float64 neon", 2 * 1.5),
        ("aarch64", "mul-add int32 neon", 4 * 2),
        ("aarch64", "dot int8 neon-dot", 16 * 2),
        ("aarch64", "dot bfloat16 neon-bf16", 8 * 2),
        # 2 x 4 times 4 x 2 bfloat16; 2 x 8 times 8 x 2 int8.
        ("aarch64", "mmla bfloat16 neon-bf16", 2 * 4 * 2 * 2),
        ("aarch64", "mmla int8 neon-i8mm", 2 * 8 * 2 * 2),
    ],
)
def test_flop_of_a_step(architecture: str, label: str, step: float) -> None:
    (kernel,) = [
        k for k in COMPUTE_KERNELS if (k.unit.architecture, k.label) == (architecture, label)
    ]
    for form in (kernel, kernel.second_variant()):
        steps = form.accumulators * form.unroll
        assert form.work(1) == steps * step
        assert form.work(1000) == 1000 * form.work(1)


def test_flop_of_one_iteration_of_known_loops() -> None:
    known = {
        # 28 sums, four times, 16 lanes, two operations; 24 sums six times.
        "fma float32 avx512": (28 * 4 * 16 * 2, 24 * 6 * 16 * 2),
        "fma float32 avx2": (12 * 4 * 8 * 2, 14 * 6 * 8 * 2),
        # Six tiles, four times; four tiles, six times.
        "tile-dot int8 amx": (24 * 32768, 24 * 32768),
    }
    found = {k.label: (k.work(1), k.second_variant().work(1)) for k in COMPUTE_KERNELS}
    assert {name: found[name] for name in known} == known


@pytest.mark.parametrize("bits", [128, 256, 512, 2048])
def test_the_width_of_scalable_vectors_enters_the_flop(bits: int) -> None:
    sets = ["asimd", "sve", "svebf16", "svei8mm"]
    kernels = compute.compute_kernels("aarch64", sets, sve_bits=bits)
    step = {
        (k.name, k.dtype.name): k.work(1) / k.accumulators / k.unroll
        for k in kernels
        if k.unit.name.startswith("sve")
    }
    assert step == {
        ("fma", "float64"): bits / 64 * 2,
        ("fma", "float32"): bits / 32 * 2,
        ("fma", "float16"): bits / 16 * 2,
        ("mul-add", "int32"): bits / 32 * 2,
        ("dot", "int8"): bits / 8 * 2,
        ("dot", "bfloat16"): bits / 16 * 2,
        ("mmla", "bfloat16"): bits / 128 * 32,
        ("mmla", "int8"): bits / 128 * 64,
    }
    assert all(k.slot_byte >= 256 for k in kernels if k.unit.scalable)


def units_of(architecture: str, sets: str, sve_bits: int | None = None) -> set[str]:
    found = compute.compute_kernels(architecture, sets.split(), sve_bits=sve_bits)
    return {kernel.unit.name for kernel in found}


def test_a_host_runs_only_what_its_system_reports() -> None:
    assert units_of("x86_64", "sse2 avx fma avx2") == {"scalar", "sse", "avx2"}
    assert units_of("x86_64", "sse2") == set()
    assert units_of("x86_64", "amx_tile amx_int8") == {"amx"}
    assert units_of("x86_64", "avx2 avx_vnni") == {"avx-vnni"}
    assert units_of("aarch64", "asimd") == {"scalar", "neon"}
    assert units_of("aarch64", "asimd asimddp bf16 i8mm") == {
        *("scalar", "neon", "neon-dot", "neon-bf16", "neon-i8mm"),
    }
    assert units_of("aarch64", "sve") == set()
    assert units_of("aarch64", "sve svebf16", 256) == {"sve", "sve-bf16"}
    assert units_of("riscv64", "fma asimd") == set()


def test_float16_arithmetic_of_arm_is_two_flags() -> None:
    def halves(sets: str) -> set[str]:
        found = compute.compute_kernels("aarch64", sets.split())
        return {k.unit.name for k in found if k.dtype.name == "float16"}

    assert halves("asimd") == set()
    assert halves("asimd fphp") == {"scalar"}
    assert halves("asimd fphp asimdhp") == {"scalar", "neon"}


@pytest.mark.parametrize(
    ("features", "names"),
    [
        ({"avx2": True, "avxvnniint8": True, "amx-fp16": False}, ("avx_vnni_int8",)),
        ({"amx-fp16": True}, ("amx_fp16",)),
        ({}, ()),
    ],
)
def test_llvm_knows_what_linux_does_not_list(
    features: dict[str, bool], names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Binding:
        @staticmethod
        def get_host_cpu_features() -> dict[str, bool]:
            return features

    monkeypatch.setattr(compiler, "_llvm", Binding)
    assert compiler.unlisted_instruction_sets() == names


def test_streams_use_the_widest_vectors() -> None:
    assert [unit.bits for unit in STREAM_UNITS if unit] == [512, 256, 128, 128]
    assert assembly.stream_unit("riscv64", []) is None


def test_labels_tell_kernels_and_forms_apart() -> None:
    kernels = [k for k in COMPUTE_KERNELS if k.unit.architecture == "x86_64"]
    kernels += [k for k in STREAMS if k.unit.name == "avx512"]
    labels = [form.label for k in kernels for form in (k, k.second_variant())]
    assert len(set(labels)) == len(labels)
    assert "fma float32 avx512, second variant" in labels


class _System:
    """A C library whose prctl answers `length`."""

    def __init__(self, length: int) -> None:
        self.length = length

    def prctl(self, *_: int) -> int:
        return self.length


@pytest.mark.parametrize(
    ("answer", "bits"),
    # The lower 16 bits are bytes; flags stand above. A kernel without SVE says -1.
    [(16, 128), (1 << 17 | 32, 256), (256, 2048), (-1, None)],
)
def test_the_width_of_scalable_vectors_is_asked_for(
    answer: int, bits: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly.sys, "platform", "linux")
    monkeypatch.setattr(assembly.ctypes, "CDLL", lambda *_, **__: _System(answer))
    assert assembly.sve_vector_bits() == bits


def test_only_linux_is_asked_for_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly.sys, "platform", "darwin")
    assert assembly.sve_vector_bits() is None


@pytest.mark.parametrize(
    ("name", "byte"),
    [
        # Of 1024 float32 a stream (4 KiB), as STREAM counts: every named load and store once.
        ("read", 4096),
        ("write", 4096),
        ("copy", 8192),
        ("triad", 12288),
        ("update", 8192),
        ("copy-nt", 8192),
    ],
)
def test_bytes_of_stream_kernels(name: str, byte: int) -> None:
    (kernel,) = [k for k in STREAMS if k.name == name and k.vector_bytes == 64]
    for form in (kernel, kernel.second_variant()):
        assert form.work(4096) == byte


@pytest.mark.parametrize("kernel", STREAMS, ids=label)
def test_blocks_fit_into_the_slices_that_bursts_stream(kernel: StreamKernel) -> None:
    for form in (kernel, kernel.second_variant()):
        assert (1 << 16) % form.block_bytes == 0
