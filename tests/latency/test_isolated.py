"""Operators on their own: what runs between two readings of the clock, on which memory, how often,
and what is kept of it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from roofline.core.sampling import Sample
from roofline.errors import MeasurementError
from roofline.latency.measuring.calls import (
    ArgumentStorage,
    Call,
    CallLog,
    describe_call,
    plan_copies,
)
from roofline.latency.measuring.isolated import EFFORT, cycle_size, measure_isolated
from roofline.latency.measuring.rounds import Effort, Gauges
from roofline.latency.samples import IsolatedSample
from roofline.latency.store import Store
from roofline.run import Run
from roofline.workload.capture.operands import tensors_in
from roofline.workload.capture.passes import capture
from roofline.workload.capture.training import TrainingConfig, optimizer_factory
from roofline.workload.inputs import Inputs
from roofline.workload.models.sources import load_model
from roofline.workload.operators import Capture, State
from roofline.workload.tensors import Role
from roofline.workload.torch_dtypes import dtype_of

ATEN = torch.ops.aten
KIB = 2**10
SHORT = Effort(warm_ups=0, min_rounds=1, max_rounds=1, budget_s=0)


class Memory(Store):
    """Keeps times as the store does, in no file, and how often each was asked for."""

    def __init__(self, times: dict[str, IsolatedSample] | None = None) -> None:
        self.times = times or {}
        self.asked: list[str] = []

    def isolated(self, key: str) -> IsolatedSample | None:
        self.asked.append(key)
        return self.times.get(key)

    def keep_isolated(self, key: str, sample: IsolatedSample) -> None:
        self.times[key] = sample


class Bench(TorchDispatchMode):
    """Sees every operator that runs, and moves a clock by what it says that each takes.

    ``calls`` has the addresses and values of the operands of those that are looked at.
    """

    def __init__(self, watched: str = "", take_s: Callable[[int], float] = lambda _: 1.0) -> None:
        super().__init__()
        self.now_s = 0.0
        self.cpu_s = 0.0
        self.names: list[str] = []
        self.addresses: list[list[int]] = []
        self.values: list[list[torch.Tensor]] = []
        self.made: list[weakref.ref[Any]] = []
        self.cpu_share = 1.0
        self.take_s = take_s
        self._watched = watched

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = f"{func.namespace}.{func._opname}"
        self.names.append(name)
        if name == self._watched:
            operands = [each for each in args if isinstance(each, torch.Tensor)]
            self.addresses.append([each.data_ptr() for each in operands])
            self.values.append([each.clone() for each in operands])
            self.made += [weakref.ref(each.untyped_storage()) for each in operands]
        result = func(*args, **(kwargs or {}))
        if name == self._watched:
            taken_s, share = self.take_s(len(self.addresses) - 1), self.cpu_share
            self.made.append(weakref.ref(result.untyped_storage()))
        else:
            taken_s, share = 100.0, 1.0
        self.now_s += taken_s
        self.cpu_s += taken_s * share
        return result

    @property
    def gauges(self) -> Gauges:
        return Gauges(
            wall=lambda: self.now_s,
            thread_cpu=lambda: self.cpu_s,
            page_faults=lambda: 0,
            run_queue_wait=lambda: 0.0,
        )


def called(func: Any, *args: Any, kept: Sequence[torch.Tensor] = (), **kwargs: Any) -> Call:
    roles = {each.untyped_storage()._cdata: Role.PARAMETER for each in kept}
    return describe_call(func, args, kwargs, roles)


def alone(*times_s: float) -> IsolatedSample:
    return IsolatedSample(sample=Sample(times_s=times_s))


def measure_call(call: Call, *, threads: int = 1, cache_bytes: int = KIB, **named: Any) -> Sample:
    """The times of one call; what cannot be timed raises."""
    said: list[str] = []
    (found,) = measure_isolated(
        [call],
        store=Memory(),
        threads=threads,
        last_level_bytes=cache_bytes,
        say=said.append,
        **named,
    )
    if found is None:
        raise MeasurementError(said[0])
    return found.sample


def measured(call: Call, bench: Bench, cache_bytes: int = 32 * KIB, **effort: Any) -> Sample:
    given = Effort(**effort) if effort else EFFORT
    with bench:
        return measure_call(call, cache_bytes=cache_bytes, gauges=bench.gauges, effort=given)


# --- what is between two readings of the clock ----------------------------------------------------


def test_only_the_call_is_timed() -> None:
    weight = torch.empty(64, 64)
    call = called(ATEN.mm.default, torch.empty(8, 64), weight, kept=[weight])
    bench = Bench("aten.mm", take_s=lambda number: 1.0 + number)

    sample = measured(call, bench, warm_ups=2, min_rounds=5, max_rounds=30, budget_s=0)

    # Numbers 0 and 1 warm up; what writes the activation takes a hundred seconds each time.
    assert sample.times_s == (3.0, 4.0, 5.0, 6.0, 7.0)


def test_the_clock_is_read_right_before_and_after() -> None:
    read = iter(range(10_000))
    # Every reading takes a second, and the call none.
    gauges = Gauges(
        wall=lambda: float(next(read)),
        thread_cpu=lambda: next(read) * 1e6,
        run_queue_wait=lambda: 0.0,
    )

    sample = measure_call(called(ATEN.neg.default, torch.empty(4)), gauges=gauges)

    assert set(sample.times_s) == {1.0}


def test_what_takes_no_tick_of_the_clock_takes_some_time() -> None:
    gauges = Gauges(wall=lambda: 0.0, thread_cpu=lambda: 0.0, run_queue_wait=lambda: 0.0)
    call = called(ATEN.neg.default, torch.empty(4))

    assert measure_call(call, gauges=gauges, effort=SHORT).times_s == (1e-9,)


def test_there_are_no_more_rounds_than_asked_for() -> None:
    bench = Bench("aten.neg")
    sample = measured(called(ATEN.neg.default, torch.empty(4)), bench, max_rounds=7, budget_s=1e9)

    assert len(sample.times_s) == 7
    assert len(bench.addresses) == 9


def test_a_call_that_waited_for_a_core_does_not_count() -> None:
    bench = Bench("aten.neg")

    def take_s(number: int) -> float:
        bench.cpu_share = 0.5 if number % 2 else 1.0
        return 9.0 if number % 2 else 1.0

    bench.take_s = take_s
    sample = measured(
        called(ATEN.neg.default, torch.empty(4)),
        bench,
        warm_ups=0,
        min_rounds=3,
        max_rounds=3,
        budget_s=1e9,
    )

    assert sample.times_s == (1.0, 1.0, 1.0)


# --- on which memory ------------------------------------------------------------------------------


def test_weights_take_turns_and_activations_stay() -> None:
    weight = torch.empty(64, 64)
    call = called(ATEN.mm.default, torch.empty(8, 64), weight, kept=[weight])
    bench = Bench("aten.mm")
    # Twice 40 KiB are five weights of 16 KiB.
    measured(call, bench, 40 * KIB, warm_ups=1, min_rounds=10, max_rounds=10, budget_s=0)

    activations, weights = zip(*bench.addresses, strict=True)
    assert len(set(activations)) == 1
    assert len(set(weights)) == 5
    assert weights[5:] == weights[:6]
    assert "aten.sum" not in bench.names


def test_where_copies_are_too_few_other_memory_is_touched_before_each_turn_of_them() -> None:
    bias = torch.empty(16)
    call = called(ATEN.mul.Tensor, torch.empty(8, 16), bias, kept=[bias])
    bench = Bench("aten.mul")
    measured(call, bench, 32 * KIB, warm_ups=0, min_rounds=4, max_rounds=4, budget_s=0)

    operators = [each for each in bench.names if each in ("aten.sum", "aten.mul")]
    assert operators == ["aten.sum", *["aten.mul"] * 4]
    assert len({addresses[1] for addresses in bench.addresses}) == 4


def test_other_memory_is_touched_again_when_all_copies_had_their_turn() -> None:
    bias = torch.empty(16)
    call = called(ATEN.mul.Tensor, torch.empty(8, 16), bias, kept=[bias])
    bench = Bench("aten.mul")
    # As many copies as rounds are planned, of which all are disturbed, and as many more follow.
    bench.cpu_share = 0.5
    measured(call, bench, 32 * KIB, warm_ups=0, min_rounds=4, max_rounds=4, budget_s=0)

    operators = [each for each in bench.names if each in ("aten.sum", "aten.mul")]
    assert operators == ["aten.sum", *["aten.mul"] * 4] * 2
    assert bench.addresses[:4] == bench.addresses[4:]


def test_without_weights_nothing_is_cycled() -> None:
    bench = Bench("aten.neg")
    measured(called(ATEN.neg.default, torch.empty(16)), bench, 2**40)

    assert len({addresses[0] for addresses in bench.addresses}) == 1
    assert "aten.sum" not in bench.names


def test_copies_are_within_limits() -> None:
    mib = 2**20

    def copies(byte: int, cycle_bytes: int = 64 * mib, turns: int = 1000) -> tuple[int, bool, int]:
        kept = ArgumentStorage(byte, torch.uint8, is_kept=True)
        plan = plan_copies([kept], cycle_bytes=cycle_bytes, turns=turns)
        return plan.copies, plan.is_swept, plan.byte

    assert copies(10 * mib) == (7, False, 70 * mib)
    assert copies(mib // 2) == (64, True, 32 * mib)
    assert copies(mib, turns=32) == (32, True, 32 * mib)
    assert copies(65 * mib) == (1, False, 65 * mib)
    assert copies(300 * mib, cycle_bytes=2**40) == (3, True, 900 * mib)
    assert copies(2**31, cycle_bytes=2**40) == (1, True, 2**31)


def test_weights_of_a_small_model_are_used_again_sooner() -> None:
    mib = 2**20

    assert cycle_size(32 * mib) == 64 * mib
    assert [cycle_size(32 * mib, each) for each in (1, 5 * mib, 8 * mib, 40 * mib, 2**40)] == [
        *(mib, 8 * mib, 8 * mib, 64 * mib, 64 * mib)
    ]


def test_what_is_changed_in_place_begins_each_time_as_it_was() -> None:
    bench = Bench("aten.mul_")
    measured(called(ATEN.mul_.Tensor, torch.empty(8, 8), 1e-3), bench)

    first = bench.values[0][0]
    assert len(bench.values) > 5
    assert all(torch.equal(each[0], first) for each in bench.values)
    assert 0.1 < first.min() < first.max() < 1


DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.complex64]


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int64, torch.uint8, torch.bool])
def test_memory_holds_what_can_be_computed_with(dtype: torch.dtype) -> None:
    bench = Bench("aten.zeros_like")
    # More than the pattern that it is filled with, and not a multiple of it.
    measured(called(ATEN.zeros_like.default, torch.empty(70_001, dtype=dtype)), bench, max_rounds=5)

    found = bench.values[0][0]
    assert found.dtype == dtype
    if dtype == torch.bool:
        assert found.all()
    elif dtype in DTYPES:
        real = found.real if dtype.is_complex else found.float()
        assert 0.1 < real.min() < real.max() < 1
        assert len(real.unique()) > 5
    else:
        assert not found.any()


def test_parts_of_one_storage_share_it_again() -> None:
    whole = torch.empty(6, 32)
    first, second = whole[:, :16], whole.t()
    bench = Bench("aten.add")
    measured(called(ATEN.add.Tensor, first, second[:16].t()), bench, max_rounds=5)
    measured(called(ATEN.add.Tensor, first, whole[:, 16:]), bench, max_rounds=5)

    assert bench.addresses[0][0] == bench.addresses[0][1]
    assert bench.addresses[-1][1] - bench.addresses[-1][0] == 16 * 4


def test_nothing_is_left_in_memory() -> None:
    weight = torch.empty(64, 64)
    call = called(ATEN.mm.default, torch.empty(8, 64), weight, kept=[weight])
    bench = Bench("aten.mm")
    gc.disable()
    try:
        measured(call, bench)
        bench.values.clear()
        left = [each for each in bench.made if each() is not None]
    finally:
        gc.enable()

    assert bench.made
    assert not left


def test_operands_that_would_fill_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))

    with pytest.raises(MeasurementError, match=r"operands need 1.02 kB, 1.00 kB are free"):
        measure_call(called(ATEN.neg.default, torch.empty(128)))


def test_a_call_that_cannot_be_described_is_refused() -> None:
    with pytest.raises(MeasurementError, match="a random number generator"):
        measured(called(ATEN.bernoulli.default, torch.empty(4), torch.Generator()), Bench())


# --- the calls of models --------------------------------------------------------------------------


class Block(torch.nn.Module):
    """An embedding, a recurrent layer, attention, and operators that index, join and change."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 32)
        self.recurrent = torch.nn.LSTM(32, 32, batch_first=True)
        self.norm = torch.nn.LayerNorm(32)
        self.projection = torch.nn.Linear(32, 96)

    def forward(self, token: torch.Tensor) -> torch.Tensor:
        batch, length = token.shape
        hidden, _ = self.recurrent(self.embedding(token))
        parts = self.projection(self.norm(hidden)).view(batch, length, 3, 4, 8)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        joined = torch.cat([hidden, mixed.transpose(1, 2).reshape(batch, length, 32)], dim=-1)
        return torch.relu_(joined)[:, token[0]].softmax(-1)


