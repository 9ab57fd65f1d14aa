"""What a pickle would import, found without running it."""

from __future__ import annotations

import pickletools
import re
from collections.abc import Iterator

_STRINGS = ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE", "STRING", "BINSTRING")
_STORES = ("BINPUT", "LONG_BINPUT", "PUT")
_LOADS = ("BINGET", "LONG_BINGET", "GET")


def imported_by(content: bytes) -> tuple[str, ...]:
    """The names that unpickling would import, ``"posix.system"``, each once, as they come.

    A pickle that is cut short tells those before its end.
    """
    return tuple(dict.fromkeys(_imports(content)))


def _imports(content: bytes) -> Iterator[str]:
    strings: list[str] = []
    stored: dict[int, str] = {}
    count = 0
    is_string = False
    try:
        for code, argument, _ in pickletools.genops(content):
            was_string, is_string = is_string, code.name in _STRINGS
            if is_string:
                strings.append(str(argument))
            elif code.name in ("GLOBAL", "INST"):
                yield str(argument).replace(" ", ".")
            elif code.name == "STACK_GLOBAL":
                # Module and name are, most often, the last two texts.
                yield ".".join(strings[-2:]) if len(strings) > 1 else "a computed name"
            elif code.name == "MEMOIZE":
                if was_string:
                    stored[count] = strings[-1]
                count += 1
            elif code.name in _STORES and was_string:
                stored[int(argument or 0)] = strings[-1]
            elif code.name in _LOADS and int(argument or 0) in stored:
                strings.append(stored[int(argument or 0)])
    # What is no pickle, or is cut short, may fail in any of its readers.
    except (ValueError, IndexError, EOFError, TypeError, OverflowError):
        return


_HARMLESS = re.compile(
    r"(collections|numpy)\..*|(__builtin__|builtins)\.(set|dict|list|object|frozenset|bytearray)"
    r"|torch(\._utils\._rebuild\w*|\.\w*Storage|\.Size|\.nn\.parameter\.\w+)|copyreg?\._reconstructor"
)
"""Names that say nothing of what a pickle is."""


def telling_among(names: tuple[str, ...]) -> str:
    """The name that says most about a pickle: one that is not torch's, if there is one."""
    telling = [each for each in names if not _HARMLESS.fullmatch(each)]
    foreign = [each for each in telling if each.partition(".")[0] != "torch"]
    return next(iter(foreign or telling or names), "")
