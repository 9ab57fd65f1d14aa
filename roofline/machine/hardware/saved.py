"""Hardware profiles in TOML files, and as plain data: read and written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from roofline.errors import nearest
from roofline.foundation import reading
from roofline.machine.hardware.profiles import HardwareProfile

_FIX = "run `roofline measure` for a new profile, or compare with `roofline hardware show 10980xe`"


def read_profile(path: Path) -> HardwareProfile:
    """The hardware profile in a TOML file.

    Raises:
        FileFormatError: not readable, not TOML, a newer version, or wrong keys or values.
    """
    data = reading.read_toml(path, fix=_FIX)
    try:
        data = _expanded(data, data.pop("sources", {}), str(path))
    except RecursionError:
        raise reading.refused(str(path), "nested too deeply", _FIX) from None
    return profile_from_data(data, file=str(path))


def _expanded(data: Any, sources: Any, file: str, key: str = "") -> Any:
    """`data` with every provenance that names one of `sources` written out, for people's files.

    ``provenance = "KEY"`` is the table ``[sources.KEY]``; ``{ from = "KEY", note = "…" }`` has more
    keys than that.
    """
    if isinstance(data, list):
        return [_expanded(each, sources, file) for each in cast("list[Any]", data)]
    if key in ("provenance", "capacity_provenance"):
        own = cast("dict[str, Any]", data if isinstance(data, dict) else {"from": data})
        if "from" in own:
            named = own["from"]
            known = cast("dict[str, Any]", sources) if isinstance(sources, dict) else {}
            found = known.get(named) if isinstance(named, str) else None
            if not isinstance(found, dict):
                what = f"no table [sources.{named}] for this {key}{nearest(str(named), known)}"
                raise reading.refused(file, what, _FIX)
            more = {name: own[name] for name in own if name != "from"}
            return {**cast("dict[str, Any]", found), **more}
    if isinstance(data, dict):
        items = cast("dict[str, Any]", data).items()
        return {name: _expanded(each, sources, file, name) for name, each in items}
    return data


def profile_from_data(data: Any, *, file: str) -> HardwareProfile:
    """The hardware profile in plain data, as TOML or JSON holds it."""
    return HardwareProfile.from_data(data, file=file)


def profile_to_toml(profile: HardwareProfile) -> str:
    """The profile as TOML text; `read_profile` gives an equal profile back."""
    import tomli_w

    return tomli_w.dumps(_without_none(profile.to_data()))


def _without_none(data: Any) -> Any:
    # TOML has no null: an absent key is read as its default, which is None wherever it may be.
    match data:
        case dict():
            return {k: _without_none(v) for k, v in data.items() if v is not None}  # pyright: ignore
        case list():
            return [_without_none(item) for item in data]  # pyright: ignore
        case _:
            return data
