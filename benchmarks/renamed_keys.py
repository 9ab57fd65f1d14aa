"""Compare a JSON file saved before the final names of keys with one saved after: values are equal.

    python benchmarks/renamed_keys.py OLD.json NEW.json [OLD.json NEW.json …]

Every key of the old file must be in the new one under its final name, with the same value; the new
one has no other keys. Exit code 1 and one line for each difference.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = {
    "byte": ("traffic", "size_bytes", "total_bytes"),
    "parameter_bytes": ("parameter_size_bytes",),
    "buffer_bytes": ("buffer_size_bytes",),
    "optimizer_bytes": ("optimizer_state_bytes",),
    "multiply_add": ("macs",),
    "least_multiply_add": ("min_macs",),
    "least_flop": ("min_flop",),
    "least_elements": ("min_elements",),
    "least_sending_s": ("min_transfer_s",),
    "sending_s": ("transfer_s",),
    "efficiency_most": ("max_efficiency",),
    "most_sequences": ("max_sequences",),
    "most_context": ("max_context",),
    # Of language models, it was the model minimum of a stage, and of a part its own.
    "bound_s": ("eager_min_time_s", "model_min_time_s", "min_time_s"),
    "hop_s": ("core_to_core_latency_s",),
    "fault_s": ("page_fault_s",),
    "faults": ("page_faults",),
    "usual_pace_mape": ("usual_clock_mape",),
}
"""Final names by old ones, the first that the new file has."""

PARTS = {
    "parameter_bytes_": "parameter_size_bytes_",
    "bound_s_": "eager_min_time_s_",
    "bound_before_s": "eager_min_time_before_s",
    "bound_after_s": "eager_min_time_after_s",
    "separate_bound_s": "separate_eager_min_time_s",
    "multiply_add": "macs",
    "predicted_faults": "predicted_page_faults",
    "measured_faults": "measured_page_faults",
    "byte_per_s": "bytes_per_s",
    "_byte_": "_bytes_",
}
"""Parts of longer names."""


def final_name(key: str, known: dict[str, Any]) -> str:
    """Return the final name of `key`, one of `known` where there are several."""
    if key in NAMES:
        return next((each for each in NAMES[key] if each in known), NAMES[key][0])
    if key in known:
        return key
    for old, new in PARTS.items():
        key = key.replace(old, new)
    return f"{key}s" if key.endswith("_byte") else key


def differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Return a line for each value that is not where it should be."""
    if isinstance(old, dict) and isinstance(new, dict):
        found = {final_name(key, new): key for key in old}
        for name in new.keys() - found.keys():
            yield f"{path}.{name}: only in the new file"
        for key, value in old.items():
            name = final_name(key, new)
            if name not in new:
                yield f"{path}.{key}: {name} is not in the new file"
            else:
                yield from differences(value, new[name], f"{path}.{name}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, f"{path}[{i}]")
    elif old != new:
        yield f"{path}: {old!r:.80} became {new!r:.80}"


def main(files: list[str]) -> int:
    """Print the differences of each pair of files."""
    count = 0
    for old, new in zip(files[::2], files[1::2], strict=True):
        read = [json.loads(Path(each).read_text(encoding="utf-8")) for each in (old, new)]
        found = list(differences(*read))
        count += len(found)
        print(f"{old}: {len(found)} differences", *found[:20], sep="\n  ")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
