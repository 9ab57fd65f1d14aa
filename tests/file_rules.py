"""The rules of docs/reference/file-formats.md over plain data: an oracle for the readers.

Nothing here uses roofline's readers or classes. A rule gives the data as the newest version writes
it, with every default filled in, or raises `UnsoundError`.
"""

from __future__ import annotations

import datetime
import itertools
import json
import math
import re
import statistics
import tomllib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from roofline.core.dtypes import dtype

Rule = Callable[[Any], Any]
REQUIRED = object()


class UnsoundError(Exception):
    """The data says what cannot be true."""


def need(condition: bool, what: str) -> None:
    if not condition:
        raise UnsoundError(what)


def text(data: Any) -> str:
    need(type(data) is str, "text")
    return data


def filled(data: Any) -> str:
    need(text(data).strip() != "", "filled")
    return data


def name(data: Any) -> str:
    need(filled(data).isprintable(), "name")
    return data


def date(data: Any) -> str:
    """Empty, or a year, month or day of the calendar."""
    if text(data) != "":
        parts = re.fullmatch(r"([0-9]{4})(?:-([0-9]{2}))?(?:-([0-9]{2}))?", data)
        need(parts is not None, "date")
        assert parts is not None
        try:
            datetime.date(*(int(each or 1) for each in parts.groups()))
        except ValueError:
            raise UnsoundError("calendar") from None
    return data


def yes_or_no(data: Any) -> bool:
    need(type(data) is bool, "yes or no")
    return data


def word(*words: str) -> Rule:
    what = f"one of {words}"

    def rule(data: Any) -> str:
        need(type(data) is str and data in words, what)
        return data

    return rule


def whole(least: int) -> Rule:
    what = f"whole from {least}"

    def rule(data: Any) -> int:
        need(type(data) is int and least <= data < 2**256, what)
        return data

    return rule


def number(data: Any) -> float:
    """A number from 0."""
    need(type(data) in (int, float) and (data == 0 or 2**-256 <= data < 2**256), "number")
    return float(data)


def signed(data: Any) -> float:
    """A number, which may be below 0."""
    need(type(data) in (int, float) and (data == 0 or 2**-256 <= abs(data) < 2**256), "number")
    return float(data)


def positive(data: Any) -> float:
    need(number(data) > 0, "positive")
    return float(data)


def kind_of_number(data: Any) -> str:
    try:
        return dtype(text(data)).name
    except UnsoundError:
        raise
    except Exception:
        raise UnsoundError("dtype") from None


def maybe(rule: Rule) -> Rule:
    return lambda data: None if data is None else rule(data)


def several(rule: Rule) -> Rule:
    def every(data: Any) -> list[Any]:
        need(type(data) is list, "list")
        return [rule(each) for each in data]

    return every


def mapping(rule: Rule, key: Rule = text) -> Rule:
    def every(data: Any) -> dict[str, Any]:
        need(type(data) is dict, "table")
        return {key(each): rule(value) for each, value in data.items()}

    return every


def anything(data: Any, depth: int = 50) -> Any:
    need(depth > 0, "depth")
    if type(data) is dict:
        return {key: anything(value, depth - 1) for key, value in data.items()}
    if type(data) is list:
        return [anything(value, depth - 1) for value in data]
    need(data is None or type(data) in (str, bool, int, float), "plain")
    if isinstance(data, (int, float)):
        need(abs(data) < (math.inf if type(data) is float else 2**256), "finite")
    return data


def table(keys: Mapping[str, tuple[Rule, Any]], *checks: Callable[[dict[str, Any]], None]) -> Rule:
    """A table with these keys; each has a rule and a default."""

    def every(data: Any) -> dict[str, Any]:
        need(type(data) is dict, "table")
        need(data.keys() <= keys.keys(), "known keys")
        found: dict[str, Any] = {}
        for key, (rule, default) in keys.items():
            if key in data:
                found[key] = rule(data[key])
            else:
                need(default is not REQUIRED, key)
                found[key] = default
        for check in checks:
            check(found)
        return found

    return every


def version(data: Any) -> int:
    need(type(data) is int and data == 1, "version")
    return 1


