"""The check of what a kernel was compiled to: what it sees in assembly, and what it refuses."""

from __future__ import annotations

import dataclasses

import pytest

from roofline.core.dtypes import dtype
from roofline.errors import MeasurementError
from roofline.machine.kernels import assembly, compiler, compute, stream
from roofline.machine.kernels.assembly import HotLoop, LoopContract, check, hot_loop
from roofline.machine.kernels.pointer_chase import PlainKernel

TRIPLES = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}

LOOP = """
kernel:                                 # @kernel
    .cfi_startproc
    movq (%rdi), %rax
.LBB0_1:                                # =>This Inner Loop
{body}
    addq $1, %rcx
    jb .LBB0_1
    retq
.Lfunc_end0:
other:
.LBB1_1:
    jmp .LBB1_1
"""


def test_a_loop_is_found_among_labels_comments_and_directives() -> None:
    body = """    vaddps %zmm0, %zmm1, %zmm1
    movq %rax, 8(%rsp)                  # 8-byte Spill"""
    loop = hot_loop(LOOP.format(body=body))
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


@pytest.mark.parametrize(
    ("line", "accesses", "past_caches"),
    [
        ("vmovaps (%rsi,%rcx), %zmm0", (1, 0), 0),
        ("vmovaps %zmm0, 64(%rsi,%rcx)", (0, 1), 0),
        ("vmovntps %zmm0, 64(%rsi)", (0, 1), 1),
        ("movntps %xmm0, (%rsi)", (0, 1), 1),
        ("vpxord 128(%rsi), %zmm2, %zmm2", (1, 0), 0),
        ("vfmadd213ps 64(%rcx,%rsi), %zmm0, %zmm1", (1, 0), 0),
        ("leaq 512(%rax,%rsi), %rdi", (0, 0), 0),
        ("vaddps %zmm0, %zmm1, %zmm1", (0, 0), 0),
        ("ldr q0, [x9, #16]", (1, 0), 0),
        ("ldp q0, q1, [x9]", (2, 0), 0),
        ("str q0, [x8]", (0, 1), 0),
        ("stp q0, q1, [x8, #32]", (0, 2), 0),
        ("stnp q0, q1, [x8, #32]", (0, 2), 2),
        ("fmla v1.4s, v2.4s, v0.s[0]", (0, 0), 0),
        ("fmla.4s v1, v2, v0[0]", (0, 0), 0),
    ],
)
def test_memory_accesses_are_counted(
    line: str, accesses: tuple[int, int], past_caches: int
) -> None:
    loop = HotLoop((line,))
    assert loop.accesses() == accesses
    assert loop.non_temporal_stores == past_caches


def with_contract(contract: LoopContract) -> PlainKernel:
    """A kernel with nothing but a contract."""
    return PlainKernel(label="fake", unit=assembly.AVX512, contract=contract, text="")


BODY = """    vmovaps (%rsi), %zmm0
    vaddps %zmm0, %zmm1, %zmm1
    vmovaps %zmm0, (%rdi)"""
CONTRACT = LoopContract(
    instructions=((r"vaddps\s+%zmm", 1),), loads=1, stores=1, vector_bits=512, others=2
)


def test_a_loop_that_keeps_its_contract_passes() -> None:
    loop = check(with_contract(CONTRACT), LOOP.format(body=BODY))
    assert loop.instructions[:3] == tuple(line.strip() for line in BODY.splitlines())


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"instructions": ((r"vaddps\s+%zmm", 2),)}, "1 of 2 wanted instructions"),
        ({"loads": 2}, "1 of 2 loads and 1 of 1 stores"),
        ({"stores": 0}, "1 of 1 loads and 1 of 0 stores"),
        ({"non_temporal": True}, "0 non-temporal stores"),
        ({"vector_bits": 256}, r"'vmovaps \(%rsi\), %zmm0', not 256 bits"),
        ({"others": 1}, "2 other instructions, more than 1"),
    ],
)
def test_a_broken_contract_is_refused(change: dict[str, object], fault: str) -> None:
    broken = with_contract(dataclasses.replace(CONTRACT, **change))  # pyright: ignore[reportArgumentType]
    with pytest.raises(MeasurementError, match=f"kernel 'fake' was compiled .*{fault}"):
        check(broken, LOOP.format(body=BODY))


def test_spilling_is_refused_first() -> None:
    with pytest.raises(MeasurementError, match="spills: 1 stack accesses"):
        check(with_contract(CONTRACT), LOOP.format(body="    movq %rax, 8(%rsp)"))


@pytest.mark.parametrize(
    ("unit", "accumulators"), [(assembly.AVX512, 40), (assembly.AVX2, 20), (assembly.NEON, 40)]
)
def test_too_many_accumulators_are_refused(unit: assembly.VectorUnit, accumulators: int) -> None:
    pytest.importorskip("llvmlite.binding")
    kernel = compute.fma_kernel(dtype("float32"), unit)
    kernel = dataclasses.replace(kernel, accumulators=accumulators)
    text = compiler.assembly(kernel, triple=TRIPLES[unit.architecture])
    with pytest.raises(MeasurementError, match=r"spills: \d+ stack accesses"):
        check(kernel, text)


def test_vectors_wider_than_the_unit_are_refused() -> None:
    pytest.importorskip("llvmlite.binding")
    wide = compute.fma_kernel(dtype("float32"), assembly.AVX512)
    narrow = dataclasses.replace(wide, unit=assembly.AVX2)
    with pytest.raises(MeasurementError, match="avx2"):
        check(narrow, compiler.assembly(narrow, triple=TRIPLES["x86_64"]))


def test_streams_of_narrower_vectors_are_refused() -> None:
    pytest.importorskip("llvmlite.binding")
    wide, narrow = (assembly.stream_unit("x86_64", sets) for sets in (["avx512f"], ["fma", "avx"]))
    assert wide and narrow
    kernel = stream.stream_kernels(wide)[0]
    borrowed = dataclasses.replace(wide, llvm_features=narrow.llvm_features)
    text = compiler.assembly(dataclasses.replace(kernel, unit=borrowed), triple=TRIPLES["x86_64"])
    with pytest.raises(MeasurementError, match=f"'{kernel.label}' was compiled"):
        check(kernel, text)


def test_a_kernel_that_llvm_refuses_says_so() -> None:
    pytest.importorskip("llvmlite.binding")
    kernel = compute.fma_kernel(dtype("float32"), assembly.AVX2)
    nonsense = dataclasses.replace(kernel.operations[0], code=("{y} = call nonsense",))
    broken = dataclasses.replace(kernel, operations=(nonsense,))
    with pytest.raises(MeasurementError, match=r"LLVM \d+ rejects kernel 'fma float32 avx2'"):
        compiler.assembly(broken, triple=TRIPLES["x86_64"])
