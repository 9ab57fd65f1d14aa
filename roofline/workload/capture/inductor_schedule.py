"""Launches, bytes and buffers of a graph, from Inductor's scheduler and wrapper.

Launches and buffers are the calls and allocations of the generated wrapper. Bytes are the
scheduler's, narrowed by its dependencies.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._inductor import dependencies, ir
from torch._inductor.codegen import wrapper

from roofline.workload.capture.module_stack import without_compile_wrapper
from roofline.workload.compiled_kernels import CompiledGraph, CompiledKernel, peak_bytes
from roofline.workload.operators import Phase

_NESTED = "it has nested graphs (conditions or loops)"


class UnknownScheduleError(Exception):
    """Inductor's schedule cannot be read; the message is a clause with the reason."""


def read_graph(
    graph: Any, generated: Sequence[tuple[str, Sequence[Any]]], *, phase: Phase
) -> CompiledGraph:
    """Return a graph, called once, after its code was generated.

    ``graph`` is the active `GraphLowering`. ``generated`` lists the name and scheduler nodes of
    each generated function, in call order. Raises UnknownScheduleError for launches missing in the
    schedule, and for sizes that depend on values.
    """
    for node in graph.scheduler.nodes:
        if any(map(_has_unknown_size, (*node.read_writes.reads, *node.read_writes.writes))):
            # The scheduler uses 0 for them.
            raise UnknownScheduleError("tensor sizes depend on values")
    kernels = tuple(_kernels(graph, generated))
    steps, buffers, reused = _buffers(graph)
    return CompiledGraph(
        phase=phase,
        calls=1,
        kernels=kernels,
        buffers=buffers,
        reused=reused,
        allocated_bytes=sum(byte for _, byte in steps if byte > 0),
        peak_bytes=peak_bytes(steps),
    )


# -- launches --------------------------------------------------------------------------------------


def _kernels(
    graph: Any, generated: Sequence[tuple[str, Sequence[Any]]]
) -> Iterator[CompiledKernel]:
    if any(isinstance(line, wrapper.EnterSubgraphLine) for line in graph.wrapper_code.lines):
        raise UnknownScheduleError(_NESTED)

    nodes = list(graph.scheduler.nodes)
    loop_of = {leaf.get_name(): node for node in nodes for leaf in node.get_nodes()}
    functions: dict[int, tuple[str, list[Any]]] = {}
    for name, leaves in generated:
        if any(leaf.get_name() not in loop_of for leaf in leaves):
            raise UnknownScheduleError(_NESTED)
        found = (loop_of[leaf.get_name()] for leaf in leaves)
        loops = list({id(each): each for each in found}.values())
        if not loops:
            raise UnknownScheduleError(f"the function {name} has no loop")
        functions[id(loops[0])] = name, loops
    calls = sum(isinstance(line, wrapper.KernelCallLine) for line in graph.wrapper_code.lines)
    if calls != len(generated):
        raise UnknownScheduleError(
            f"the generated code calls {calls} functions, the schedule has {len(generated)}"
        )
    for node in nodes:
        if id(node) in functions:
            name, loops = functions.pop(id(node))
            yield _kernel(graph, name, loops, is_library=False)
        # Parts of results and assertions call no kernel.
        elif (
            node.is_extern()
            and not isinstance(node.node, ir.MultiOutput)
            and node.get_device() is not None
        ):
            called = getattr(node.node, "try_get_kernel_name", lambda: None)()
            name = str(called or type(node.node).__name__)
            yield _kernel(graph, name, [node], is_library=True)
    if functions:
        raise UnknownScheduleError(f"functions outside of the schedule: {len(functions)}")


def _kernel(graph: Any, name: str, loops: Sequence[Any], *, is_library: bool) -> CompiledKernel:
    read = sum(_moved_bytes(graph, each, reads=True) for each in loops)
    written = sum(_moved_bytes(graph, each, reads=False) for each in loops)
    # Zero bytes: a kernel with layouts unknown to Inductor.
    is_known = read + written > 0
    calls = dict.fromkeys(
        (operator, _module(origin))
        for origin in _origins(graph, loops, is_library=is_library)
        if (operator := _operator(origin))
    )
    return CompiledKernel(
        name=name,
        kind="library" if is_library else "generated",
        loops=len(loops),
        operators=tuple(operator for operator, _ in calls),
        modules=tuple(dict.fromkeys(module for _, module in calls if module)),
        read_bytes=read if is_known else None,
        written_bytes=written if is_known else None,
    )


