"""What leaving a model as it was costs, by what else its process holds.

    python benchmarks/left_as_it_was.py > benchmarks/left_as_it_was.md

`analyze` of a one-layer module whose file holds more and more; one process, in turn.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import roofline

ROUNDS = 201
HELD: Any = None
"""What the file holds besides; no code of a model names it."""

TABLE: dict[Any, Any] = {}
"""What the code of a model names."""


class Layer(torch.nn.Module):
    """One layer, which asks a table of its file."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer of what it is given."""
        return self.linear(x) + TABLE.get("offset", 0)


def small_dicts(number: int) -> list[dict[str, Any]]:
    """As many of them, as a notebook holds rows of a table."""
    return [{"number": each, "values": [each]} for each in range(number)]


CASES: dict[str, tuple[Callable[[], Any], Callable[[], dict[Any, Any]]]] = {
    "nothing": (lambda: None, dict),
    "80,000 small dicts": (lambda: small_dicts(80_000), dict),
    "1,000,000 small dicts": (lambda: small_dicts(1_000_000), dict),
    "80,000 small dicts in a table that the model uses": (
        lambda: None,
        lambda: dict(enumerate(small_dicts(80_000))),
    ),
}


def main() -> None:
    """Prints the table."""
    global HELD, TABLE
    torch.set_num_threads(1)
    model, hardware = Layer(), roofline.load_hardware("10980xe")
    made = {name: (held(), table()) for name, (held, table) in CASES.items()}
    times: dict[str, list[float]] = {name: [] for name in CASES}
    for each in range(ROUNDS + 3):
        for name in CASES:
            HELD, TABLE = made[name]
            begin = time.perf_counter()
            roofline.analyze(model, (1, 64), hardware=hardware)
            if each >= 3:
                times[name].append((time.perf_counter() - begin) * 1e3)
    HELD, TABLE = None, {}
    bare = times["nothing"]
    print("# What leaving a model as it was costs\n")
    print(f"`analyze` of a one-layer module, one process, in turn: medians of {ROUNDS} rounds.")
    print("Added: median of the differences from the same round with nothing.\n")
    print("Rerun: `python benchmarks/left_as_it_was.py > benchmarks/left_as_it_was.md`\n")
    print("| the file of the model also holds | ms | added ms |\n|---|---:|---:|")
    for name, found in times.items():
        added = statistics.median(one - other for one, other in zip(found, bare, strict=True))
        print(f"| {name} | {statistics.median(found):.2f} | {added:+.2f} |")


if __name__ == "__main__":
    main()