class Images(torch.nn.Module):
    """What is between the layers of a network for images."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, stride=2, bias=False)
        self.norm = torch.nn.BatchNorm2d(8)
        self.deep = torch.nn.Conv2d(8, 8, 3, groups=8, padding=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = torch.nn.functional.max_pool2d(self.norm(self.first(image)).relu_(), 2)
        x = x + torch.nn.functional.silu(self.deep(x), inplace=True)
        return torch.nn.functional.interpolate(x, scale_factor=2.0).mean((2, 3)).argmax(-1)


def logged(model: torch.nn.Module, *inputs: Any, run: Run, make: Any = None) -> tuple[Any, ...]:
    log = CallLog()
    captured = capture(
        model,
        Inputs(*inputs),
        name="model",
        run=run,
        training=TrainingConfig(optimizer=make),
        on_call=log.begin,
    )
    return captured, asked(captured, log)


def asked(captured: Capture, log: CallLog) -> list[Call | None]:
    """The calls, as the pipeline asks for them."""
    return [
        None if record.state is State.FREE else call
        for record, call in zip(captured.records, log.calls, strict=True)
    ]


class Results(TorchDispatchMode):
    """Keeps what operators of one name gave, the last time."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, Any] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.of[f"{func.namespace}.{func._opname}"] = result
        return result


