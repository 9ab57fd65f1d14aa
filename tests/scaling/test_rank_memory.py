"""What a rank keeps: against hand-made passes, and against torch's own sharing out."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from roofline.core.dtypes import dtype
from roofline.scaling.memory import RankMemory, largest_shard, peak_while_accumulating
from roofline.workload.operators import OperatorRecord, Phase, State
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import Work
from tests.scaling.gradients import gradient

FLOAT = dtype("float32")

with warnings.catch_warnings():
    # torch scripts functions while that is imported, and warns of it.
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch.distributed.optim import ZeroRedundancyOptimizer


def record(
    index: int,
    phase: Phase,
    outputs: list[tuple[int, int, Role]],
    freed: tuple[int, ...] = (),
) -> OperatorRecord:
    return OperatorRecord(
        index=index,
        op="aten.any",
        type="pointwise",
        module_path="",
        phase=phase,
        inputs=(),
        outputs=tuple(
            TensorSpec(
                shape=(size,), dtype=FLOAT, distinct_elements=size, storage=storage, role=role
            )
            for storage, size, role in outputs
        ),
        state=State.COUNTED,
        work=Work(),
        freed=freed,
    )


def test_a_pass_that_adds_its_gradients_by_hand() -> None:
    # Activations of 10 and 20 elements, then gradients of two parameters, of 7 and 5. Those of the
    # pass before are there all the time: 12 elements, 48 bytes. The fullest moment is operator 2:
    # both activations and the new gradient of 7, which lives until it is added.
    records = [
        record(0, "forward", [(0, 10, Role.ACTIVATION)]),
        record(1, "forward", [(1, 20, Role.ACTIVATION)]),
        record(2, "backward", [(2, 7, Role.GRADIENT)], freed=(1,)),
        record(3, "backward", [(3, 5, Role.GRADIENT)], freed=(0,)),
        record(4, "optimizer", [(2, 7, Role.GRADIENT), (3, 5, Role.GRADIENT)], freed=(2, 3)),
    ]
    peak = peak_while_accumulating(records, [gradient(2, 7, 3), gradient(3, 5, 4)])
    assert (peak.activation_bytes, peak.gradient_bytes) == (120, 4 * (7 + 12))


def test_gradients_that_are_passed_on_are_no_parameters_gradients() -> None:
    records = [
        record(0, "backward", [(0, 100, Role.GRADIENT)]),
        record(1, "backward", [(1, 1, Role.GRADIENT)], freed=(0,)),
        record(2, "backward", [(2, 50, Role.GRADIENT)]),
    ]
    peak = peak_while_accumulating(records, [gradient(1, 1, 2)])
    assert (peak.activation_bytes, peak.gradient_bytes) == (0, 4 * (100 + 1 + 1))


def test_gradients_that_share_a_storage_keep_all_of_it() -> None:
    # Two parameters of 3 and 4 elements were joined with 5 elements of something else: both
    # gradients are parts of one storage of 12, which the next pass makes once more beside it.
    records = [
        record(0, "backward", [(0, 12, Role.GRADIENT)]),
        record(1, "backward", [(1, 1, Role.GRADIENT)]),
    ]
    peak = peak_while_accumulating(records, [gradient(0, 3, 1), gradient(0, 4, 2)])
    assert peak.kept_bytes == 4 * 12
    assert (peak.activation_bytes, peak.gradient_bytes) == (0, 4 * (12 + 12 + 1))


def test_more_ranks_than_parameters_keep_nothing_more() -> None:
    found = [gradient(place, 10 + place, place) for place in range(5)]
    assert largest_shard(found, 5) == largest_shard(found, 2**40) == (14, 8 * 14)


def test_without_operators_there_are_the_gradients() -> None:
    assert peak_while_accumulating([], [gradient(0, 3, 0)]).byte == 12


def shares_of_torch(sizes: list[int], ranks: int) -> list[list[int]]:
    """The elements that torch's sharded optimizer gives each rank."""
    given_to: list[list[int]] = []

    def keep(_group: Any, by_rank: list[list[torch.Tensor]]) -> None:
        given_to.extend([each.numel() for each in rank] for rank in by_rank)

    # Its methods are not in torch's type stubs.
    optimizer: Any = ZeroRedundancyOptimizer
    stand_in = SimpleNamespace(
        world_size=ranks,
        param_groups=[{"params": [torch.empty(size, device="meta") for size in sizes]}],
        _partition_parameters_cache=[],
        _get_min_index=lambda values: optimizer._get_min_index(stand_in, values),
        _partition_param_group=keep,
    )
    optimizer._partition_parameters(stand_in)
    return given_to


@given(
    sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=30),
    ranks=st.integers(1, 9),
)
def test_states_are_shared_out_as_torch_does(sizes: list[int], ranks: int) -> None:
    found = [gradient(place, size, place) for place, size in enumerate(sizes)]
    most = max(sum(each) for each in shares_of_torch(sizes, ranks))
    assert largest_shard(found, ranks) == (most, 8 * most)


RANK_MEMORY = "parameter buffer input optimizer activation gradient bucket"


def test_memory_is_the_sum_of_its_parts() -> None:
    parts = (f"{each}_bytes" for each in RANK_MEMORY.split())
    assert RankMemory(**{name: 2**place for place, name in enumerate(parts)}).total_bytes == 127
