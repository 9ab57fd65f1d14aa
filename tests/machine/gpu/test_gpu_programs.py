"""What becomes of our programs: NVIDIA's assembler takes them, and the loops hold what they say."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from fake_gpu import flop_of_loop

from roofline.machine.gpu.arithmetic import (
    ArithmeticKernel,
    arithmetic_kernels,
    cuda_core_kernels,
    matrix_kernels,
    warpgroup_kernels,
)
from roofline.machine.gpu.ptx import (
    CHUNK_BYTE,
    Capability,
    Program,
    StreamKernel,
    empty_program,
    stream_kernels,
)

CAPABILITIES: Sequence[Capability] = (
    *((7, 5), (8, 0), (8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (12, 0)),
)

assembler = pytest.mark.skipif(shutil.which("ptxas") is None, reason="ptxas is not installed")
disassembler = pytest.mark.skipif(
    shutil.which("nvdisasm") is None, reason="nvdisasm is not installed"
)


def kernels() -> list[tuple[Capability, ArithmeticKernel]]:
    """Every different program, for the oldest and the newest device that gets it."""
    found: dict[str, list[tuple[Capability, ArithmeticKernel]]] = {}
    for capability in CAPABILITIES:
        for kernel in arithmetic_kernels(capability):
            found.setdefault(kernel.program.entry, []).append((capability, kernel))
    return [one for each in found.values() for one in dict.fromkeys((each[0], each[-1]))]


every_kernel = pytest.mark.parametrize(
    ("capability", "kernel"), kernels(), ids=lambda each: getattr(each, "label", str(each))
)


def assembled(program: Program, capability: Capability, folder: Path) -> tuple[Path, str]:
    source, target = folder / "program.ptx", folder / "program.cubin"
    source.write_text(program.text, encoding="utf-8")
    family = "a" if program.only_major is not None else ""
    architecture = f"sm_{capability[0]}{capability[1]}{family}"
    command = ["ptxas", "-v", f"-arch={architecture}", str(source), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "is not defined for option 'gpu-name'" in done.stderr:
        pytest.skip(f"this ptxas does not know {architecture}")
    assert done.returncode == 0, done.stderr
    return target, done.stderr


@every_kernel
@assembler
def test_the_assembler_takes_it_without_spills(
    capability: Capability, kernel: ArithmeticKernel, tmp_path: Path
) -> None:
    _, said = assembled(kernel.program, capability, tmp_path)
    assert "0 bytes spill stores, 0 bytes spill loads" in said
    # wgmma whose registers are touched between two of them runs one after the other.
    assert "serialized" not in said and "arning" not in said
    (registers,) = re.findall(r"Used (\d+) registers", said)
    assert int(registers) * kernel.program.block * kernel.program.blocks <= 65536


@every_kernel
@assembler
@disassembler
def test_the_machine_code_holds_what_was_asked_for(
    capability: Capability, kernel: ArithmeticKernel, tmp_path: Path
) -> None:
    if kernel.sass == "DMMA" and capability[0] >= 10:
        pytest.skip("the assembler makes eight smaller products of each")
    cubin, _ = assembled(kernel.program, capability, tmp_path)
    blocks = _blocks(_disassembled(cubin))
    counts = [sum(each.startswith(kernel.sass) for each in block) for block in blocks]
    assert max(counts) == kernel.count
    loop = blocks[counts.index(kernel.count)]
    assert loop[-1].startswith("BRA")
    # Between products, which take many cycles each, the assembler may put what fills the time.
    fillers = (kernel.sass, "NOP", "UIADD3", "IMAD.MOV")
    assert sum(not each.startswith(fillers) for each in loop) <= 8


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("kernel", stream_kernels(), ids=lambda each: each.name)
@assembler
def test_the_assembler_takes_streams(
    kernel: StreamKernel, capability: Capability, tmp_path: Path
) -> None:
    _, said = assembled(kernel.program, capability, tmp_path)
    assert "0 bytes spill stores" in said
    (registers,) = re.findall(r"Used (\d+) registers", said)
    assert int(registers) <= 64  # or four blocks do not fit a multiprocessor


@pytest.mark.parametrize("kernel", stream_kernels(), ids=lambda each: each.name)
@assembler
@disassembler
def test_streams_access_sixteen_bytes_at_once(kernel: StreamKernel, tmp_path: Path) -> None:
    cubin, _ = assembled(kernel.program, (9, 0), tmp_path)
    code = _disassembled(cubin)
    assert sum(each.startswith("LDG.E.128") for each in code) == 4 * kernel.loads
    assert sum(each.startswith("STG.E.128") for each in code) == 4 * kernel.stores


@assembler
def test_the_assembler_takes_the_empty_program(tmp_path: Path) -> None:
    for capability in CAPABILITIES:
        assembled(empty_program(), capability, tmp_path)


def _disassembled(cubin: Path) -> list[str]:
    command = ["nvdisasm", "-c", str(cubin)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return re.findall(
        r"^(?:\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(?=[A-Z])|(?=\.L_))(\S+)", text, re.M
    )


def _blocks(code: list[str]) -> list[list[str]]:
    """The instructions between labels and branches."""
    blocks: list[list[str]] = [[]]
    for each in code:
        if each.startswith(".L_"):
            blocks.append([])
        else:
            blocks[-1].append(each)
            if each.startswith("BRA"):
                blocks.append([])
    return blocks


@every_kernel
def test_the_declared_flop_are_those_of_the_text(
    capability: Capability, kernel: ArithmeticKernel
) -> None:
    instruction, per_thread = flop_of_loop(kernel.program.text)
    assert instruction == kernel.instruction
    assert kernel.flop == per_thread * kernel.program.block
    loop = kernel.program.text.split("again:")[1].split("bra again;")[0]
    assert loop.count(f"\n{instruction} ") == kernel.count


def test_flop_by_hand() -> None:
    flop = {each.label: each.flop for each in arithmetic_kernels((9, 0))}
    # 256 threads of 8 × 32 multiply-adds; in pairs; four in an int8 dot product.
    assert flop["float32 cuda-core fma"] == 2 * 256 * 256
    assert flop["float16 cuda-core fma"] == 2 * 256 * 256 * 2
    assert flop["int8 cuda-core dot"] == 2 * 256 * 256 * 4
    # One warpgroup, 16 products of 64 × 256 × 16.
    assert flop["bfloat16 tensor-core mma"] == 16 * 2 * 64 * 256 * 16
    # 8 warps, 64 products of 16 × 8 × 16.
    assert flop["float64 tensor-core mma"] == 8 * 64 * 2 * 16 * 8 * 16


@pytest.mark.parametrize(
    ("name", "accesses", "arrays"),
    [("read", 1, 1), ("write", 1, 1), ("copy", 2, 2), ("triad", 3, 3), ("update", 2, 1)],
)
def test_bytes_by_hand(name: str, accesses: int, arrays: int) -> None:
    (kernel,) = (each for each in stream_kernels() if each.name == name)
    assert (kernel.accesses, kernel.arrays) == (accesses, arrays)
    body = kernel.program.text.split("again:")[1].split("bra again;")[0]
    moved = 16 * kernel.program.block * len(re.findall(r"(?:ld|st)\.global\S*v4", body))
    assert moved == accesses * CHUNK_BYTE


def test_hopper_gets_warpgroups_where_they_exist_and_others_do_not() -> None:
    labels = [each.label for each in arithmetic_kernels((9, 0))]
    assert len(labels) == len(set(labels))
    wide = {each.program.entry for each in arithmetic_kernels((9, 0)) if each.sass.endswith("GMMA")}
    assert len(wide) == 7
    for capability in ((8, 9), (10, 0), (12, 0)):
        assert warpgroup_kernels(capability) == []
    # fp8 without tensor cores of its own is made of other instructions: no ceiling of that unit.
    assert not any(
        each.dtype.bits == 8 and each.dtype.kind == "float" for each in matrix_kernels((10, 0))
    )
    assert any(each.dtype.name == "float8_e4m3fn" for each in matrix_kernels((12, 0)))


def test_old_devices_get_old_instructions() -> None:
    assert {each.dtype.name for each in cuda_core_kernels((7, 0))} == {
        *("float64", "float32", "float16", "int32", "int8"),
    }
    assert matrix_kernels((7, 0)) == []
    (turing,) = (each for each in matrix_kernels((7, 5)) if each.label == "float16 tensor-core mma")
    assert "m16n8k8" in turing.instruction
    (ampere,) = (each for each in matrix_kernels((8, 0)) if each.label == "float16 tensor-core mma")
    assert "m16n8k16" in ampere.instruction
    assert not any(each.dtype.name == "float64" for each in matrix_kernels((8, 9)))