TOKENS = torch.zeros(2, 7, dtype=torch.int64)
PLAIN, HALF = Run(), Run(dtype="bfloat16")
MODELS = [
    pytest.param(lambda: load_model("resnet18").module, (1, 3, 32, 32), PLAIN, id="resnet18"),
    pytest.param(Images, (2, 3, 32, 32), PLAIN, id="images"),
    pytest.param(Images, (2, 3, 32, 32), Run(channels_last=True), id="channels-last"),
    pytest.param(Images, (2, 3, 32, 32), HALF, id="images-bfloat16"),
    pytest.param(Block, TOKENS, PLAIN, id="block"),
    pytest.param(Block, TOKENS, HALF, id="block-bfloat16"),
]


@pytest.mark.parametrize(("make", "given", "run"), MODELS)
def test_every_call_of_a_model_gives_what_it_gave_there(make: Any, given: Any, run: Run) -> None:
    captured, calls = logged(make(), given, run=run)

    for record, call in zip(captured.records, calls, strict=True):
        if call is None:
            continue
        with Results() as results:
            measure_call(call, effort=SHORT)
        result = results.of[record.op]
        found = [each for each in tensors_in([result]) if each.numel()]
        shapes = [(tuple(each.shape), dtype_of(each.dtype)) for each in found]
        # Operands that are changed come after results.
        assert shapes == [(each.shape, each.dtype) for each in record.outputs][: len(shapes)]
        for each in found:
            assert not each.is_floating_point() or each.isfinite().all(), record.op


