"""What users ask of a language model, checked before anything is built."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from roofline.analysis import Analysis
from roofline.errors import InputError, nearest
from roofline.foundation.units import parse_byte
from roofline.language.memory import Memory
from roofline.language.parts import STAGES, Stage
from roofline.machine.system.host import available_memory_byte
from roofline.pipeline.machines import Hardware, means_host

DEFAULT_CONTEXT = 128
"""As many tokens as other transformers models are given."""

_MOST = 2**24
"""No context and no batch is as large."""


def stages_of(stage: object) -> tuple[Stage, ...]:
    """The stages that are meant: one, or (None) both.

    Raises:
        InputError: there is none of that name.
    """
    if stage is None:
        return STAGES
    known: dict[str, Stage] = {each: each for each in STAGES}
    if str(stage) not in known:
        hint = nearest(str(stage), STAGES)
        raise InputError(f"--stage {stage}: choose prefill or decode; without it both{hint}")
    return (known[str(stage)],)


def check_size(name: str, value: object) -> int:
    """A number of tokens or sequences.

    Raises:
        InputError: it is none, below 1 or beyond all that is.
    """
    if type(value) is not int or not 1 <= value <= _MOST:
        raise InputError(f"--{name} {value}: must be a whole number from 1 to {_MOST:,}")
    return value


def axis_of(
    name: str, values: Sequence[int], *, usual: int, other: Sequence[int]
) -> tuple[int, ...]:
    """The values of one axis of a sweep, each once and in order; none: nothing is swept.

    Args:
        name: of the option.
        values: what was given.
        usual: the value where only the other axis is given.
        other: the values of that.

    Raises:
        InputError: a value that is no size, or no sequence of them.
    """
    if isinstance(values, (str, int)):
        raise InputError(f"--{name} {values}: give several sizes, such as 1,2,4,8")
    if not values:
        return (usual,) if other else ()
    return tuple(sorted({check_size(name, each) for each in values}))


def memory_of(memory: object) -> Memory | None:
    """The memory that was named; None: none was.

    Raises:
        InputError: no size.
    """
    if memory is None:
        return None
    if isinstance(memory, str):
        return Memory(byte=parse_byte(memory), source="--memory")
    if type(memory) is not int or memory < 1:
        raise InputError(f"--memory {memory}: must be bytes, or a size such as 80GiB")
    return Memory(byte=memory, source="--memory")


def memory_there(analysis: Analysis, hardware: Hardware | None) -> Memory:
    """What a machine has: what its profile knows, of this one what is free."""
    profile = analysis.hardware
    is_host = hardware is None or (isinstance(hardware, (str, Path)) and means_host(hardware))
    if is_host:
        return Memory(byte=available_memory_byte(), source="free on this machine now")
    capacity = profile.memory_capacity_byte
    if capacity is not None:
        return Memory(byte=capacity, source=f"{profile.memory[-1].name} of {profile.name}")
    return Memory(byte=None, source=f"{profile.name} does not say; give --memory, such as 80GiB")
