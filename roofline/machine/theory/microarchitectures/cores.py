"""What one core can do each cycle: its pipes per kernel and unit, and the ports of its caches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from roofline.foundation.dtypes import DType
from roofline.foundation.text import counted

_FLOP_PER_MULTIPLY_ADD = 2

_FLOATS = frozenset({"float32", "float64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """What one kernel on one unit can start each cycle.

    `count` ``pipes`` of ``bits`` multiply and add (0: one element at a time); so many ``adders`` of
    the same width add beside them. Names of ``kernel`` and ``unit`` are those of `ComputeCeiling`;
    the kernel ``mmla`` multiplies each element twice. An instruction that is wider than the pipes
    takes several of them, or several cycles.
    """

    kernel: str
    unit: str
    dtypes: frozenset[str]
    pipes: int
    bits: int
    adders: int = 0

    def products(self, element: DType) -> int:
        """Multiply-adds that one pipe starts each cycle."""
        lanes = max(1, self.bits // element.bits)
        return 2 * lanes if self.kernel == "mmla" else lanes

    def flop_per_cycle(self, element: DType) -> int:
        """Operations of one core each cycle; a multiply and an add count one each."""
        macs = self.pipes * _FLOP_PER_MULTIPLY_ADD + self.adders
        return macs * self.products(element)

    def arithmetic(self, element: DType) -> str:
        """How `flop_per_cycle` follows: ``"2 pipes x 16 lanes x 2 FLOP"``."""
        what = "lane" if self.kernel in ("fma", "fma-add", "mul-add") else "product"
        operations = "FLOP" if element.kind == "float" else "operations"
        width = f"x {counted(self.products(element), what)} x"
        product = f"{counted(self.pipes, 'pipe')} {width} {_FLOP_PER_MULTIPLY_ADD} {operations}"
        if not self.adders:
            return product
        return f"({product} + {counted(self.adders, 'adder')} {width} 1 {operations})"


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestCache:
    """Bytes that a core can move each cycle between its registers and its nearest data cache.

    With vectors of at least ``bits``; narrower ones may reach less. ``store_bytes`` None: not
    known. ``together_bytes`` is the most that loads and stores move together.
    """

    bits: int
    load_bytes: int
    store_bytes: int | None = None
    together_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """A microarchitecture: what one core can do each cycle, as far as ``reference`` says it.

    What is not listed is not known. ``l2_read_bytes`` are bytes that it can read from the second
    cache each cycle.
    """

    name: str
    reference: str
    throughputs: tuple[Throughput, ...]
    l1: NearestCache | None = None
    l2_read_bytes: int | None = None

    def throughput(self, kernel: str, element: DType, unit: str) -> Throughput | None:
        """What it can start of that kernel each cycle; None: not known."""
        for each in self.throughputs:
            if (each.kernel, each.unit) == (kernel, unit) and element.name in each.dtypes:
                return each
        return None


def fma(count: int, *, adders: int = 0, half: Iterable[str] = (), **bits: int) -> list[Throughput]:
    """FMA pipes of floating-point units: ``fma(2, scalar=0, sse=128)``.

    With `adders`, also the mix of multiply-adds and additions, which they take beside them; the
    units in `half` compute in float16 too.
    """
    found: list[Throughput] = []
    for name, width in bits.items():
        kinds = _FLOATS | {"float16"} if name in half else _FLOATS
        found += [throughput("fma", name, count, width, kinds)]
        if adders:
            found += [throughput("fma-add", name, count, width, kinds, adders=adders)]
    return found


def throughput(
    kernel: str, unit: str, pipes: int, bits: int, dtypes: Iterable[str], *, adders: int = 0
) -> Throughput:
    """A `Throughput` in a line of a table."""
    return Throughput(
        kernel=kernel,
        unit=unit,
        dtypes=frozenset(dtypes),
        pipes=pipes,
        bits=bits,
        adders=adders,
    )


def dot(element: str, pipes: int, **bits: int) -> list[Throughput]:
    """Dot products of `element`: ``dot("int8", 2, avx512_vnni=512)``; ``_`` stands for ``-``."""
    return [
        throughput("dot", name.replace("_", "-"), pipes, width, [element])
        for name, width in bits.items()
    ]