def fused(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, fused=True)


def together(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=True)


class Trained(torch.nn.Module):
    """Gives what has a gradient."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        self.last = torch.nn.Linear(8, 3)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        model: Any = self.model
        return self.last(model.norm(model.first(image)).relu_().mean((2, 3)))


@pytest.mark.parametrize("make", [optimizer_factory("adam"), fused, together])
def test_backward_passes_and_updates_run_on_their_own(make: Any) -> None:
    model, run = Trained(Images()), Run(train=True, optimizer="adam")
    captured, calls = logged(model, (4, 3, 16, 16), run=run, make=make)
    said: list[str] = []
    found = measure_isolated(
        calls, store=Memory(), threads=1, last_level_bytes=KIB, say=said.append, effort=SHORT
    )

    assert {record.phase for record in captured.records} == {"forward", "backward", "optimizer"}
    assert [each is None for each in found] == [each is None for each in calls]
    assert not said


# --- each once, and kept --------------------------------------------------------------------------


def unique(
    calls: Sequence[Call | None], store: Memory, say: Callable[[str], None] = print, **named: Any
) -> list[IsolatedSample | None]:
    return measure_isolated(
        calls, store=store, threads=1, last_level_bytes=KIB, say=say, effort=SHORT, **named
    )


def test_equal_calls_are_measured_once_and_looked_for_once() -> None:
    one, other = (called(ATEN.neg.default, torch.empty(3, size)) for size in (4, 5))
    same = called(ATEN.neg.default, torch.empty(3, 4))
    store = Memory()
    with Bench("aten.neg") as bench:
        found = unique([one, None, other, same], store, gauges=bench.gauges)

    assert len(bench.addresses) == 2
    assert store.asked == list(store.times) == [one.key(1), other.key(1)]
    assert found == [store.times[one.key(1)], None, store.times[other.key(1)], found[0]]


def test_times_of_functions_of_the_user_are_not_kept() -> None:
    library = torch.library.Library("timed_alone", "FRAGMENT")
    library.define("double(Tensor x) -> Tensor")
    library.impl("double", lambda x: x * 2, "CompositeExplicitAutograd")
    call, store = called(torch.ops.timed_alone.double.default, torch.empty(4)), Memory()
    (found,) = unique([call], store)
    assert found is not None
    # The file may be edited before the next run.
    assert not store.times


def test_what_the_store_has_is_not_measured() -> None:
    call, sample = called(ATEN.neg.default, torch.empty(4)), alone(0.5, 0.25)
    store = Memory({call.key(1): sample})
    told: list[float] = []
    with Bench("aten.neg") as bench:
        found = unique([call], store, progress=lambda done, what: told.append(done))

    assert found == [sample]
    assert not bench.addresses
    assert not told


def test_cold_weights_are_kept_under_how_cold_they_are() -> None:
    weight = torch.empty(8, 8)
    cold = called(ATEN.mm.default, torch.empty(2, 8), weight, kept=[weight])
    warm = called(ATEN.mm.default, torch.empty(2, 8), torch.empty(8, 8))
    store = Memory()
    measure_isolated([cold, warm], store=store, threads=1, last_level_bytes=2**21, say=print)
    unique([cold, warm], store)

    # In the second the cache is another; without weights that does not matter.
    assert list(store.times) == [
        f"{cold.key(1)} cycle={2**22}",
        warm.key(1),
        f"{cold.key(1)} cycle={2 * KIB}",
    ]


class Stops(Bench):
    """Is interrupted in the second kind of operator."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is ATEN.abs.default:
            raise KeyboardInterrupt
        return super().__torch_dispatch__(func, types, args, kwargs)