def one_of_each(what: Iterable[Any]) -> None:
    found = list(what)
    need(len(set(found)) == len(found), "one of each")


PROVENANCE = table(
    {
        "source": (word("measured", "datasheet", "derived"), REQUIRED),
        "reference": (filled, REQUIRED),
        "date": (date, REQUIRED),
        "tool_version": (text, ""),
        "note": (text, ""),
    }
)
THEORETICAL = table({"per_s": (positive, REQUIRED), "provenance": (PROVENANCE, REQUIRED)})
COMPUTE = table(
    {
        "kind": (word("hardware", "library"), REQUIRED),
        "kernel": (name, REQUIRED),
        "dtype": (kind_of_number, REQUIRED),
        "unit": (name, REQUIRED),
        "threads": (whole(1), REQUIRED),
        "peak_flop_per_s": (positive, REQUIRED),
        "sustained_flop_per_s": (positive, REQUIRED),
        "spread": (maybe(number), None),
        "clock_hz": (maybe(positive), None),
        "theoretical": (maybe(THEORETICAL), None),
        "doubt": (text, ""),
        "provenance": (PROVENANCE, REQUIRED),
    },
    lambda it: need(it["sustained_flop_per_s"] <= it["peak_flop_per_s"], "sustained"),
)
MEMORY_KERNEL = word(
    *("read", "write", "copy", "triad", "update", "add"),
    *("write-nt", "copy-nt", "triad-nt", "unspecified"),
)
BANDWIDTH = table(
    {
        "kind": (word("hardware", "library"), "hardware"),
        "kernel": (MEMORY_KERNEL, REQUIRED),
        "threads": (whole(1), REQUIRED),
        "peak_bytes_per_s": (positive, REQUIRED),
        "sustained_bytes_per_s": (positive, REQUIRED),
        "spread": (maybe(number), None),
        "clock_hz": (maybe(positive), None),
        "write_allocate": (word("none", "not counted", "counted", "unspecified"), "unspecified"),
        "theoretical": (maybe(THEORETICAL), None),
        "doubt": (text, ""),
        "provenance": (PROVENANCE, REQUIRED),
    },
    lambda it: need(it["sustained_bytes_per_s"] <= it["peak_bytes_per_s"], "sustained"),
)
DURATION = table(
    {
        "fast_s": (number, REQUIRED),
        "median_s": (number, REQUIRED),
        "spread": (maybe(number), None),
        "provenance": (PROVENANCE, REQUIRED),
    },
    lambda it: need(it["fast_s"] <= it["median_s"], "median"),
)
LEVEL = table(
    {
        "name": (name, REQUIRED),
        "capacity_bytes": (maybe(whole(1)), None),
        "scope": (word("private", "shared"), REQUIRED),
        "capacity_provenance": (maybe(PROVENANCE), None),
        "latency": (maybe(DURATION), None),
        "bandwidth": (several(BANDWIDTH), REQUIRED),
    },
    lambda it: need(any(each["kind"] == "hardware" for each in it["bandwidth"]), "bandwidth"),
    lambda it: one_of_each(
        (each["kind"], each["kernel"], each["threads"]) for each in it["bandwidth"]
    ),
)
CLOCK = table(
    {
        "peak_hz": (positive, REQUIRED),
        "median_hz": (positive, REQUIRED),
        "provenance": (PROVENANCE, REQUIRED),
    },
    lambda it: need(it["median_hz"] <= it["peak_hz"], "median"),
)
OVERHEAD = table(
    {"name": (name, REQUIRED), "threads": (whole(1), REQUIRED), "time": (DURATION, REQUIRED)}
)
LINK = table(
    {
        "source": (name, REQUIRED),
        "target": (name, REQUIRED),
        "kernel": (name, REQUIRED),
        "threads": (whole(1), REQUIRED),
        "peak_bytes_per_s": (positive, REQUIRED),
        "sustained_bytes_per_s": (positive, REQUIRED),
        "spread": (maybe(number), None),
        "latency": (maybe(DURATION), None),
        "provenance": (PROVENANCE, REQUIRED),
    },
    lambda it: need(it["sustained_bytes_per_s"] <= it["peak_bytes_per_s"], "sustained"),
)