def _origins(graph: Any, loops: Sequence[Any], *, is_library: bool) -> list[Any]:
    """Return the graph's calls that a kernel implements, in order."""
    found: set[Any] = set()
    for loop in loops:
        # A library call also has the origins of views of its operands.
        own = loop.node.get_origin_node() if is_library else None
        if own is not None:
            found.add(own)
            continue
        for leaf in loop.get_nodes():
            if leaf.node is not None:
                found |= set(leaf.node.get_origins())
    order = {node: place for place, node in enumerate(graph.module.graph.nodes)}
    called = (each for each in found if each.op == "call_function")
    return sorted(called, key=lambda each: order.get(each, len(order)))


def _operator(origin: Any) -> str:
    """Return the name of the operator before decomposition, as in records; ``""`` for a view."""
    called = origin.meta.get("original_aten") or origin.target
    if isinstance(called, torch._ops.OpOverload):
        return "" if called.is_view else f"{called.namespace}.{called._opname}"
    return str(getattr(called, "__name__", ""))


_ROOT = re.compile(r"^L\['\w+'\]")
"""Dynamo's name of the model: a local variable of its call, or of a wrapper's."""

_PART = re.compile(r"_modules\['([^']+)'\]|\['([^']+)'\]|\[(\d+)\]|(\w+)")


def _module(origin: Any) -> str:
    """Return the path of the innermost calling module; ``""`` for the model itself."""
    stack = origin.meta.get("nn_module_stack") or origin.meta.get("fwd_nn_module_stack") or {}
    if not stack:
        return ""
    return module_path(str(next(reversed(stack.values()))[0]))


def module_path(dynamo_name: str) -> str:
    """Return the module path for Dynamo's name: ``"L['self'].layer1[0]"`` gives ``layer1.0``."""
    inside = _ROOT.sub("", dynamo_name)
    parts = ["".join(groups) for groups in _PART.findall(inside)]
    return without_compile_wrapper(".".join(each for each in parts if each != "_modules"))


# -- buffers ---------------------------------------------------------------------------------------


def _buffers(graph: Any) -> tuple[list[tuple[str, int]], int, int]:
    """Return allocations (bytes) and releases (-1), the number of buffers, and of reused ones."""
    steps: list[tuple[str, int]] = []
    memory_of: dict[str, str] = {}
    buffers = reused = 0
    for line in graph.wrapper_code.lines:
        made: Any = None
        if isinstance(line, wrapper.AllocateLine):
            made = line.node
        elif isinstance(line, wrapper.ExternKernelAllocLine):
            # Other calls change a tensor, or return a view of one.
            changes = line.node.get_inputs_that_alias_output() or line.node.get_mutation_names()
            made = None if changes else line.node
        elif isinstance(line, wrapper.MultiOutputLine):
            made = graph.name_to_buffer.get(line.result_name)
        elif isinstance(line, wrapper.ReuseLine):
            old, new = str(line.node.get_name()), str(line.reused_as.get_name())
            memory_of[new] = memory_of.get(old, old)
            buffers, reused = buffers + 1, reused + 1
        elif isinstance(line, wrapper.FreeIfNotReusedLine) and not line.is_reused:
            name = str(line.node.get_name())
            steps.append((memory_of.get(name, name), -1))
        if made is not None and (byte := _byte_of(graph, made)) is not None:
            steps.append((made.get_name(), byte))
            buffers += 1
    return steps, buffers, reused


def _byte_of(graph: Any, buffer: Any) -> int | None:
    """Return the bytes of a buffer; None if it has no memory, such as a tuple of results."""
    if not isinstance(buffer.layout, ir.Layout) or isinstance(buffer.layout, ir.NonOwningLayout):
        return None
    elements = graph.sizevars.optimization_hint(
        graph.get_allocation_storage_size(buffer), fallback=0
    )
    return int(elements) * buffer.get_dtype().itemsize


# -- bytes -----------------------------------------------------------------------------------------

# They come from the scheduler (`get_read_write_buffer_accesses`: every buffer once, for the worst
# values and the best code), narrowed by its dependencies:
#
# * for several nodes in one loop nest the scheduler counts whole buffers; here, the elements that
#   their indices reach, and for a gather at most the elements fetched;
# * for a view passed to a library it counts the whole buffer; here, the elements of the view;
# * dependencies that only define an order (`WeakDep`, and `StarDep` on overwritten buffers) read
#   nothing.


