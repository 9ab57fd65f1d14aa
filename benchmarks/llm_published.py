"""Do published tokens/s of language models exceed our limit (batch over minimum time)?

    python benchmarks/llm_published.py [CSV]

CSV (llm_published.csv unless given) has a figure of a serving engine per row, with its source.
Each is held against `roofline llm`'s minimum times of a paged engine on the machine file of its
device, in the sizes of its bundled configuration: weights and KV cache once per pass, at the mean
bits per weight of the row. No ceiling is fitted to any row. What a row leaves open is taken so that
the limit is highest:

* arithmetic of quantized weights: int8 or fp8, whichever the machine has, or 4-bit floats;
  embedding and head have the mean bits as well
* lengths that are not stated: a context of one token; decode: the mean context while generating
* batch "many": the largest that fits into memory at the mean context
* ranks: tensor-parallel groups of any size, links without time, the batch divided over the groups
* form of a card that is not stated: the faster one
* throughput: prefill and decode of the same sequences share arithmetic and bytes
* experts: all tokens are routed to the same ones; a second limit takes uniform routing

It writes the ratios to llm_published.md. Rows that state speculation, pruning, sparsity or no
weight format are excluded and counted. Exits with 1 where a figure is above its limit.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from roofline.core.dtypes import dtype
from roofline.errors import InputError
from roofline.llm.architecture import Architecture
from roofline.llm.bounds import Limits, ModelOnMachine
from roofline.llm.formats import WeightFormat
from roofline.llm.memory import Memory
from roofline.llm.parts import StageSize
from roofline.llm.serving import Machine, Model
from roofline.machine.catalog import load_hardware
from roofline.placement import Roof
from roofline.workload.models.libraries.transformers_config import bundled_names, parse_settings

HERE = Path(__file__).parent

DEVICES: Mapping[str, str] = {
    **dict.fromkeys(("H100-SXM-80GB", "H100", "H100 (form not stated)"), "h100"),
    "H100-PCIe-80GB": "h100-pcie",
    **dict.fromkeys(("H200-SXM", "H200-SXM-141GB", "H200-SXM-141GB-CTS"), "h200"),
    **dict.fromkeys(("A100-SXM-80GB", "A100-SXM-80GB (330 W)", "A100-80GB"), "a100"),
    **dict.fromkeys(
        (
            *("A100 (80 GB; form not stated, PCIe between cards)", "A100 (form not stated)"),
            "A100 (one; form not stated)",
        ),
        "a100",
    ),
    "A100-PCIe-80GB": "a100-pcie-80gb",
    **dict.fromkeys(("B200-SXM-180GB", "B200"), "b200"),
    "L40S": "l40s",
    "RTX PRO 6000 Blackwell SE": "rtx-pro-6000-se",
    **dict.fromkeys(("RTX 4090", "GeForce RTX 4090", "RTX 4090 (Intel 265K)"), "rtx4090"),
    **dict.fromkeys(("GH200-480GB (96 GB HBM3)", "GH200 Grace Hopper Superchip 96GB"), "gh200"),
    "RTX 3090": "rtx-3090",
    "RTX A6000": "a6000",
    "A40": "a40",
    **dict.fromkeys(("MI300X", "MI300X-NPS1-SPX-192GB-750W"), "mi300x"),
    "MI100": "mi100",
    "MI250X one GCD": "mi250x-gcd",
    "OnePlus 12 (Snapdragon 8 Gen 3)": "snapdragon-8-gen-3",
    "M2 Ultra 76-core": "m2-ultra",
    **dict.fromkeys(("M1 Max 32-core GPU", "M1 Max Mac Studio"), "m1-max"),
    "M3 Max 40-core GPU": "m3-max",
    **dict.fromkeys(("RTX 4080", "RTX 4080 (Ryzen 9 7950X)"), "rtx-4080"),
    "RTX 5090 (Intel 13900K)": "rtx-5090",
    **dict.fromkeys(("Jetson Orin", "Jetson AGX Orin 64G", "IGX Orin iGPU (as AGX Orin)"), "orin"),
    "V100-PCIE-32GB": "v100-pcie-32gb",
}

MODELS: Mapping[str, str] = {
    # Of equal sizes.
    "Llama-1-7B": "llama-2-7b",
    "Llama-1-13B": "llama-2-13b",
    "Llama-3-8B": "llama-3.1-8b",
    "Llama-3-70B": "llama-3.1-70b",
    "Qwen2.5-Coder-7B": "qwen2.5-7b",
    "Qwen3-4B-Instruct-2507": "qwen3-4b",
    "Qwen3-30B-A3B-Instruct-2507": "qwen3-30b-a3b",
    "Qwen3-Coder-30B-A3B": "qwen3-30b-a3b",
    "GPT-J-6B": "gpt-j-6b",
}

_FLOATS = ("bf16", "f16", "fp16")
_NOMINAL = {**dict.fromkeys(_FLOATS, 16), "int8": 8, "fp8": 8, "int4": 4}
"""Bits of weights in files without a column of them."""

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Held:
    """A row held against its limit; `reason` if it is not; `uniform`: with uniform routing."""

    row: Row
    limit: float | None
    uniform: float | None = None
    reason: str = ""

    @property
    def ratio(self) -> float:
        """Published figure over limit."""
        return float(self.row["tokens_per_s"]) / (self.limit or 1.0)


@functools.cache
def machine(name: str) -> Machine:
    """The machine of a bundled file."""
    profile = load_hardware(name)
    return Machine(
        roof=Roof(profile, profile.threads),
        memory=Memory(size_bytes=profile.memory_capacity_bytes, source=name),
    )


@functools.cache
def architecture(name: str) -> Architecture:
    """The architecture of a bundled configuration."""
    return Architecture.of(parse_settings(name).base)


def format_of(row: Row, of: Machine) -> WeightFormat:
    """The weight format of a row, with the fastest arithmetic that it leaves open."""
    name = row["weights"].lower()
    bits = float(row["mean_bits_per_weight"] or _NOMINAL[name])
    if name in _FLOATS or bits >= 16:
        return WeightFormat.parse("bf16" if name == "bf16" else "fp16")
    if "fp4" in name:
        return WeightFormat(name=name, bits=bits, compute=WeightFormat.parse("nvfp4").compute)
    fast = [dtype("int8"), dtype("float8_e4m3fn")]
    known = [each for each in fast if each in of.roof.mac_ceilings]
    compute = max(known, key=lambda each: of.roof.mac_ceilings[each].flop_per_s, default=None)
    return WeightFormat(name=name, bits=bits, compute=compute)


def cache_of(row: Row) -> str:
    """The type of the KV cache: engines with FP8 or FP4 weights keep it in FP8."""
    return "float8_e4m3fn" if row["weights"].lower() in ("fp8", "fp4", "nvfp4") else "float16"


def placed(row: Row, ranks: int) -> tuple[Model, ModelOnMachine]:
    """The model of a row on its machine, as one of `ranks` tensor-parallel ranks."""
    of = machine(DEVICES[row["device"]])
    name = MODELS.get(row["model"], row["model"].lower())
    model = Model(architecture=architecture(name), floats=dtype("float16"), all_weights=True)
    types = model.types(format_of(row, of), dtype(cache_of(row)), of.roof)
    return model, model.on(of, types, ranks)


def limit_in_groups(row: Row, groups: int, ranks: int, *, uniform: bool) -> float | None:
    """The limit in tokens/s of groups of tensor-parallel ranks; None if none fits."""
    model, on = placed(row, ranks)

    def limits_of(size: StageSize) -> Limits:
        spread = on.spread(size)
        return on.limits(size, None if uniform or spread is None else spread.least)

    read, made = (int(float(row[name] or 0)) for name in ("input_tokens", "output_tokens"))
    if row["what"] == "prefill":
        batch = max(1, int(row["batch"] or 1) // groups)
        limits = limits_of(model.size("prefill", batch, max(1, read)))
        return _rate(groups * limits.size.new_tokens, limits)
    mean = max(1, read + made // 2)
    if row["batch"] == "many":
        batch = model.footprint(on, 1, mean).max_sequences or 0
    else:
        groups = min(groups, int(row["batch"]))
        batch = -(-int(row["batch"]) // groups)
    if not batch:
        return None
    decode = limits_of(model.size("decode", batch, mean))
    if row["what"] == "decode" or not made:
        return _rate(groups * batch, decode)
    if not read:
        return _rate(groups * batch, decode)
    prefill = limits_of(model.size("prefill", batch, read))
    compute_s, memory_s = (
        made * _seconds(getattr(decode, kind)) + _seconds(getattr(prefill, kind))
        for kind in ("compute", "memory")
    )
    # Prefill of one sequence runs next to decode of others, and reads weights with them.
    memory_s -= prefill.weight_bytes / on.roof.levels[-1].bytes_per_s
    counted = read + made if row["what"] in ("prompt+generation", "throughput in+out") else made
    return groups * batch * counted / max(compute_s, memory_s)


def _seconds(minimum: object) -> float:
    return getattr(minimum, "time_s", 0.0)


def _rate(tokens: int, limits: Limits) -> float | None:
    return tokens / limits.minimum.time_s if limits.minimum else None


def held(row: Row) -> Held:
    """A row against its limit."""
    if row["excluded"]:
        return Held(row, None, reason=row["excluded"])
    if row["device"] not in DEVICES:
        return Held(row, None, reason="no bundled machine file")
    if MODELS.get(row["model"], row["model"].lower()) not in bundled_names():
        return Held(row, None, reason="no bundled configuration")
    limit = highest_limit(row, uniform=False)
    if limit is None:
        return Held(row, None, reason="does not fit into memory at its lengths")
    return Held(row, limit, highest_limit(row, uniform=True))


def highest_limit(row: Row, *, uniform: bool) -> float | None:
    """The highest limit of any division of the ranks into groups; None if none fits."""
    ranks, found = int(row["ranks"]), list[float]()
    for size in range(1, ranks + 1):
        # Sizes that do not divide heads are no groups.
        with contextlib.suppress(InputError):
            if ranks % size == 0:
                limit = limit_in_groups(row, ranks // size, size, uniform=uniform)
                found += [limit] if limit else []
    return max(found, default=None)


def rows_of(path: Path) -> Iterator[Row]:
    """The rows of a file; columns that it lacks are empty."""
    names = ("mean_bits_per_weight", "input_tokens", "output_tokens", "excluded")
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            yield {**dict.fromkeys(names, ""), **row}


def lines_of(all_rows: Sequence[Held], name: str) -> Iterator[str]:
    """The report."""
    known = [each for each in all_rows if each.limit is not None]
    above = [each for each in known if each.ratio > 1]
    devices = {DEVICES[each.row["device"]] for each in known}
    yield "# Published tokens/s against the limit"
    yield ""
    yield (
        f"{len(known)} of {len(all_rows)} figures of {name} on {len(devices)} machines:"
        f" **{len(above)} above the limit**. How to rerun: `benchmarks/llm_published.py`."
    )
    yield ""
    yield from _table("engine", known, lambda each: each.row["engine"])
    yield ""
    yield from _table("figure", known, lambda each: each.row["what"])
    yield ""
    yield from _table("machine", known, lambda each: DEVICES[each.row["device"]])
    yield ""
    sparse = [each for each in known if each.uniform and each.uniform < (each.limit or 0)]
    beyond = [each for each in sparse if float(each.row["tokens_per_s"]) > (each.uniform or 0)]
    yield (
        f"Experts: {len(sparse)} figures have several tokens per pass, all routed to the same"
        f" experts in the limit. With uniform routing, the mean of independent tokens,"
        f" {len(beyond)} above it{':' if beyond else '.'}"
    )
    yield ""
    for each in beyond:
        row = each.row
        where = f"{row['ranks']} {DEVICES[row['device']]}"
        yield (
            f"* {row['model']} in {row['weights']} on {where}, batch {row['batch']}:"
            f" {float(row['tokens_per_s']):,.0f} of {each.uniform:,.0f} tokens/s (limit"
            f" {each.limit:,.0f}): its passes are too short to read all experts"
        )
    yield from [""] * bool(beyond)
    yield "Not compared, by the reason in the row:"
    yield ""
    reasons = Counter(each.reason for each in all_rows if each.limit is None)
    yield from (f"* {count}: {reason}" for reason, count in reasons.most_common())
    yield ""
    yield "## Closest to the limit"
    yield ""
    columns = "machine, model, weights, engine, batch, ranks, figure, tokens/s, limit, ratio"
    yield f"| {columns.replace(', ', ' | ')} |"
    yield "|---|---|---|---|---:|---:|---|---:|---:|---:|"
    for each in sorted(known, key=lambda each: -each.ratio)[:25]:
        row = each.row
        yield (
            f"| {DEVICES[row['device']]} | {row['model']} | {row['weights']} | {row['engine']} |"
            f" {row['batch']} | {row['ranks']} | {row['what']} | {float(row['tokens_per_s']):,.4g}"
            f" | {each.limit:,.4g} | {each.ratio:.2f} |"
        )


def _table(heading: str, known: Iterable[Held], key: Callable[[Held], str]) -> Iterator[str]:
    groups: defaultdict[str, list[float]] = defaultdict(list)
    for each in known:
        groups[key(each)].append(each.ratio)
    yield f"| {heading} | figures | median of limit | highest |"
    yield "|---|---:|---:|---:|"
    for name, ratios in sorted(groups.items(), key=lambda each: -len(each[1])):
        middle = statistics.median(ratios)
        yield f"| {name} | {len(ratios)} | {100 * middle:.0f} % | {100 * max(ratios):.0f} % |"


def main() -> int:
    """Write the table; return 1 if a figure is above its limit."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "llm_published.csv"
    found = list(map(held, rows_of(path)))
    text = "\n".join(lines_of(found, path.name)) + "\n"
    if len(sys.argv) > 1:
        print(text, end="")
    else:
        (HERE / "llm_published.md").write_text(text, encoding="utf-8")
    return int(any(each.limit is not None and each.ratio > 1 for each in found))


if __name__ == "__main__":
    sys.exit(main())