def rising(values: str) -> Callable[[dict[str, Any]], None]:
    """Sizes that rise, and as many values."""

    def check(it: dict[str, Any]) -> None:
        sizes = it["size_bytes"]
        need(0 < len(sizes) == len(it[values]), "a value a size")
        need(all(one < other for one, other in itertools.pairwise(sizes)), "rising")

    return check


BANDWIDTH_CURVE = table(
    {
        "kernel": (MEMORY_KERNEL, REQUIRED),
        "threads": (whole(1), REQUIRED),
        "size_bytes": (several(whole(1)), REQUIRED),
        "bytes_per_s": (several(positive), REQUIRED),
        "provenance": (PROVENANCE, REQUIRED),
    },
    rising("bytes_per_s"),
)
LATENCY_CURVE = table(
    {
        "size_bytes": (several(whole(1)), REQUIRED),
        "latency_s": (several(positive), REQUIRED),
        "provenance": (PROVENANCE, REQUIRED),
    },
    rising("latency_s"),
)
HOST = table(
    {
        "cpu_model": (text, REQUIRED),
        "architecture": (text, REQUIRED),
        "operating_system": (text, REQUIRED),
        "instruction_sets": (several(text), REQUIRED),
        "available_cpus": (whole(1), REQUIRED),
        "versions": (mapping(text), {}),
    }
)


def threads_agree(it: dict[str, Any]) -> None:
    need(it["device"] == "cpu" or it["threads"] == 1, "computes as a whole")
    rates = [rate for level in it["memory"] for rate in level["bandwidth"]]
    others = (*it["overheads"], *it["links"], *it["bandwidth_curves"])
    for each in (*it["compute"], *rates, *others):
        need(each["threads"] <= it["threads"], "threads")


def nearest_first(it: dict[str, Any]) -> None:
    sizes = [level["capacity_bytes"] or math.inf for level in it["memory"]]
    need(sizes == sorted(sizes), "order of levels")


def same_threads(*keys: str) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
    return lambda it: tuple(it[key] for key in (*keys, "threads"))


hardware = table(
    {
        "name": (name, REQUIRED),
        "device": (word("cpu", "cuda", "mps", "vulkan"), REQUIRED),
        "threads": (whole(1), REQUIRED),
        "description": (text, ""),
        "aliases": (several(name), []),
        "multiprocessors": (maybe(whole(1)), None),
        "power_limit_w": (maybe(positive), None),
        "host": (maybe(HOST), None),
        "effort": (word("quick", "default", "thorough", "unspecified"), "unspecified"),
        "clock": (maybe(CLOCK), None),
        "compute": (several(COMPUTE), []),
        "memory": (several(LEVEL), []),
        "overheads": (several(OVERHEAD), []),
        "links": (several(LINK), []),
        "bandwidth_curves": (several(BANDWIDTH_CURVE), []),
        "latency_curve": (maybe(LATENCY_CURVE), None),
        "conditions": (several(text), []),
    },
    threads_agree,
    nearest_first,
    lambda it: need(it["device"] != "cpu" or it["multiprocessors"] is None, "a CPU has none"),
    lambda it: need(it["device"] != "cpu" or it["power_limit_w"] is None, "a CPU has none"),
    lambda it: one_of_each(it["aliases"]),
    lambda it: one_of_each(level["name"] for level in it["memory"]),
    lambda it: one_of_each(
        tuple(each[key] for key in ("kind", "kernel", "dtype", "unit", "threads"))
        for each in it["compute"]
    ),
    lambda it: one_of_each(map(same_threads("name"), it["overheads"])),
    lambda it: one_of_each(map(same_threads("source", "target", "kernel"), it["links"])),
    lambda it: one_of_each(map(same_threads("kernel"), it["bandwidth_curves"])),
)


def named(key: str, data: Any, sources: Any) -> Any:
    if type(data) is list:
        return [named("", each, sources) for each in data]
    is_provenance = key.endswith("provenance")
    if is_provenance and type(data) is not dict:
        data = {"from": data}
    if type(data) is dict and is_provenance and "from" in data:
        need(type(data["from"]) is str and type(sources) is dict, "a source")
        need(type(sources.get(data["from"])) is dict, "a source that there is")
        found = cast("dict[str, Any]", sources[data["from"]])
        return found | {of: data[of] for of in set(data) - {"from"}}
    if type(data) is dict:
        return {of: named(of, each, sources) for of, each in data.items()}
    return data


