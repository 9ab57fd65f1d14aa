"""Compilations for the tests of reports; all numbers are made up."""

from __future__ import annotations

from dataclasses import replace

from roofline.design.compilation import Compilation
from roofline.workload.compiled_kernels import (
    CompiledGraph,
    CompiledKernel,
    CompiledPass,
    EagerCalls,
)
from tests.analysis.examples import hostile, resnet, small

COMPILER = "Inductor of torch 2.13.0"


def plain() -> Compilation:
    """One graph of three kernels, two of them alike."""
    fused = CompiledKernel(
        name="cpp_fused_relu_0",
        kind="generated",
        loops=2,
        operators=("aten.relu", "aten.add"),
        modules=("layer1.0.relu",),
        read_bytes=3_000_000,
        written_bytes=1_000_000,
    )
    product = CompiledKernel(
        name="extern_kernels.addmm",
        kind="library",
        operators=("aten.addmm",),
        modules=("fc",),
        read_bytes=8_000_000,
        written_bytes=4_000,
    )
    graph = CompiledGraph(
        phase="forward",
        calls=1,
        kernels=(fused, product, fused),
        buffers=3,
        reused=1,
        allocated_bytes=2_000_000,
        peak_bytes=1_500_000,
    )
    return Compilation(analysis=resnet(), compiled=CompiledPass(compiler=COMPILER, graphs=(graph,)))


def broken() -> Compilation:
    """Two graphs, one of them called three times, with a kernel of unknown bytes."""
    (graph,) = plain().compiled.graphs
    packed = CompiledKernel(
        name="mkl._mkl_linear", kind="library", read_bytes=None, written_bytes=None
    )
    compiled = CompiledPass(
        compiler=COMPILER,
        graphs=(graph, replace(graph, calls=3, kernels=(packed,))),
        breaks=("Data-dependent branching",),
        outside=(EagerCalls(op="aten.nonzero", part="forward", calls=2),),
        notes=("compiled on real tensors; on fake tensors: it needs tensor values",),
    )
    return Compilation(analysis=resnet(), compiled=compiled)


def unavailable() -> Compilation:
    """Nothing is known."""
    return Compilation(
        analysis=small(),
        compiled=CompiledPass(compiler=COMPILER, why_not="torch.compile failed: no such thing"),
    )


def hostile_names() -> Compilation:
    """Names with markup, control characters and pipes in them."""
    evil = "<script>alert(1)</script>|\x1b[31m"
    kernel = CompiledKernel(
        name=evil,
        kind="generated",
        operators=(evil,),
        modules=(evil,),
        read_bytes=1,
        written_bytes=1,
    )
    graph = CompiledGraph(
        phase="forward",
        calls=1,
        kernels=(kernel,),
        buffers=0,
        reused=0,
        allocated_bytes=0,
        peak_bytes=0,
    )
    return Compilation(
        analysis=hostile(),
        compiled=CompiledPass(compiler=evil, graphs=(graph,), breaks=(evil,), notes=(evil,)),
    )


def compilations() -> dict[str, Compilation]:
    """All of them by name."""
    return {
        "plain": plain(),
        "broken": broken(),
        "unavailable": unavailable(),
        "hostile": hostile_names(),
    }
