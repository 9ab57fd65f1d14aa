"""Multiply-adds on the CUDA cores, without tensor cores: eight independent sums a thread.

Every sum becomes ``sum * factor + addend`` again and again, with a factor below one (floating
types), so that it settles at an ordinary number; neither is known to the compiler.
"""

from __future__ import annotations

from dataclasses import dataclass

from roofline.foundation.dtypes import DType, dtype
from roofline.machine.gpu.ptx import Capability, Program, assemble, repeated, stored_if_unlikely

CUDA_CORE = "cuda-core"

BLOCK = 256
_BLOCKS = 4
_SUMS = 8
_UNROLL = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ArithmeticKernel:
    """A program that computes: ``flop`` per block and iteration, by ``count`` `instruction`.

    ``count`` are the instructions of the loop's body, as in the PTX; ``sass`` is how the machine
    code names them; ``flop`` counts a multiply-add as two operations. ``note`` says how it is made.
    """

    program: Program
    name: str
    dtype: DType
    unit: str
    instruction: str
    sass: str
    count: int
    flop: int
    note: str

    @property
    def label(self) -> str:
        """How it is named in progress and conditions: ``"float32 cuda-core fma"``."""
        return f"{self.dtype} {self.unit} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Multiply:
    """An instruction ``op sum, sum, factor, addend`` and the types of its registers.

    ``lanes`` are multiply-adds per instruction and thread; ``narrow`` is the type that a float32
    is converted to, twice, where two share a register.
    """

    name: str
    element: str
    op: str
    sass: str
    register: str
    lanes: int = 1
    narrow: str = ""
    least: Capability = (7, 0)


_MULTIPLIES = (
    _Multiply(name="fma", element="float64", op="fma.rn.f64", sass="DFMA", register="f64"),
    _Multiply(name="fma", element="float32", op="fma.rn.f32", sass="FFMA", register="f32"),
    _Multiply(
        name="fma",
        element="float16",
        op="fma.rn.f16x2",
        sass="HFMA2",
        register="b32",
        lanes=2,
        narrow="f16",
    ),
    _Multiply(
        name="fma",
        element="bfloat16",
        op="fma.rn.bf16x2",
        sass="HFMA2.BF16",
        register="b32",
        lanes=2,
        narrow="bf16",
        least=(8, 0),
    ),
    _Multiply(name="mul-add", element="int32", op="mad.lo.s32", sass="IMAD", register="s32"),
    _Multiply(
        name="dot", element="int8", op="dp4a.s32.s32", sass="IDP.4A", register="s32", lanes=4
    ),
)


def cuda_core_kernels(capability: Capability) -> list[ArithmeticKernel]:
    """The kernels that a device of that compute capability can run."""
    kernels = (_kernel(each) for each in _MULTIPLIES)
    return [kernel for kernel in kernels if kernel.program.runs_on(capability)]


def _kernel(multiply: _Multiply) -> ArithmeticKernel:
    element = dtype(multiply.element)
    count = _SUMS * _UNROLL
    body = [
        f"{multiply.op} %sum{i}, %sum{i}, %factor, %addend;"
        for _ in range(_UNROLL)
        for i in range(_SUMS)
    ]
    program = assemble(
        f"{multiply.name.replace('-', '_')}_{element}",
        parameters=(("u64", "out"), ("u32", "iterations")),
        registers=(
            *(("pred", "more"), ("pred", "unlikely"), ("u64", "out"), ("u32", "left")),
            *(("u32", "thread"), ("u32", "threads"), ("f32", "real<2>"), ("b32", "bits<3>")),
            *((("b16", "half"),) if multiply.narrow else ()),
            *((multiply.register, each) for each in ("factor", "addend", f"sum<{_SUMS}>")),
        ),
        body=(
            "ld.param.u64 %out, [out];",
            "ld.param.u32 %left, [iterations];",
            "mov.u32 %thread, %tid.x;",
            "mov.u32 %threads, %ntid.x;",
            *_operands(multiply),
            *(_start(multiply, i) for i in range(_SUMS)),
            *repeated(body, counter="left"),
            *_combined(multiply),
            *stored_if_unlikely("bits0", "out"),
        ),
        block=BLOCK,
        blocks=_BLOCKS,
        least=multiply.least,
    )
    return ArithmeticKernel(
        program=program,
        name=multiply.name,
        dtype=element,
        unit=CUDA_CORE,
        instruction=multiply.op,
        sass=multiply.sass,
        count=count,
        flop=2 * multiply.lanes * count * BLOCK,
        note=f"{multiply.op}, {_SUMS} independent sums a thread,"
        f" {BLOCK * _BLOCKS} threads a multiprocessor",
    )


def _operands(multiply: _Multiply) -> list[str]:
    """Factor and addend from the numbers of the thread and of all threads of its block."""
    if multiply.register == "s32":
        return [
            "mad.lo.s32 %factor, %threads, 0x01010101, 1;",
            "mad.lo.s32 %addend, %thread, 0x01010101, 1;",
        ]
    lines = [
        "cvt.rn.f32.u32 %real0, %threads;",
        "mul.f32 %real0, %real0, 0f3B700000;",  # 15/16 of 1/256: the factor
        "cvt.rn.f32.u32 %real1, %thread;",
        "mul.f32 %real1, %real1, 0f39800000;",  # 1 / 4096
        "add.f32 %real1, %real1, 0f39800000;",
    ]
    for i, name in enumerate(("factor", "addend")):
        if multiply.narrow:
            lines += [
                f"cvt.rn.{multiply.narrow}.f32 %half, %real{i};",
                f"mov.b32 %{name}, {{%half, %half}};",
            ]
        elif multiply.register == "f64":
            lines.append(f"cvt.f64.f32 %{name}, %real{i};")
        else:
            lines.append(f"mov.f32 %{name}, %real{i};")
    return lines


def _start(multiply: _Multiply, index: int) -> str:
    """Sums begin at different values, so that none is another's."""
    if multiply.register == "s32":
        return f"add.s32 %sum{index}, %addend, {index};"
    if multiply.narrow:
        return f"add.u32 %sum{index}, %addend, {index};"
    real = {"f32": "0f40800000", "f64": "0d4010000000000000"}[multiply.register]
    previous = f"%sum{index - 1}" if index else "%addend"
    return f"add.{multiply.register} %sum{index}, {previous}, {real};"


def _combined(multiply: _Multiply) -> list[str]:
    """All sums as 32 bits in ``bits0``."""
    lines = ["mov.b32 %bits0, 0;"]
    for i in range(_SUMS):
        if multiply.register == "f64":
            lines += [f"mov.b64 {{%bits1, %bits2}}, %sum{i};", "xor.b32 %bits1, %bits1, %bits2;"]
        else:
            lines.append(f"mov.b32 %bits1, %sum{i};")
        lines.append("xor.b32 %bits0, %bits0, %bits1;")
    return lines