HEAD = table(
    {"schema_version": (version, REQUIRED), "kind": (word("hardware"), "hardware")},
)


def profile(data: Any) -> dict[str, Any]:
    """A profile in a file of its own, which may name sources that it gives once."""
    if type(data) is dict:
        sources = data.get("sources", {})
        data = {key: named(key, data[key], sources) for key in data if key != "sources"}
    need(type(data) is dict, "table")
    head = {key: data[key] for key in data if key in ("schema_version", "kind")}
    rest = {key: data[key] for key in data if key not in head}
    found = {**HEAD(head), **hardware(rest)}
    need(bool(found["compute"] or found["memory"]), "ceilings")
    return found


def distinct(it: dict[str, Any]) -> None:
    touched = it["distinct_elements"] if it["min_elements"] is None else it["min_elements"]
    need(touched <= it["distinct_elements"] <= math.prod(it["shape"]), "elements")


SHAPE = several(whole(0))
TENSOR = table(
    {
        "shape": (SHAPE, REQUIRED),
        "dtype": (kind_of_number, REQUIRED),
        "distinct_elements": (whole(0), REQUIRED),
        "storage": (whole(0), REQUIRED),
        "offset_bytes": (whole(0), 0),
        "min_elements": (maybe(whole(0)), None),
        "layout": (word("contiguous", "channels-last", "strided"), "contiguous"),
        "role": (
            word("parameter", "buffer", "input", "activation", "gradient", "optimizer_state"),
            REQUIRED,
        ),
    },
    distinct,
)
INPUT = table({"name": (text, ""), "shape": (SHAPE, REQUIRED), "dtype": (kind_of_number, REQUIRED)})
COUNTS = ("flop", "macs", "min_flop")
PARTS_OF_PEAK = (
    *("parameter_bytes", "buffer_bytes", "input_bytes"),
    *("optimizer_bytes", "activation_bytes", "gradient_bytes"),
)
BYTES = ("parameter_bytes", "input_bytes", "output_bytes", "gradient_bytes", "optimizer_bytes")


OF_ROLE = {
    "parameter": "parameter_bytes",
    "buffer": "parameter_bytes",
    "gradient": "gradient_bytes",
    "optimizer_state": "optimizer_bytes",
}


def parts_add_up(it: dict[str, Any]) -> None:
    need(it["traffic_bytes"] == sum(it[key] for key in BYTES), "traffic")
    byte: dict[str, int] = dict.fromkeys(BYTES, 0)
    if it["state"] != "free":
        for side, otherwise in (("inputs", "input_bytes"), ("outputs", "output_bytes")):
            for tensor in it[side]:
                bits = tensor["distinct_elements"] * dtype(tensor["dtype"]).bits
                byte[OF_ROLE.get(tensor["role"], otherwise)] += bits // 8 + (bits % 8 > 0)
    need(all(it[key] == byte[key] for key in BYTES), "bytes of tensors")


def interval(it: dict[str, Any]) -> None:
    low, middle, high = (it[f"predicted{part}_s"] for part in ("_low", "", "_high"))
    if low is not None or high is not None:
        need(None not in (low, middle, high) and low <= middle <= high, "interval")


def counts_agree(it: dict[str, Any]) -> None:
    need((it["state"] == "unknown") == (it["flop"] is None), "state")
    need(len({it[key] is None for key in COUNTS}) == 1, "known together")
    if it["flop"] is not None:
        need(it["flop"] >= max(2 * it["macs"], it["min_flop"]), "flop")
    most = min(it["macs"] or 0, (it["min_flop"] or 0) // 2)
    need((it["min_macs"] or 0) <= most, "least products")
    need(it["measured_iqr_s"] is None or it["measured_s"] is not None, "measured")
    if it["measured_times_s"]:
        need(close(it["measured_s"], statistics.median(it["measured_times_s"])), "median")


def fusion_agrees(it: dict[str, Any]) -> None:
    need((it["chain"] is None) == (it["fused_bytes"] is None), "fused together")
    need(it["fused_bytes"] is None or it["fused_bytes"] <= it["traffic_bytes"], "fused bytes")
    need(it["chain"] is None or it["chain"] <= it["index"], "start of the chain")


def close(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is b
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))