def test_an_interrupt_keeps_what_there_is_and_leaves_torch_as_it_was() -> None:
    calls = [called(getattr(ATEN, each).default, torch.empty(4)) for each in ("neg", "abs", "exp")]
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    store = Memory()
    with pytest.raises(KeyboardInterrupt), Stops():
        measure_isolated(
            calls, store=store, threads=threads + 1, last_level_bytes=KIB, say=print, effort=SHORT
        )

    assert list(store.times) == [calls[0].key(threads + 1)]
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()


class Looks(TorchDispatchMode):
    """Sees under which settings an operator runs."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[object, ...]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is ATEN.neg.default:
            self.seen.add(
                (
                    torch.get_num_threads(),
                    torch.is_grad_enabled(),
                    torch.is_inference_mode_enabled(),
                    torch.is_autocast_enabled("cpu"),
                    torch.are_deterministic_algorithms_enabled(),
                )
            )
        return func(*args, **(kwargs or {}))


def test_settings_of_the_caller_do_not_matter() -> None:
    call, looks = called(ATEN.neg.default, torch.empty(4)), Looks()
    threads = torch.get_num_threads() + 1
    torch.use_deterministic_algorithms(True)
    try:
        with torch.inference_mode(), torch.autocast("cpu"), looks:
            measure_call(call, threads=threads, effort=SHORT)
            assert torch.are_deterministic_algorithms_enabled()
            assert torch.is_inference_mode_enabled()
    finally:
        torch.use_deterministic_algorithms(False)

    assert looks.seen == {(threads, False, False, False, False)}


def test_what_raises_is_said_once_and_the_rest_is_done() -> None:
    wrong = [
        Call(op="aten.mm", overload="default", args=called(ATEN.mm.default, *pair).args)
        for pair in ((torch.empty(2, 3), torch.empty(2, 3)), (torch.empty(4, 3), torch.empty(2, 3)))
    ]
    unknown = Call(op="nobody.knows", overload="default")
    odd = called(ATEN.bernoulli.default, torch.empty(4), torch.Generator())
    fine = called(ATEN.neg.default, torch.empty(4))
    said: list[str] = []
    found = unique([*wrong, unknown, odd, odd, fine], Memory(), said.append)

    assert [each is None for each in found] == [True] * 5 + [False]
    assert [each.partition(":")[0] for each in said] == [
        "aten.mm cannot be timed alone",
        "nobody.knows cannot be timed alone",
        "aten.bernoulli cannot be timed alone",
    ]
    assert "\n" not in "".join(said)


def test_what_never_had_a_core_is_given_and_not_kept() -> None:
    call, store = called(ATEN.neg.default, torch.empty(4)), Memory()
    with Bench("aten.neg") as bench:
        bench.cpu_share = 0.5
        found = unique([call], store, gauges=bench.gauges)

    assert found == [alone(1.0)]
    assert not store.times


def test_progress_is_told_of_what_is_missing() -> None:
    calls = [called(getattr(ATEN, each).default, torch.empty(4)) for each in ("neg", "exp")]
    told: list[tuple[float, str]] = []
    unique(calls, Memory(), progress=lambda done, what: told.append((done, what)))

    assert told == [(0.0, "timing aten.neg"), (0.5, "timing aten.exp")]
