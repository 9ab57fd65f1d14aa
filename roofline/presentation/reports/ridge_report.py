"""What a ridge sweep says, as plain data."""

from __future__ import annotations

from collections.abc import Iterator

from roofline.design.pass_times import DIGITS
from roofline.design.sweeps.ridge import KnownMachine, RidgeSweep
from roofline.foundation.blocks import Block, Column, Facts, Grid, Notes, Report
from roofline.foundation.rows import cells_of, csv_text
from roofline.foundation.text import printable
from roofline.foundation.units import format_intensity, format_s, format_si
from roofline.machine.hardware import describe_threads
from roofline.render.pages import report_html

_WHAT_IT_IS = (
    "hypothetical machines have these compute ceilings and one memory, whose bandwidth makes the"
    " balance; every operand is charged to it (the classic roofline model), so that balance alone"
    " decides: these are bounds, and there are no predictions for machines that do not exist"
)

_WHAT_MACHINES_ARE = (
    "known machines stand at their own balance, with the bounds of their own ceilings and, where"
    " the profile knows them, caches: how far they are from the line between the hypothetical ones"
    " is how far the abstraction holds"
)


_MARK = "!: the peak memory of this design exceeds the memory of that machine"


def ridge_report(ridge: RidgeSweep) -> Report:
    """The report on a ridge sweep: what follows, the hypothetical machines, the known ones."""
    base = printable(ridge.base.name)
    called = zip(ridge.names, ridge.designs, strict=True)
    blocks: list[Block] = [
        Facts(
            lines=(
                *((printable(a), printable(b)) for a, b in called if a != b),
                ("ceilings of", f"{base}, {describe_threads(ridge.base, ridge.threads)}"),
                ("balance for", ridge.dtype),
                ("input", printable(ridge.run)),
            )
        ),
        Notes(
            title="In short",
            lines=(
                *map(printable, ridge.sentences),
                _WHAT_IT_IS,
                *((_WHAT_MACHINES_ARE,) if ridge.machines else ()),
                *((_MARK,) if any(False in ridge.fits_on(each) for each in ridge.machines) else ()),
            ),
            urgent=False,
        ),
        _hypothetical(ridge),
    ]
    if ridge.machines:
        blocks.append(_known(ridge))
    said = list(map(printable, ridge.warnings))
    unknown = [each.name for each in ridge.machines if each.memory_capacity_byte is None]
    if unknown:
        said.append(f"memory capacity not known: {', '.join(map(printable, unknown))}")
    if ridge.left_out:
        said.append(f"not on the axis: {', '.join(map(printable, ridge.left_out))}")
    if said:
        blocks.append(Notes(title="Warnings", lines=tuple(said), urgent=bool(ridge.warnings)))
    names = " against ".join(map(printable, ridge.names))
    return Report(headline=f"{names} over the balance of machines", blocks=tuple(blocks))


def _others(ridge: RidgeSweep) -> list[int]:
    return [i for i in range(len(ridge.designs)) if i != ridge.reference]


def _headings(ridge: RidgeSweep) -> Iterator[Column]:
    base = printable(ridge.names[ridge.reference])
    yield Column(heading="FLOP/byte", align="right")
    yield Column(heading=f"bound of {base}", align="right", sacrifice=1)
    for i in _others(ridge):
        yield Column(heading=f"{printable(ridge.names[i])} / {base}", align="right")
    yield Column(heading="lowest bound")


def _cells(
    ridge: RidgeSweep, balance: float, times_s: tuple[float, ...], leads: str
) -> tuple[str, ...]:
    ratios = ridge.over_reference(times_s)
    return (
        format_intensity(balance),
        format_s(times_s[ridge.reference]),
        *(format_si(ratios[i], "", DIGITS) for i in _others(ridge)),
        printable(leads),
    )


def _leads(ridge: RidgeSweep, machine: KnownMachine) -> str:
    """The design with the lowest bound, then those that do not fit: ``"A, B!"``."""
    best = ridge.best_on(machine)
    large = [
        f"{name}!"
        for name, each in zip(ridge.names, ridge.fits_on(machine), strict=True)
        if each is False
    ]
    return ", ".join([*([ridge.names[best]] if best is not None else []), *large])


def _hypothetical(ridge: RidgeSweep) -> Grid:
    return Grid(
        title="Hypothetical machines",
        columns=tuple(_headings(ridge)),
        rows=tuple(
            _cells(ridge, balance, times, ridge.names[times.index(min(times))])
            for balance, times in zip(ridge.balances, ridge.bound_s, strict=True)
        ),
    )


def _known(ridge: RidgeSweep) -> Grid:
    return Grid(
        title="Machines that there are",
        columns=(
            Column(heading="machine"),
            *_headings(ridge),
            Column(heading="caches", sacrifice=2),
        ),
        rows=tuple(
            (
                printable(each.name),
                *_cells(ridge, each.balance, each.bound_s, _leads(ridge, each)),
                "its own" if each.has_caches else "not known",
            )
            for each in ridge.machines
        ),
    )


def ridge_html(ridge: RidgeSweep) -> str:
    """The report as a self-contained HTML fragment for notebooks."""
    return report_html(ridge_report(ridge))


def ridge_csv(ridge: RidgeSweep) -> str:
    """One row a design and machine."""
    rows = list(ridge.rows())
    return csv_text(rows[0], cells_of(rows[0], rows))