def minimums_agree(totals: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    eager_s, fused_s, model_s = (
        totals[f"{each}_min_time_s"] for each in ("eager", "fused", "model")
    )
    need(close(eager_s, totals["eager_min_time_s"]), "eager")
    starts = [row for row in rows if row["state"] != "free" and row["chain"] == row["index"]]
    known = [row for row in rows if row["fused_min_time_s"] is not None]
    if None in (eager_s, fused_s, model_s):
        need(fused_s is None and model_s is None and not known, "known together")
        return
    need(known == starts, "kernels")
    need(model_s <= fused_s and (fused_s <= eager_s or close(fused_s, eager_s)), "order")
    kernels_s = min(eager_s, sum(row["fused_min_time_s"] for row in starts))
    need(close(fused_s, max(model_s, kernels_s)), "sum of kernels")


def place_agrees(it: dict[str, Any]) -> None:
    flop, eager_min_time_s = it["flop"], it["eager_min_time_s"]
    need(it["eager_min_time_s"] == eager_min_time_s, "eager")
    if it["state"] == "free":
        # What is unknown may be something.
        need(all(it[key] == 0 for key in (*COUNTS, *BYTES, "internal_bytes")), "free of work")
        need(not it["level_bytes"] and it["level"] == it["ceiling"] == "", "free of place")
        need(eager_min_time_s == 0 and it["bound"] == "free", "free of time")
    elif it["state"] == "unknown" or eager_min_time_s is None:
        need(it["bound"] == "unknown", "unknown bound")
    else:
        need(it["bound"] in ("compute", "memory"), "known bound")
    crossing = it["level_bytes"].get(it["level"], 0)
    intensity = flop / crossing if flop is not None and crossing else None
    need(close(it["intensity_flop_per_byte"], intensity), "intensity")
    rate = flop / eager_min_time_s if flop is not None and eager_min_time_s else None
    attainable = it["attainable_flop_per_s"]
    need((attainable is None) == (rate is None), "rate")
    if attainable is not None and rate is not None:
        need(attainable <= rate * (1 + 1e-9), "attainable")


ROW = table(
    {
        "index": (whole(0), REQUIRED),
        "op": (name, REQUIRED),
        "type": (text, REQUIRED),
        "module_path": (text, REQUIRED),
        "phase": (word("forward", "backward", "optimizer"), REQUIRED),
        "inputs": (several(TENSOR), REQUIRED),
        "outputs": (several(TENSOR), REQUIRED),
        "attributes": (mapping(lambda data: anything(data)), {}),
        "state": (word("counted", "free", "unknown"), REQUIRED),
        "formula": (text, ""),
        **{key: (maybe(whole(0)), REQUIRED) for key in COUNTS},
        "min_macs": (maybe(whole(0)), None),
        **{key: (whole(0), REQUIRED) for key in (*BYTES, "traffic_bytes")},
        "internal_bytes": (maybe(whole(0)), 0),
        "chain": (maybe(whole(0)), None),
        "fused_bytes": (maybe(whole(0)), None),
        "level_bytes": (mapping(whole(0)), {}),
        "intensity_flop_per_byte": (maybe(number), REQUIRED),
        "level": (text, REQUIRED),
        "ceiling": (text, REQUIRED),
        "attainable_flop_per_s": (maybe(number), REQUIRED),
        "bound": (word("compute", "memory", "free", "unknown"), REQUIRED),
        "eager_min_time_s": (maybe(number), REQUIRED),
        "fused_min_time_s": (maybe(number), None),
        "predicted_s": (maybe(number), None),
        "predicted_low_s": (maybe(number), None),
        "predicted_high_s": (maybe(number), None),
        "prediction_source": (maybe(text), None),
        "measured_s": (maybe(number), None),
        "measured_iqr_s": (maybe(number), None),
        "measured_times_s": (several(positive), []),
        "measured_page_faults": (maybe(whole(0)), None),
    },
    parts_add_up,
    interval,
    counts_agree,
    fusion_agrees,
    place_agrees,
)


def fraction(data: Any) -> float:
    need(number(data) <= 1, "fraction")
    return float(data)


COVERAGE = table(
    {
        "calls": (fraction, REQUIRED),
        "traffic": (fraction, REQUIRED),
        "time": (maybe(fraction), None),
    }
)
TOTALS = table(
    {
        **{key: (whole(0), REQUIRED) for key in (*COUNTS, *BYTES, "traffic_bytes")},
        "internal_bytes": (whole(0), 0),
        "fused_bytes": (maybe(whole(0)), None),
        "unknown_operators": (whole(0), REQUIRED),
        "parameters": (whole(0), REQUIRED),
        "parameter_size_bytes": (whole(0), REQUIRED),
        "buffer_size_bytes": (whole(0), REQUIRED),
        "optimizer_state_bytes": (whole(0), 0),
        "peak_memory_bytes": (whole(0), REQUIRED),
        "all_tensors_bytes": (whole(0), REQUIRED),
        "eager_min_time_s": (maybe(number), REQUIRED),
        "fused_min_time_s": (maybe(number), None),
        "model_min_time_s": (maybe(number), None),
        "fused_limiter": (text, ""),
        "model_limiter": (text, ""),
        "predicted_s": (maybe(number), None),
        "predicted_low_s": (maybe(number), None),
        "predicted_high_s": (maybe(number), None),
        "measured_s": (maybe(number), None),
    },
    interval,
)


def totals_are_sums(it: dict[str, Any]) -> None:
    totals, rows = it["totals"], it["operators"]
    for key in (*COUNTS, *BYTES, "internal_bytes", "traffic_bytes"):
        need(totals[key] == sum(row[key] or 0 for row in rows), f"total {key}")
    fused = [row["fused_bytes"] for row in rows]
    expected = sum(fused) if fused and None not in fused else None
    need(totals["fused_bytes"] == expected, "total fused bytes")
    need(totals["unknown_operators"] == len(names(rows, "unknown")), "unknown operators")
    need(
        close(totals["eager_min_time_s"], whole_sum(row["eager_min_time_s"] for row in rows)),
        "total bound",
    )
    minimums_agree(totals, rows)
    working = [row for row in rows if row["state"] != "free"]
    for key in ("predicted_s", "measured_s"):
        expected = whole_sum(row[key] for row in working) if working else None
        need(close(totals[key], expected), f"total {key}")
    kept = totals["parameter_size_bytes"] + totals["buffer_size_bytes"]
    need(kept <= totals["peak_memory_bytes"] <= totals["all_tensors_bytes"], "memory")


def peak_agrees(it: dict[str, Any]) -> None:
    peak, totals = it["peak"], it["totals"]
    if peak is None:
        return
    need(sum(peak[part] for part in PARTS_OF_PEAK) == totals["peak_memory_bytes"], "peak")
    need(peak["parameter_bytes"] == totals["parameter_size_bytes"], "parameters at the peak")
    need(peak["buffer_bytes"] == totals["buffer_size_bytes"], "buffers at the peak")
    need(peak["optimizer_bytes"] == totals["optimizer_state_bytes"], "optimizer at the peak")
    need(peak["operator"] is None or peak["operator"] < len(it["operators"]), "when")


def whole_sum(values: Iterable[float | None]) -> float | None:
    """The sum, or None if one is missing."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def names(rows: list[dict[str, Any]], state: str) -> list[str]:
    return [row["op"] for row in rows if row["state"] == state]


def coverage_follows(it: dict[str, Any]) -> None:
    rows = [row for row in it["operators"] if row["state"] != "free"]
    counted = [row for row in rows if row["state"] == "counted"]

    def share(key: Callable[[dict[str, Any]], float]) -> float:
        every = sum(map(key, rows))
        return sum(map(key, counted)) / every if every else 1.0

    need(close(it["coverage"]["calls"], share(lambda row: 1)), "coverage of calls")
    need(
        close(it["coverage"]["traffic"], share(lambda row: row["traffic_bytes"])),
        "coverage of bytes",
    )
    timed = bool(rows) and all(row["measured_s"] is not None for row in rows)
    expected = share(lambda row: row["measured_s"]) if timed else None
    need(close(it["coverage"]["time"], expected), "coverage of time")


def rows_fit_the_hardware(it: dict[str, Any]) -> None:
    hardware = it["hardware"]
    need(it["threads"] <= hardware["threads"], "threads")
    ceilings = {
        level["name"]: {
            shown(f"{level['name']} {rate['kernel']}")
            for rate in level["bandwidth"]
            if rate["kind"] == "hardware"
        }
        for level in hardware["memory"]
    }
    compute = {
        shown(f"{each['dtype']} {each['unit']} {each['kernel']}")
        for each in hardware["compute"]
        if each["kind"] == "hardware"
    }
    for place, row in enumerate(it["operators"]):
        need(row["index"] == place, "index")
        if row["state"] == "free":
            continue
        need(row["level_bytes"].keys() == ceilings.keys(), "levels")
        byte = [row["traffic_bytes"], *(row["level_bytes"][level] for level in ceilings)]
        need(all(near >= far for near, far in itertools.pairwise(byte)), "falling bytes")
        need(row["level"] in ceilings if ceilings else row["level"] == "", "level")
        if row["bound"] == "compute":
            need(row["ceiling"] in compute, "compute ceiling")
        else:
            need(row["ceiling"] in ceilings.get(row["level"], {""}), "memory ceiling")


def shown(label: str) -> str:
    return label.removesuffix(" unspecified")


def trained(it: dict[str, Any]) -> None:
    need(it["train"] or not (it["optimizer"] or it["loss"]), "of training")


RUN = table(
    {
        "device": (word("cpu", "cuda", "meta"), "cpu"),
        "train": (yes_or_no, False),
        "optimizer": (text, ""),
        "loss": (text, ""),
        "dtype": (text, ""),
        "autocast": (word("", "bfloat16", "float16"), ""),
        "channels_last": (yes_or_no, False),
    },
    trained,
)
PEAK = table(
    {
        "operator": (maybe(whole(0)), REQUIRED),
        **{part: (whole(0), REQUIRED) for part in PARTS_OF_PEAK},
    }
)
MODULE = table(
    {
        "path": (text, REQUIRED),
        "kind": (text, REQUIRED),
        "calls": (whole(0), REQUIRED),
        "parameters": (whole(0), REQUIRED),
    }
)


def time_in_interval(it: dict[str, Any]) -> None:
    need(it["low_s"] <= it["predicted_s"] <= it["high_s"], "interval")


def sample_has_times(it: dict[str, Any]) -> None:
    need(bool(it["times_s"]), "times")


PREDICTION = table(
    {
        **dict.fromkeys(("predicted_s", "low_s", "high_s", "operators_s"), (number, REQUIRED)),
        "overhead_s": (maybe(number), REQUIRED),
        "calibration": (text, REQUIRED),
        "page_faults": (maybe(whole(0)), None),
        "allocator": (text, ""),
        "tunables": (text, ""),
        "held_out_error": (maybe(number), None),
    },
    time_in_interval,
)
SAMPLE = table({"times_s": (several(positive), REQUIRED)}, sample_has_times)
MEASUREMENT = table(
    {
        "end_to_end": (SAMPLE, REQUIRED),
        "operators_s": (number, REQUIRED),
        "page_faults": (whole(0), REQUIRED),
        "rounds": (whole(0), REQUIRED),
        "discarded": (whole(0), REQUIRED),
        "are_disturbed": (yes_or_no, False),
        "compiled": (maybe(SAMPLE), None),
        "date": (text, ""),
        "conditions": (several(text), []),
    }
)


EARLIER = table(
    {
        "measured_s": (positive, REQUIRED),
        "iqr_s": (number, REQUIRED),
        "date": (text, REQUIRED),
        "origin": (word("calibrate", "profile", "validate"), REQUIRED),
        "model": (text, REQUIRED),
        "page_faults": (maybe(number), None),
    }
)


def an_interval(low: str, high: str) -> Callable[[dict[str, Any]], None]:
    """Both of its ends, in their order, or neither."""

    def check(it: dict[str, Any]) -> None:
        need((it[low] is None) == (it[high] is None), "both ends")
        need(it[low] is None or it[low] <= it[high], "order of ends")

    return check


def measured_as_a_whole(it: dict[str, Any]) -> None:
    names = ("measured_before_s", "measured_after_s", "measured_low_s", "verdict")
    need(len({it[name] is None for name in names}) == 1, "all of a measurement")


FINDING = table(
    {
        "rule": (text, REQUIRED),
        "operators": (several(whole(0)), []),
        "evidence": (text, REQUIRED),
        "change": (text, REQUIRED),
        "basis": (
            word("prediction", "estimate", "at most", "measured at most", "bound", "library"),
            "prediction",
        ),
        "predicted_before_s": (maybe(number), None),
        "predicted_after_s": (maybe(number), None),
        "saving_low_s": (maybe(signed), None),
        "saving_high_s": (maybe(signed), None),
        "measured_before_s": (maybe(number), None),
        "measured_after_s": (maybe(number), None),
        "measured_low_s": (maybe(signed), None),
        "measured_high_s": (maybe(signed), None),
        "verdict": (maybe(word("confirmed", "not confirmed")), None),
        "note": (text, ""),
    },
    an_interval("saving_low_s", "saving_high_s"),
    an_interval("measured_low_s", "measured_high_s"),
    measured_as_a_whole,
)


def findings_are_at_operators(it: dict[str, Any]) -> None:
    for each in it["findings"]:
        indexes = each["operators"]
        need(indexes == sorted(set(indexes)), "rising")
        need(all(index < len(it["operators"]) for index in indexes), "operators that there are")


def phases_follow_each_other(it: dict[str, Any]) -> None:
    order = ("forward", "backward", "optimizer")
    phases = [order.index(row["phase"]) for row in it["operators"]]
    need(phases == sorted(phases), "phases in their order")
    need(not any(phases) or it["run"]["train"], "training has more than one phase")


def earlier_has_no_newer(it: dict[str, Any]) -> None:
    if it["earlier"] is None:
        return
    need(it["measurement"] is None and it["cache"] == "steady", "of warm caches, and the last")
    run = it["run"]
    need(run["device"] == "cpu" and not run["train"] and not run["autocast"], "eager inference")


def prediction_is_of_operators(it: dict[str, Any]) -> None:
    if it["prediction"] is not None:
        said = it["prediction"]["operators_s"]
        need(close(it["totals"]["predicted_s"], said), "prediction")


analysis = table(
    {
        "schema_version": (version, REQUIRED),
        "kind": (word("analysis"), "analysis"),
        "model": (text, REQUIRED),
        "inputs": (several(INPUT), REQUIRED),
        "run": (RUN, RUN({})),
        "threads": (whole(1), REQUIRED),
        "cache": (word("steady", "cold"), "steady"),
        "hardware": (hardware, REQUIRED),
        "coverage": (COVERAGE, REQUIRED),
        "totals": (TOTALS, REQUIRED),
        "peak": (maybe(PEAK), None),
        "modules": (several(MODULE), []),
        "operators": (several(ROW), REQUIRED),
        "prediction": (maybe(PREDICTION), None),
        "not_predicted": (text, ""),
        "compiled_prediction": (maybe(PREDICTION), None),
        "measurement": (maybe(MEASUREMENT), None),
        "earlier": (maybe(EARLIER), None),
        "findings": (several(FINDING), []),
        "warnings": (several(text), []),
    },
    totals_are_sums,
    coverage_follows,
    rows_fit_the_hardware,
    peak_agrees,
    prediction_is_of_operators,
    earlier_has_no_newer,
    findings_are_at_operators,
    phases_follow_each_other,
    lambda it: one_of_each(module["path"] for module in it["modules"]),
)


def parse_json(content: bytes) -> Any:
    """What a JSON file says; UnsoundError if that is nothing, or two things."""

    def table_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        need(len(found) == len(pairs), "one of each")
        return found

    try:
        return json.loads(content.decode("utf-8"), object_pairs_hook=table_of)
    except (ValueError, RecursionError):
        raise UnsoundError("JSON") from None


def parse_toml(content: bytes) -> Any:
    """What a TOML file says; UnsoundError if that is nothing."""
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        raise UnsoundError("TOML") from None