def _has_unknown_size(dependency: Any) -> bool:
    try:
        return bool(dependency.has_unbacked_symbols())
    # Tuples of results have no size of their own.
    except NotImplementedError:
        return False


def _moved_bytes(graph: Any, node: Any, *, reads: bool) -> int:
    """Return the bytes that a scheduled node reads or writes, constants included."""
    moved: dict[str, int] = dict(node.get_read_write_buffer_accesses(reads, not reads))
    elements: Mapping[str, int | None] = {}
    if not node.is_extern():
        elements = _reached_elements(graph, node, reads=reads)
    elif reads:
        elements = _library_operands(node)
    for name, count in elements.items():
        if count is not None and name in moved:
            # Buffers of pure order dependencies may have no type.
            itemsize = graph.get_dtype(name).itemsize if count else 0
            moved[name] = min(moved[name], count * itemsize)
    constants: Mapping[str, torch.Tensor] = graph.constants
    read = {each.name for each in node.read_writes.reads} if reads else set[str]()
    left_out = (read & constants.keys()) - moved.keys()
    return sum(moved.values()) + sum(constants[name].nbytes for name in left_out)


def _reached_elements(graph: Any, node: Any, *, reads: bool) -> dict[str, int | None]:
    """Return the largest number of elements reached by a loop nest, by buffer; None: any."""
    counts: dict[str, dict[Any, int | None]] = {}
    for place, leaf in enumerate(node.get_nodes()):
        chosen_by = _gather_key(graph, leaf, place)
        for each in leaf.read_writes.reads if reads else leaf.read_writes.writes:
            key = each if _is_direct(each) else (each, chosen_by)
            counts.setdefault(each.name, {})[key] = _elements(graph, leaf, each)
    return {name: _sum(found.values()) for name, found in counts.items()}


def _gather_key(graph: Any, leaf: Any, place: int) -> object:
    """Return a key for gathers: the source of their indices, or a unique key if it is unclear."""
    read = [each for each in leaf.read_writes.reads if isinstance(each, dependencies.MemoryDep)]
    types = {each: graph.get_dtype(each.name) for each in read}
    whole = [each for each in read if not (types[each].is_floating_point or types[each].is_complex)]
    return whole[0] if len(whole) == 1 and _is_direct(whole[0]) else place


def _sum(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(each or 0 for each in known)


def _is_direct(dependency: Any) -> bool:
    return isinstance(dependency, dependencies.MemoryDep) and not dependency.is_indirect()


def _elements(graph: Any, leaf: Any, dependency: Any) -> int | None:
    """Return the number of elements that a dependency touches; None: any."""
    if isinstance(dependency, dependencies.MemoryDep):
        return _steps(graph, leaf) if dependency.is_indirect() else int(dependency.numel_hint())
    if isinstance(dependency, dependencies.StarDep):
        if not _is_overwritten(graph, leaf, dependency.name):
            return None
        # An atomic add reads the element; other writes do not.
        return _steps(graph, leaf) if dependency.mode == "atomic_add" else 0
    return 0


def _steps(graph: Any, leaf: Any) -> int:
    """Return the number of iterations of a loop nest."""
    sizes = [size for ranges in leaf.get_ranges() for size in ranges]
    return math.prod(int(graph.sizevars.optimization_hint(each, fallback=0)) for each in sizes)


def _is_overwritten(graph: Any, leaf: Any, name: str) -> bool:
    real: Mapping[str, str] = graph.scheduler.mutation_real_name
    changed = {each for output in leaf.get_outputs() for each in output.get_mutations()}
    return real.get(name, name) in {real.get(each, each) for each in changed}


def _library_operands(node: Any) -> dict[str, int | None]:
    """Return the number of elements passed to a library, by buffer; None: any."""
    elements: dict[str, int | None] = {}
    for each in node.read_writes.reads:
        if not isinstance(each, dependencies.WeakDep):
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
    """Yield buffer, part and number of elements (None: any) of each operand."""
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
            # Tuples, objects and symbolic sizes are unknown here.
            except (AttributeError, NotImplementedError, TypeError, ValueError):
                yield name, (name,), None
            else:
                yield name, part, math.prod(sizes)
