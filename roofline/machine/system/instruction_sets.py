"""Instruction sets by Linux's names, from whoever can tell: the kernel, macOS or a compiler.

Only what the CPU has *and* the operating system enabled counts; each of these sources says that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

_RELEVANT = re.compile(
    r"s?sse|pni$|avx|fma|f16c$|amx|asimd|fphp$|e?bf16$|i8mm$|f8|sve|sme(?!p)",
)
"""How the names of instruction sets begin that change what a CPU can compute per second."""

_BASELINES = {"x86_64": ("sse", "sse2"), "aarch64": ("asimd",)}
"""What an architecture demands of each of its CPUs."""


def relevant(flags: Iterable[str]) -> tuple[str, ...]:
    """Those of the kernel's flags that matter to a ceiling, in order."""
    return tuple(sorted({flag for flag in flags if _RELEVANT.match(flag)}))


def baseline(architecture: str) -> tuple[str, ...]:
    """What every CPU of an architecture has; nothing where that is not known."""
    return _BASELINES.get(architecture, ())


_MACOS = {
    "hw.optional.sse": "sse",
    "hw.optional.sse2": "sse2",
    "hw.optional.sse3": "pni",
    "hw.optional.supplementalsse3": "ssse3",
    "hw.optional.sse4_1": "sse4_1",
    "hw.optional.sse4_2": "sse4_2",
    "hw.optional.f16c": "f16c",
    "hw.optional.fma": "fma",
    "hw.optional.avx1_0": "avx",
    "hw.optional.avx2_0": "avx2",
    "hw.optional.avx512f": "avx512f",
    "hw.optional.avx512bw": "avx512bw",
    "hw.optional.avx512dq": "avx512dq",
    "hw.optional.avx512vl": "avx512vl",
    "hw.optional.neon": "asimd",
    "hw.optional.AdvSIMD": "asimd",
    "hw.optional.neon_fp16": "asimdhp fphp",
    "hw.optional.arm.FEAT_FP16": "asimdhp fphp",
    "hw.optional.arm.FEAT_BF16": "bf16",
    "hw.optional.arm.FEAT_I8MM": "i8mm",
    "hw.optional.arm.FEAT_DotProd": "asimddp",
    "hw.optional.arm.FEAT_SME": "sme",
    "hw.optional.arm.FEAT_SME2": "sme2",
}


def macos_sets(ask: Callable[[str], str]) -> tuple[str, ...]:
    """A Mac's instruction sets; `ask` answers like ``sysctl -n``."""
    return _joined(names for key, names in _MACOS.items() if ask(key) == "1")


_COMPILER = {
    "sse": "sse",
    "sse2": "sse2",
    "sse3": "pni",
    "ssse3": "ssse3",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "f16c": "f16c",
    "fma": "fma",
    "avx": "avx",
    "avx2": "avx2",
    "avxvnni": "avx_vnni",
    "avxvnniint8": "avx_vnni_int8",
    "avxvnniint16": "avx_vnni_int16",
    "avxifma": "avx_ifma",
    "avx512f": "avx512f",
    "avx512bw": "avx512bw",
    "avx512cd": "avx512cd",
    "avx512dq": "avx512dq",
    "avx512vl": "avx512vl",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx512vnni": "avx512_vnni",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    "amx-tile": "amx_tile",
    "amx-bf16": "amx_bf16",
    "amx-int8": "amx_int8",
    "amx-fp16": "amx_fp16",
    "neon": "asimd",
    "fullfp16": "asimdhp fphp",
    "dotprod": "asimddp",
    "bf16": "bf16",
    "i8mm": "i8mm",
    "sve": "sve",
    "sve2": "sve2",
    "sme": "sme",
    "sme2": "sme2",
}
_WITH_SVE = {"bf16": "svebf16", "i8mm": "svei8mm"}
"""One architectural feature, for which the kernel has a name per kind of vector."""


def compiler_sets(features: Mapping[str, bool]) -> tuple[str, ...]:
    """The host's instruction sets from LLVM's features; for where there is no ``/proc/cpuinfo``."""
    named = [names for key, names in _COMPILER.items() if features.get(key)]
    if features.get("sve"):
        named += [name for key, name in _WITH_SVE.items() if features.get(key)]
    return _joined(named)


def _joined(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({name for each in names for name in each.split()}))
