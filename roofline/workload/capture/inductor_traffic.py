"""The bytes that Inductor's loop nests and calls of libraries read and write.

They are the scheduler's own (`get_read_write_buffer_accesses`: every buffer once, for the worst
values and the best code), less what its dependencies tell more narrowly:

* of several nodes in one loop nest the scheduler counts buffers whole; here, as much as the indices
  of them all reach, and of a gather no more elements than it fetches;
* of what a library is given a view of it counts the whole buffer; here, the elements of the view;
* what only says who must come first (`WeakDep`, and `StarDep` on what is overwritten) reads
  nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch


def read_byte(graph: Any, node: Any) -> int:
    """What a scheduled node reads. The scheduler leaves out constants; they are read all the same.

    Args:
        graph: the `GraphLowering`, while it is the one that Inductor works on.
        node: one of its scheduler's nodes.
    """
    moved = _narrowed(graph, node, reads=True)
    constants: Mapping[str, torch.Tensor] = graph.constants
    names = {each.name for each in node.read_writes.reads}
    left_out = (names & constants.keys()) - moved.keys()
    return sum(moved.values()) + sum(constants[name].nbytes for name in left_out)


def written_byte(graph: Any, node: Any) -> int:
    """What a scheduled node writes, as `read_byte`."""
    return sum(_narrowed(graph, node, reads=False).values())


def has_unknown_sizes(node: Any) -> bool:
    """Whether sizes of what a node moves depend on values; the scheduler takes them for 0."""
    moved = (*node.read_writes.reads, *node.read_writes.writes)
    return any(_has_unknown_size(each) for each in moved)


def _has_unknown_size(dependency: Any) -> bool:
    try:
        return bool(dependency.has_unbacked_symbols())
    # Tuples of results have no size of their own.
    except NotImplementedError:
        return False


def _narrowed(graph: Any, node: Any, *, reads: bool) -> dict[str, int]:
    """The bytes of each buffer that a node reads, or writes."""
    moved: dict[str, int] = dict(node.get_read_write_buffer_accesses(reads, not reads))
    if not node.is_extern():
        elements = _reached(graph, node, reads=reads)
    elif reads:
        elements = _given(node)
    else:
        return moved
    for name, count in elements.items():
        if count is not None and name in moved:
            # What is only waited for may have no type.
            itemsize = graph.get_dtype(name).itemsize if count else 0
            moved[name] = min(moved[name], count * itemsize)
    return moved


# -- loop nests ------------------------------------------------------------------------------------


def _reached(graph: Any, node: Any, *, reads: bool) -> dict[str, int | None]:
    """By buffer, the most elements that the indices of a loop nest reach; None: any."""
    counts: dict[str, dict[Any, int | None]] = {}
    for place, leaf in enumerate(node.get_nodes()):
        chosen_by = _chosen_by(graph, leaf, place)
        for each in leaf.read_writes.reads if reads else leaf.read_writes.writes:
            key = each if _is_direct(each) else (each, chosen_by)
            counts.setdefault(each.name, {})[key] = _elements(graph, leaf, each)
    return {name: _sum(found.values()) for name, found in counts.items()}


def _chosen_by(graph: Any, leaf: Any, place: int) -> object:
    """What tells gathers of two nodes apart that look the same: what their indices are read from.

    Where that is not clear, they are different.
    """
    from torch._inductor.dependencies import MemoryDep

    read = [each for each in leaf.read_writes.reads if isinstance(each, MemoryDep)]
    types = {each: graph.get_dtype(each.name) for each in read}
    whole = [each for each in read if not (types[each].is_floating_point or types[each].is_complex)]
    return whole[0] if len(whole) == 1 and _is_direct(whole[0]) else place


def _sum(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(each or 0 for each in known)


def _is_direct(dependency: Any) -> bool:
    from torch._inductor.dependencies import MemoryDep

    return isinstance(dependency, MemoryDep) and not dependency.is_indirect()


def _elements(graph: Any, leaf: Any, dependency: Any) -> int | None:
    """How many elements a node touches by one of its dependencies; None: any."""
    from torch._inductor.dependencies import MemoryDep, StarDep

    if isinstance(dependency, MemoryDep):
        return _steps(graph, leaf) if dependency.is_indirect() else int(dependency.numel_hint())
    if isinstance(dependency, StarDep):
        if not _is_overwritten(graph, leaf, dependency.name):
            return None
        # Who adds to an element reads it; any other write does not.
        return _steps(graph, leaf) if dependency.mode == "atomic_add" else 0
    return 0


def _steps(graph: Any, leaf: Any) -> int:
    """How often the body of a loop nest runs."""
    sizes = [size for ranges in leaf.get_ranges() for size in ranges]
    return math.prod(int(graph.sizevars.optimization_hint(each, fallback=0)) for each in sizes)


def _is_overwritten(graph: Any, leaf: Any, name: str) -> bool:
    real: Mapping[str, str] = graph.scheduler.mutation_real_name
    changed = {each for output in leaf.get_outputs() for each in output.get_mutations()}
    return real.get(name, name) in {real.get(each, each) for each in changed}


# -- calls of libraries ----------------------------------------------------------------------------


def _given(node: Any) -> dict[str, int | None]:
    """By buffer, the elements of it that a library is given; None: any."""
    from torch._inductor.dependencies import WeakDep

    elements: dict[str, int | None] = {}
    for each in node.read_writes.reads:
        if not isinstance(each, WeakDep):
            elements[each.name] = None
        else:
            elements.setdefault(each.name, 0)
    views: dict[str, set[tuple[str, ...]]] = {}
    counts: dict[tuple[str, ...], int | None] = {}
    for name, view, count in _views(node.node.inputs):
        views.setdefault(name, set()).add(view)
        counts[view] = count
    for name in views.keys() & elements.keys():
        elements[name] = _sum(counts[view] for view in views[name])
    return elements


def _views(inputs: Iterable[Any]) -> Iterator[tuple[str, tuple[str, ...], int | None]]:
    """Of each operand: its buffer, which part of it, and how many elements that is (None: any)."""
    for each in inputs:
        if isinstance(each, (list, tuple)):
            yield from _views(each)
        elif hasattr(each, "get_name"):
            name = str(each.get_name())
            try:
                layout = each.get_layout()
                part = (name, str(layout.size), str(layout.stride), str(layout.offset))
                sizes = [
                    int(size)
                    for size, stride in zip(layout.size, layout.stride, strict=True)
                    if stride != 0
                ]
            # Of tuples, objects and sizes that are symbols, nothing is known here.
            except (AttributeError, NotImplementedError, TypeError, ValueError):
                yield name, (name,), None
            else:
                yield name, part, math.prod(sizes)
