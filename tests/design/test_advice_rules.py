"""Every rule of advice has a model that triggers it, and one that must not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from roofline.design.advice.rules import findings_of
from roofline.machine.hardware import Duration, Overhead
from roofline.workload.operators import OperatorRecord
from tests.analysis.examples import MEASURED, dram_profile, full_profile
from tests.design.advice_models import Clock, analysed, by_flop, found_in


class Given(nn.Module):
    """A function of layers, as a module."""

    def __init__(self, function: Callable[..., torch.Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self._function = function
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._function(self, x)


def conv(into: int, out: int, kernel: Any = 3, **options: Any) -> nn.Conv2d:
    padding = options.pop("padding", "same" if options.get("stride", 1) == 1 else 1)
    return nn.Conv2d(into, out, kernel, padding=padding, bias=False, **options)


# Channels


def test_channels_that_are_no_multiples_are_padded() -> None:
    model = nn.Sequential(conv(3, 24), conv(24, 24))
    found = found_in(model, 1, 3, 96, 96)["channel padding"]
    assert found.operators == (0, 1)
    assert (found.basis, found.saving_low_s) == ("estimate", None)
    # 24 of 32 on one side of the first convolution, whose image nobody can widen; of the second on
    # both.
    plane = 96 * 96
    times_s = [
        2 * plane * into * 24 * 9 / 1e11 + 4 * (plane * (into + 24) + into * 24 * 9) / 1e10 + 1e-5
        for into in (3, 24)
    ]
    assert found.predicted_before_s == pytest.approx(sum(times_s))
    useful = 0.75 * times_s[0] + 0.75**2 * times_s[1]
    assert found.predicted_after_s == pytest.approx(useful)
    assert "24 channels" in found.evidence and "vector length 16" in found.evidence


def slow_if(is_slow: Callable[[OperatorRecord], bool], times: float = 10.0) -> Any:
    return lambda record: by_flop(record) * (times if is_slow(record) else 1.0)


def kernel_of(record: OperatorRecord) -> tuple[int, ...]:
    is_conv = record.op == "aten.convolution"
    return record.inputs[1].shape[2:] if is_conv else ()


@pytest.mark.parametrize("kernel", [(11, 11), (2, 2), (1, 7)])
def test_a_kernel_that_is_slow_for_its_flop_is_named(kernel: tuple[int, int]) -> None:
    # A kernel of even size cannot keep the size of an image by padding.
    padding, size = ((1, 1), 33) if kernel == (2, 2) else ("same", 32)
    model = nn.Sequential(conv(32, 32), conv(32, 32, kernel, padding=padding))
    is_slow = slow_if(lambda record: kernel_of(record) == kernel)
    found = found_in(model, 1, 32, 32, 32, time_of=is_slow)["unusual kernel"]
    assert len(found.operators) == 1
    # As many 3x3 as do the same FLOP and reach as far: 3 of them reach 7 pixels, 1 more than 2.
    times = {(11, 11): 121 / 9, (2, 2): 1, (1, 7): 3}[kernel]
    words = {(11, 11): "reach", (2, 2): "one 3x3 kernel of", (1, 7): "3 3x3 kernels of"}[kernel]
    assert f"of {kernel[0]}x{kernel[1]} " in found.evidence and words in found.evidence
    flop = 2 * size * size * 32 * 32 * 9
    byte = 4 * ((32 * 32 + size * size) * 32 + 32 * 32 * 9)
    assert found.predicted_after_s == pytest.approx((flop / 1e11 + byte / 1e10 + 1e-5) * times)


# Batch norms


def test_a_norm_behind_a_convolution_can_be_folded() -> None:
    model = nn.Sequential(conv(32, 32), nn.BatchNorm2d(32), nn.ReLU())
    found = found_in(model, 1, 32, 32, 32)
    fold = found["foldable batch norm"]
    elements = 32 * 32 * 32
    assert fold.predicted_after_s == 0
    assert fold.predicted_before_s == pytest.approx(1e-5 + 8 * elements / 1e10, rel=0.05)
    assert fold.saving_low_s == pytest.approx(0.99 * (fold.predicted_before_s or 0))
    assert "batch norm after an activation" not in found


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.SiLU(), nn.PReLU(32)])
def test_a_norm_behind_an_activation_cannot(activation: nn.Module) -> None:
    model = nn.Sequential(conv(32, 32), activation, nn.BatchNorm2d(32), nn.Tanh())
    found = found_in(model, 1, 32, 32, 32)
    behind = found["batch norm after an activation"]
    assert len(behind.operators) == 1
    assert behind.predicted_before_s == pytest.approx(1e-5 + 8 * 32**3 / 1e10, rel=0.05)
    assert behind.predicted_after_s == 0
    assert "Conv→BN→activation" in behind.change
    assert "without padding" not in behind.change
    assert "foldable batch norm" not in found


def test_a_convolution_without_padding_could_take_in_the_norm_before_it() -> None:
    model = nn.Sequential(conv(32, 32), nn.ReLU(), nn.BatchNorm2d(32), conv(32, 32, 1))
    found = found_in(model, 1, 32, 32, 32)["batch norm after an activation"]
    assert "1 before a convolution without padding" in found.evidence
    assert "can be folded into it" in found.change


@pytest.mark.parametrize(
    "model",
    [
        # The norm in front of the convolution, as DenseNet has it.
        nn.Sequential(nn.BatchNorm2d(32), nn.ReLU(), conv(32, 32)),
        # Somebody else reads what the convolution gives.
        Given(
            lambda own, x: own.norm(y := own.conv(x)) + y,
            conv=conv(32, 32),
            norm=nn.BatchNorm2d(32),
        ),
        nn.Sequential(conv(32, 32), nn.GroupNorm(4, 32)),
        # One convolution with two norms, as detectors share their heads between scales.
        Given(
            lambda own, x: own.one(own.conv(x)) + own.other(own.conv(x * 2)),
            conv=conv(32, 32),
            one=nn.BatchNorm2d(32),
            other=nn.BatchNorm2d(32),
        ),
        # Somebody else reads what the activation gives.
        Given(
            lambda own, x: own.norm(y := torch.relu(own.conv(x))) + y,
            conv=conv(32, 32),
            norm=nn.BatchNorm2d(32),
        ),
        # A sum of two branches is no activation.
        Given(lambda own, x: own.norm(own.conv(x) + x), conv=conv(32, 32), norm=nn.BatchNorm2d(32)),
    ],
    ids=["before", "read twice", "group norm", "shared", "activation read twice", "a sum"],
)
def test_other_norms_cannot_be_folded(model: nn.Module) -> None:
    found = found_in(model, 1, 32, 32, 32)
    assert not {"foldable batch norm", "batch norm after an activation"} & found.keys()


# Depthwise convolutions


def separable(channels: int = 32) -> nn.Module:
    return nn.Sequential(
        conv(channels, channels, groups=channels), nn.ReLU(), conv(channels, 64, 1), conv(64, 64)
    )


def is_depthwise(record: OperatorRecord) -> bool:
    return record.type == "depthwise convolution"


def test_depthwise_convolutions_that_take_too_long_are_named_and_replaced() -> None:
    found = found_in(separable(), 1, 32, 32, 32, time_of=slow_if(is_depthwise, 40.0))
    below = found["depthwise below the ridge"]
    assert below.operators == (0,)
    assert below.basis == "at most"
    standard = found["standard convolution instead of depthwise"]
    assert standard.operators == (0, 1, 2)
    # 3x3 from 32 to 64 channels.
    flop = 2 * 32 * 32 * 32 * 64 * 9
    byte = 4 * (32 * 32 * (32 + 64) + 32 * 64 * 9)
    assert standard.predicted_after_s == pytest.approx(flop / 1e11 + byte / 1e10 + 1e-5)


def test_an_expansion_and_its_depthwise_convolution_can_be_one() -> None:
    model = nn.Sequential(conv(16, 64, 1), nn.ReLU(), conv(64, 64, stride=2, groups=64))
    found = found_in(model, 1, 16, 32, 32, time_of=slow_if(is_depthwise, 100.0))
    standard = found["standard convolution instead of depthwise"]
    assert standard.operators == (0, 1, 2)
    flop = 2 * 16 * 16 * 16 * 64 * 9
    byte = 4 * (32 * 32 * 16 + 16 * 16 * 64 + 16 * 64 * 9)
    assert standard.predicted_after_s == pytest.approx(flop / 1e11 + byte / 1e10 + 1e-5)


def test_depthwise_convolutions_in_proportion_are_not() -> None:
    # As long as their FLOP say, which is next to nothing.
    found = found_in(
        separable(), 1, 32, 32, 32, time_of=lambda record: (record.work.flop or 0) / 1e11 + 1e-9
    )
    assert not any("depthwise" in rule for rule in found)


def test_a_depthwise_convolution_between_two_pointwise_ones_is_replaced_once() -> None:
    model = nn.Sequential(conv(16, 64, 1), conv(64, 64, groups=64), conv(64, 16, 1))
    found = found_in(model, 1, 16, 32, 32, time_of=slow_if(is_depthwise, 100.0))
    standard = found["standard convolution instead of depthwise"]
    assert len(standard.operators) == 2
    flop = 2 * 32 * 32 * 16 * 64 * 9
    byte = 4 * (32 * 32 * (16 + 64) + 16 * 64 * 9)
    assert standard.predicted_after_s == pytest.approx(flop / 1e11 + byte / 1e10 + 1e-5)


# Small operators


def many_sums(_: nn.Module, x: torch.Tensor) -> torch.Tensor:
    total = x
    for number in range(20):
        total = total + (x + number)
    return total


def test_many_tiny_operators_are_ruled_by_dispatch() -> None:
    tiny = Given(many_sums)
    profile = with_overheads(1e-6)
    found = found_in(tiny, 4, 4, time_of=lambda _: 1.5e-6, profile=profile)["dispatch overhead"]
    assert len(found.operators) == 40
    assert found.basis == "at most"
    assert found.predicted_before_s == pytest.approx(40 * 1.5e-6)
    assert "40 of 40 operators take 1.50 µs each" in found.evidence
    assert "dispatch overhead 1.0 µs (add)" in found.evidence


def test_operators_whose_work_takes_as_long_as_a_call_are_not() -> None:
    # Their bounds are above half of such a call, and far below what they take.
    model, profile = Given(many_sums), with_overheads(0.2e-6)
    rows = analysed(model, 128, 128, profile=profile).operators
    assert all(0.1e-6 < (row.eager_min_time_s or 0.0) < 1e-6 for row in rows)
    found = found_in(model, 128, 128, time_of=lambda _: 1.5e-6, profile=profile)
    assert "dispatch overhead" not in found


def with_overheads(add_s: float) -> Any:
    time = Duration(fast_s=add_s, median_s=add_s, spread=0.01, provenance=MEASURED)
    overhead = Overhead(name="dispatch of add", threads=1, time=time)
    return replace(full_profile(), overheads=(overhead,))


# Copies


def test_a_copy_of_what_stays_as_it_is_is_needless() -> None:
    model = Given(lambda _, x: torch.relu(x * 2).clone() + 1)
    found = found_in(model, 64, 64)["redundant copy"]
    assert found.operators == (2,)
    assert found.predicted_before_s == pytest.approx(1e-5 + 8 * 64 * 64 / 1e10)
    assert found.predicted_after_s == 0


def test_a_permuted_tensor_that_is_made_contiguous_is_rearranged() -> None:
    model = Given(lambda _, x: (x * 2).permute(0, 2, 1).contiguous() + 1)
    found = found_in(model, 8, 64, 32)
    assert found["layout copy"].basis == "at most"
    assert "redundant copy" not in found


def test_a_part_of_something_larger_is_copied_to_lie_on_its_own() -> None:
    model = Given(lambda _, x: (x * 2)[:, :16].contiguous() + 1)
    found = found_in(model, 4, 32, 64)["layout copy"]
    assert found.operators == (2,)
    assert "1 copy" in found.evidence and "permuted or sliced" in found.evidence


# Types


def test_casts_that_are_undone_are_ping_pong() -> None:
    model = Given(lambda _, x: (x * 2).bfloat16().relu().float() + 1)
    found = found_in(model, 64, 64)["round-trip cast"]
    assert "float32 → bfloat16" in found.evidence
    assert len(found.operators) == 2


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantisation_that_is_undone_is_ping_pong() -> None:
    def there_and_back(_: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return torch.quantize_per_tensor(x * 2, 0.1, 0, torch.qint8).dequantize() + 1

    found = found_in(Given(there_and_back), 64, 64)
    assert len(found["round-trip cast"].operators) == 2


# Branches


def test_branches_of_one_input_and_kernel_can_be_one_layer() -> None:
    model = Given(
        lambda own, x: torch.cat([own.a(y := x * 2), own.b(y), own.c(y)], 1),
        a=conv(32, 16, 1),
        b=conv(32, 32, 1),
        c=conv(32, 48, 1),
    )
    found = found_in(model, 1, 32, 16, 16)["fragmented branches"]
    assert len(found.operators) == 3
    # The input is read once instead of three times, and two calls are saved.
    assert found.saving_s == pytest.approx(2e-5 + 2 * 4 * 16 * 16 * 32 / 1e10)


def test_linear_layers_of_one_input_can_be_one_layer() -> None:
    model = Given(
        lambda own, x: own.q(y := x * 2) + own.k(y) + own.v(y),
        q=nn.Linear(64, 64),
        k=nn.Linear(64, 64),
        v=nn.Linear(64, 64),
    )
    found = found_in(model, 32, 64)["fragmented branches"]
    assert found.saving_s == pytest.approx(2e-5 + 2 * 4 * 32 * 64 / 1e10)
    assert "3 linear layers in 1 group" in found.evidence


def test_layers_that_read_what_the_model_is_given_can_be_one_layer() -> None:
    model = Given(lambda own, x: own.k(x) + own.v(x), k=nn.Linear(64, 64), v=nn.Linear(64, 64))
    assert "fragmented branches" in found_in(model, 32, 64)


# What the rules must not find


def slow_kernel(kernel: tuple[int, int], times: float = 10.0) -> dict[str, Any]:
    return {"time_of": slow_if(lambda record: kernel_of(record) == kernel, times)}


def convs(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


TINY = {"time_of": lambda _: 1.5e-6, "profile": dram_profile()}
IMAGE = (1, 32, 32, 32)
CAST = Given(
    lambda own, x: own.layer((x * 2).bfloat16()).float(), layer=nn.Linear(64, 64).bfloat16()
)
NOT_FOUND: dict[str, tuple[str, nn.Module, tuple[int, ...], dict[str, Any]]] = {
    **{
        f"{n} channels": ("channel padding", convs(conv(3, n), conv(n, n)), (1, 3, 96, 96), {})
        for n in (32, 48, 64)
    },
    "vectors that are not known": (
        *("channel padding", convs(conv(3, 24), conv(24, 24)), (1, 3, 64, 64)),
        {"profile": dram_profile()},
    ),
    # Small images become products, which have no blocks.
    "products": ("channel padding", convs(conv(32, 20, 1), conv(20, 32, 1)), (1, 32, 8, 8), {}),
    # Twice as long as its FLOP take in 3x3, but three of those do nearly four times the FLOP.
    "a narrow kernel": (
        *("unusual kernel", convs(conv(64, 64), conv(64, 64, (1, 7))), (1, 64, 32, 32)),
        slow_kernel((1, 7), 2.0),
    ),
    "taps apart": (
        *("unusual kernel", convs(conv(32, 32), conv(32, 32, 5, dilation=2)), IMAGE),
        slow_kernel((5, 5)),
    ),
    **{
        f"{n}x{n} as fast as any": (
            "unusual kernel",
            convs(conv(32, 32), conv(32, 32, n)),
            IMAGE,
            {},
        )
        for n in (5, 3, 1)
    },
    "patches": (
        *("unusual kernel", nn.Conv2d(3, 64, 16, stride=16), (1, 3, 64, 64)),
        slow_kernel((16, 16)),
    ),
    "norms that are trained": (
        *("foldable batch norm", convs(conv(8, 32), nn.BatchNorm2d(32)), (2, 8, 16, 16)),
        {"train": True},
    ),
    # 9 of 11 parts of the FLOP, and all but nothing of the time: no more than they ask for.
    "most of the FLOP": (
        "depthwise below the ridge",
        *(convs(conv(32, 32, groups=32), conv(32, 2, 1)), IMAGE),
        {"time_of": slow_if(is_depthwise)},
    ),
    "operators that compute": (
        *("dispatch overhead", Given(many_sums), (512, 512)),
        {"profile": with_overheads(1e-6)},
    ),
    "calls on a data sheet": ("dispatch overhead", Given(many_sums), (4, 4), TINY),
    "a copy that is changed": (
        *("redundant copy", Given(lambda _, x: torch.relu(x * 2).clone().add_(1)), (64, 64), {}),
    ),
    "an original that is changed": (
        *("redundant copy", Given(lambda _, x: (y := x * 2).clone() + y.add_(1)), (64, 64), {}),
    ),
    "no copy at all": (
        *("redundant copy", Given(lambda _, x: (x * 2).contiguous() + 1), (64, 64), {}),
    ),
    "permuted and read as it lies": (
        *("layout copy", Given(lambda _, x: (x * 2).permute(0, 2, 1) + 1), (8, 64, 32), {}),
    ),
    "a cast one way": (
        *("round-trip cast", Given(lambda _, x: (x * 2).bfloat16().relu() + 1), (64, 64), {}),
    ),
    "a product between casts": ("round-trip cast", CAST, (64, 64), {}),
    "products of inputs": (
        *("fragmented branches", Given(lambda _, x: (y := x * 2) @ x + y @ (x[:])), (64, 64), {}),
    ),
    "one layer behind the other": (
        *("fragmented branches", convs(conv(32, 32, 1), conv(32, 32, 1)), (1, 32, 16, 16), {}),
    ),
    "other kernels": (
        "fragmented branches",
        Given(lambda own, x: own.a(y := x * 2) + own.b(y), a=conv(32, 32, 1), b=conv(32, 32, 3)),
        *((1, 32, 16, 16), {}),
    ),
    "the same weights": (
        "fragmented branches",
        Given(lambda own, x: own.a(y := x * 2) + own.a(y), a=conv(32, 32, 1)),
        *((1, 32, 16, 16), {}),
    ),
}


@pytest.mark.parametrize("name", NOT_FOUND)
def test_what_is_no_finding(name: str) -> None:
    rule, model, shape, options = NOT_FOUND[name]
    assert rule not in found_in(model, *shape, **options)


# All of them


def test_a_plain_model_has_no_findings() -> None:
    model = nn.Sequential(conv(64, 64), nn.ReLU(), conv(64, 64), nn.Flatten(), nn.Linear(4096, 64))
    plain: dict[str, Any] = {
        "time_of": lambda record: 1e-5 + record.work.traffic_bytes / 1e11,
        # Its activation takes as long as a call.
        "profile": with_overheads(1e-5),
    }
    assert found_in(model, 1, 64, 8, 8, **plain) == {}


def test_what_saves_less_than_a_hundredth_is_not_said() -> None:
    model = nn.Sequential(conv(32, 32), nn.BatchNorm2d(32))
    is_long = slow_if(lambda record: kernel_of(record) == (3, 3), 1e4)
    assert list(found_in(model, 1, 32, 32, 32, time_of=is_long)) == ["low efficiency"]


def test_a_measured_kernel_counts_as_it_was_measured() -> None:
    clock = Clock()
    model = nn.Sequential(conv(32, 32), conv(32, 32, 11))
    analysis = analysed(model, 1, 32, 32, 32, clock=clock)
    rows = [
        replace(row, measured_s=10 * (row.predicted_s or 0.0), measured_iqr_s=1e-6)
        for row in analysis.operators
    ]
    assert "unusual kernel" not in {each.rule for each in findings_of(analysis, clock)}
    measured = replace(analysis, operators=(rows[0], rows[1]))
    (found,) = [each for each in findings_of(measured, clock) if each.rule == "unusual kernel"]
    assert found.predicted_before_s == rows[1].measured_s


# Pooling


def pooled() -> nn.Module:
    return nn.Sequential(conv(32, 32), nn.MaxPool2d(2))


def is_pooling(record: OperatorRecord) -> bool:
    return record.type == "pooling"


def test_pooling_far_above_its_bound_is_named() -> None:
    def by_layout(record: OperatorRecord) -> float:
        is_slow = is_pooling(record) and record.inputs[0].layout == "contiguous"
        return by_flop(record) * (10.0 if is_slow else 1.0)

    found = found_in(pooled(), 1, 32, 64, 64, time_of=by_layout)["pooling in contiguous layout"]
    assert (found.operators, found.basis) == ((1,), "prediction")
    assert found.predicted_after_s == pytest.approx((found.predicted_before_s or 0) / 10)
    # Where the other layout is as slow as far as is learned, only the bound is sure.
    slow = found_in(pooled(), 1, 32, 64, 64, time_of=slow_if(is_pooling))
    assert slow["pooling in contiguous layout"].basis == "at most"


def test_pooling_near_its_bound_and_with_channels_last_is_not() -> None:
    rule = "pooling in contiguous layout"
    near = found_in(pooled(), 1, 32, 64, 64, time_of=lambda r: r.work.traffic_bytes / 1e11)
    assert rule not in near
    last = found_in(pooled(), 1, 32, 64, 64, time_of=slow_if(is_pooling), channels_last=True)
    assert rule not in last


# Low efficiency


def times_the_minimum(**factors: float) -> Callable[[OperatorRecord], float]:
    """Predict each type at a multiple of the minimum time of `full_profile`, others at twice."""

    def time_of(record: OperatorRecord) -> float:
        return factors.get(record.type, 2.0) * (MINIMUM_S.get(record.type) or 1e-9)

    return time_of


MINIMUM_S: dict[str, float] = {}


def efficiency_model(monkeypatch: pytest.MonkeyPatch) -> tuple[nn.Module, tuple[int, ...]]:
    """A convolution and a softmax, whose minimum times are known to `times_the_minimum`."""
    model, shape = nn.Sequential(conv(32, 32), nn.Softmax(1)), (1, 32, 64, 64)
    for row in analysed(model, *shape).operators:
        monkeypatch.setitem(MINIMUM_S, row.type, row.eager_min_time_s)
    return model, shape


def test_operators_far_from_their_ceiling_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model, shape = efficiency_model(monkeypatch)
    found = found_in(model, *shape, time_of=times_the_minimum(softmax=25.0))["low efficiency"]
    assert (found.operators, found.basis) == ((1,), "at most")
    softmax_s, conv_s = MINIMUM_S["softmax"], MINIMUM_S["convolution"]
    assert found.predicted_before_s == pytest.approx(25 * softmax_s)
    assert found.predicted_after_s == pytest.approx(softmax_s)
    share = 25 * softmax_s / (25 * softmax_s + 2 * conv_s)
    assert f"predicted {100 * share:.1f} % of the time at 4.0 % of the ceiling" in found.evidence


def test_operators_as_far_from_it_as_the_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    model, shape = efficiency_model(monkeypatch)
    # Twice and three times their minimum: more than half of what the pass reaches.
    assert "low efficiency" not in found_in(model, *shape, time_of=times_the_minimum(softmax=3.0))
    # A tenth is far, also if all of them are.
    found = found_in(model, *shape, time_of=times_the_minimum(softmax=11.0, convolution=11.0))
    assert "low efficiency" in found


def test_measured_operators_are_judged_without_a_calibration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, shape = efficiency_model(monkeypatch)
    analysis = analysed(model, *shape)
    rows = [
        replace(row, measured_s=factor * (row.eager_min_time_s or 0.0))
        for row, factor in zip(analysis.operators, (2.0, 25.0), strict=True)
    ]
    (found,) = findings_of(replace(analysis, operators=tuple(rows)))
    assert (found.rule, found.operators) == ("low efficiency", (1,))
    assert found.basis == "measured at most"
    assert found.predicted_before_s == rows[1].measured_s
    assert "softmax operator: measured" in found.evidence


def test_what_another_finding_explains_is_not_said_twice() -> None:
    found = found_in(pooled(), 1, 32, 64, 64, time_of=slow_if(is_pooling))
    assert "pooling in contiguous layout" in found and "low efficiency" not in found
