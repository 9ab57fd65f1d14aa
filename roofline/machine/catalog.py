"""Hardware profiles by name: the user's own and the bundled ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from roofline.core.files import check_writable, write_together
from roofline.errors import FileFormatError, HardwareError, did_you_mean
from roofline.machine.hardware import HardwareProfile, Host, profile_to_toml, read_profile
from roofline.machine.measuring.estimation import Series, samples_file, samples_text

HOST = "host"
"""Name of the user's own machine."""


Origin = Literal["this machine", "user", "bundled"]


_SEPARATORS = re.compile(r"[\s_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A named profile; None with an ``error`` if its file is damaged."""

    name: str
    path: Path
    origin: Origin
    profile: HardwareProfile | None
    error: str = ""

    @property
    def aliases(self) -> tuple[str, ...]:
        return self.profile.aliases if self.profile else ()


def user_folder() -> Path:
    """Return the folder of the user's hardware profiles, which may not exist."""
    import platformdirs

    return Path(platformdirs.user_data_dir("roofline", appauthor=False)) / "hardware"


def bundled_folder() -> Path:
    """Return the folder of bundled profiles: in the package, or in its checkout."""
    package = Path(__file__).parent.parent
    shipped = package / "hwprofiles"
    return shipped if shipped.is_dir() else package.parent / "hwprofiles"


def host_file() -> Path:
    """Return the file of this machine's profile, which may not exist."""
    return user_folder() / f"{HOST}.toml"


def entries() -> Sequence[Entry]:
    """Return all named profiles, this machine's first; damaged ones carry an error."""
    found: dict[str, Entry] = {}
    for folder in (user_folder(), bundled_folder()):
        for path in sorted(folder.glob("*.toml"), key=lambda each: (each.stem != HOST, each.stem)):
            if path.stem in found:
                continue
            profile, error = None, ""
            try:
                profile = read_profile(path)
            except FileFormatError as problem:
                error = str(problem)
            origin: Origin = "bundled" if folder == bundled_folder() else "user"
            if path == host_file():
                origin = "this machine"
            found[path.stem] = Entry(
                name=path.stem, path=path, origin=origin, profile=profile, error=error
            )
    return tuple(found.values())


def find_hardware(name_or_file: str) -> Path:
    """Return the file of a profile, by path, name or alias.

    Case, spaces, dashes, underscores and the order of words are ignored, and the vendor may be
    left out. An exact name takes precedence over an alias.
    """
    path = Path(name_or_file)
    if path.suffix == ".toml" or path.name != name_or_file:
        return path
    for folder in (user_folder(), bundled_folder()):
        candidate = folder / f"{name_or_file}.toml"
        if candidate.is_file():
            return candidate
    if host_profile_name() == name_or_file:
        return host_file()
    if name_or_file == HOST:
        raise HardwareError("no profile of this machine; run `roofline measure`")
    known = entries()

    def is_same(other: str) -> bool:
        one, another = (_SEPARATORS.sub("", each.lower()) for each in (name_or_file, other))
        without_vendor = [each for each in _words(other) if each not in _VENDORS]
        return one == another or _words(name_or_file) in (_words(other), without_vendor)

    words = set(_words(name_or_file))
    by_name = [each for each in known if is_same(each.name)]
    by_alias = [each for each in known if any(map(is_same, each.aliases))]
    # All words occur in the profile's name or in one alias.
    family = [
        each
        for each in known
        if any(words <= set(_words(one)) for one in (each.name, *each.aliases))
    ]
    named = by_name or by_alias
    if len(named) == 1:
        return named[0].path
    ambiguous = named or family
    if len(ambiguous) > 1:
        candidates = ", ".join(each.name for each in ambiguous)
        raise HardwareError(f"ambiguous hardware '{name_or_file}': give one of {candidates}")
    hint = did_you_mean(name_or_file, [e.name for e in known if _is_near(name_or_file, e.name)])
    if family and _is_whole(name_or_file, family[0]):
        hint = f"; did you mean '{family[0].name}'?"
    if not hint and (alike := get_close_matches(name_or_file, [e.name for e in known], cutoff=0.7)):
        # Another number is another product.
        hint = f"; similar names: {', '.join(alike)}"
    raise HardwareError(
        f"unknown hardware '{name_or_file}'{hint}"
        " (see `roofline hardware list`, or give a .toml file)"
    )


_VENDORS = ("amd", "apple", "intel", "nvidia")


def _words(name: str) -> list[str]:
    """Return the words of a name in alphabetical order; ``80 GB`` is one."""
    return sorted(_SEPARATORS.split(re.sub(r"(?<=\d)[\s_-]+(?=gb\b)", "", name.lower())))


def _is_whole(name: str, entry: Entry) -> bool:
    """Return True if `name` omits no word that distinguishes another product.

    After a model number that is a word of letters: `m1` is not `m1-max`.
    """
    words = _SEPARATORS.split(name.lower())
    if not any(character.isdigit() for character in name):
        return True
    for known in (entry.name, *entry.aliases):
        all_words = _SEPARATORS.split(known.lower())
        if set(words) <= set(all_words):
            last = max(all_words.index(word) for word in words)
            if not any(word.isalpha() for word in all_words[last + 1 :]):
                return True
    return False


def _is_near(name: str, known: str) -> bool:
    """Return True if `name` may be a misspelling of `known`, and not another product.

    Numbers and the letters next to them must match: `h20` is not near `h200`, nor `mi250` near
    `mi250x`, nor `v100s` near `v100-sxm2`. The last letters may be missing; words and suffixes of
    two or more letters may be misspelled.
    """
    runs, whole = _runs(name), _runs(known)
    if not runs or len(runs) > len(whole):
        return False
    left_out = whole[len(runs) : len(runs) + 1]
    if left_out and runs[-1] == whole[len(runs) - 1] and not left_out[0].isdigit():
        return False
    return all(
        run == other
        or (i == len(runs) and not run.isdigit() and other.startswith(run))
        or (run.isalpha() and len(run) > 2 and bool(get_close_matches(run, [other])))
        or (run.startswith(_SUFFIX) and len(run) > 2 and other.startswith(run[:2]))
        for i, (run, other) in enumerate(zip(runs, whole, strict=False), start=1)
    )


_SUFFIX = "+"
"""Marks letters that directly follow a number."""


def _runs(name: str) -> list[str]:
    """Return the numbers and letter runs of a name; suffixes of numbers are marked."""
    marked = re.sub("(?<=[0-9])(?=[a-z])", _SUFFIX, name.lower())
    return re.findall(r"\+?[a-z]+|[0-9]+", marked)


def host_profile_name() -> str:
    """Return the name in this machine's profile; ``""`` without a readable one."""
    try:
        return read_profile(host_file()).name
    except FileFormatError:
        return ""


def load_hardware(name_or_file: str | Path) -> HardwareProfile:
    """Return the hardware profile of that name or in that file.

    Args:
        name_or_file: ``"host"`` (this machine, as `roofline measure` saved it), the name of a
            bundled or own profile such as ``"10980xe"``, or the path of a TOML file.

    Raises:
        HardwareError: there is no such profile.
        FileFormatError: its file is damaged or was written by a newer version.
    """
    return read_profile(find_hardware(str(name_or_file)))


def check_user_folder() -> None:
    """Raise HardwareError if this machine's profile cannot be stored."""
    path = host_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HardwareError(f"cannot create folder {path.parent}: {error.strerror}") from None
    check_writable(path, overwrite=True)


def save_measured_profile(profile: HardwareProfile, series: Sequence[Series]) -> Path:
    """Save a measured profile and its samples in the user's folder; return the profile's file.

    A CPU's profile is ``host.toml``, which `analyze` uses; other devices have a file by name. A
    quick profile does not replace a fuller valid one (``host-quick.toml``), nor does one without
    hardware ceilings (``host-library.toml``).
    """
    check_user_folder()
    name = HOST
    if profile.device != "cpu":
        name = profile.name
    else:
        # An unreadable profile, or that of another host, is replaced.
        with suppress(FileFormatError):
            before = read_profile(host_file())
            if before.host and profile.host and not before.host.difference(profile.host):
                if not profile.memory and before.memory:
                    name = f"{HOST}-library"
                elif before.effort in ("default", "thorough") and profile.effort == "quick":
                    name = f"{HOST}-quick"
    path = user_folder() / f"{name}.toml"
    samples = samples_text(series, name=profile.name)
    files = {samples_file(path): samples, path: profile_to_toml(profile)}
    write_together(files, overwrite=True)
    return path


_OTHER_HOST = "the profile is from another host"


def is_about_host(note: str) -> bool:
    """Return True if a note of `validate_for_host` reports another host."""
    return note.startswith(_OTHER_HOST)


def validate_for_host(
    profile: HardwareProfile, host: Host
) -> tuple[HardwareProfile, tuple[str, ...]]:
    """Return `profile` without figures invalid on `host`, and warnings, one line each.

    A changed fingerprint gives a warning; a changed torch removes library ceilings and overheads.
    """
    notes: list[str] = []
    if profile.host is None:
        return profile, ()
    difference = profile.host.difference(host)
    if difference:
        notes.append(f"{_OTHER_HOST} ({difference}); run `roofline measure` again")
    measured_with = profile.host.versions.get("torch", "")
    try:
        torch_version = version("torch")
    except PackageNotFoundError:
        torch_version = ""
    hardware = tuple(each for each in profile.compute if each.kind != "library")
    if len(hardware) < len(profile.compute) and measured_with != torch_version:
        notes.append(
            f"library ceilings ignored: measured with torch {measured_with}, installed is"
            f" {torch_version}; run `roofline measure` again"
        )
        rates = (
            tuple(each for each in level.bandwidth if each.kind != "library")
            for level in profile.memory
        )
        memory = tuple(
            replace(level, bandwidth=own) for level, own in zip(profile.memory, rates, strict=True)
        )
        profile = replace(profile, compute=hardware, memory=memory, overheads=())
    return profile, tuple(notes)
