"""Counters asked for real: fvcore and torch's own; the others through stand-ins."""

from __future__ import annotations

import importlib.machinery
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
import torch

import roofline
from roofline.counters import peers as known
from roofline.counters.peers import count_deepspeed, count_torchlens, isolated
from roofline.counters.result import CountedBy, Crosscheck
from roofline.counters.subject import Positional, Subject, fake_subject, real_subject
from roofline.errors import InputError
from roofline.workload.inputs import Inputs

HERE = known.PEERS[:2]


@pytest.fixture(autouse=True)
def only_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else is installed must not decide how long these tests take."""
    monkeypatch.setattr(known, "PEERS", HERE)


def of(result: Crosscheck, name: str) -> CountedBy:
    (found,) = [each for each in result.counters if name in each.counter]
    assert found.outcome == "counted", found.note
    ours = result.ours(found.measure)
    assert ours + sum(each.amount for each in found.differences) == found.in_our_unit
    return found


def amounts(counted: CountedBy) -> dict[str, int | float]:
    return {each.kind: each.amount for each in counted.differences}


def test_why_resnet50_has_4_09_or_4_11_billion() -> None:
    result = roofline.crosscheck("resnet50")
    assert result.macs == 4_089_184_256
    torch_counted, fvcore = of(result, "FlopCounterMode"), of(result, "fvcore")
    assert torch_counted.number == 2 * 4_089_184_256
    assert torch_counted.differences == ()
    # 53 batch norms of 11,113,984 elements, two each; the last pooling reads 2048 x 7 x 7.
    assert fvcore.number == 4_111_512_576
    assert amounts(fvcore) == {
        "batch norm": 2 * 11_113_984,
        "adaptive average pooling": 2048 * 7 * 7,
    }
    assert fvcore.not_explained == 0


def test_mobilenet_v2() -> None:
    result = roofline.crosscheck("mobilenet_v2")
    fvcore = of(result, "fvcore")
    assert (result.macs, fvcore.number) == (300_774_272, 314_193_216)
    assert fvcore.not_explained == 0


def test_both_miss_attention_on_a_cpu() -> None:
    transformers = pytest.importorskip("transformers")
    from roofline.workload.models.libraries.availability import with_torchvision

    def grouped() -> Any:
        config = transformers.LlamaConfig(
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=50,
        )
        return transformers.LlamaForCausalLM(config)

    result = roofline.crosscheck(with_torchvision(grouped), seq=32)
    # Two products of 32 x 32 x 16, in each of 4 heads and 2 layers.
    missed = -2 * 32 * 32 * 16 * 4 * 2
    for name in ("FlopCounterMode", "fvcore"):
        counted = of(result, name)
        assert list(amounts(counted).values()) == [missed]
        assert counted.differences[0].reason.startswith("misses attention")


def test_recurrent_layers_are_missed() -> None:
    result = roofline.crosscheck(torch.nn.LSTM(16, 8, 2, batch_first=True), "1x5x16")
    for name in ("FlopCounterMode", "fvcore"):
        assert of(result, name).number == 0
        assert of(result, name).not_explained == 0


@pytest.mark.parametrize(
    ("layer", "shape", "macs"),
    [
        (torch.nn.ConvTranspose2d(6, 4, 4, stride=2, padding=1), "1x6x5x5", 6 * 25 * 4 * 16),
        (torch.nn.Conv2d(6, 6, 3, padding=1, groups=6), "2x6x5x5", 2 * 6 * 25 * 9),
        (torch.nn.Linear(5, 7), "3x4x5", 12 * 35),
    ],
    ids=["transposed", "depthwise", "linear"],
)
def test_layers_on_which_all_agree(layer: torch.nn.Module, shape: str, macs: int) -> None:
    result = roofline.crosscheck(layer, shape)
    assert result.macs == macs
    assert [each.differences for each in result.counters] == [(), ()]


@pytest.mark.parametrize(
    ("layer", "kind", "expected"),
    [
        (torch.nn.BatchNorm2d(3, affine=False), "batch norm", 150),
        (torch.nn.InstanceNorm2d(3, affine=True), "batch norm", 5 * 150),
        (torch.nn.LayerNorm(5), "layer norm", 5 * 150),
        (torch.nn.GroupNorm(1, 3, affine=False), "group norm", 4 * 150),
        (torch.nn.Upsample(scale_factor=2), "nearest resampling", 600),
        (torch.nn.Upsample(scale_factor=2, mode="bilinear"), "bilinear resampling", 2400),
        (torch.nn.AdaptiveAvgPool2d(2), "adaptive average pooling", 150),
    ],
)
def test_what_fvcore_counts_beside_products(
    layer: torch.nn.Module, kind: str, expected: int
) -> None:
    fvcore = of(roofline.crosscheck(layer, "2x3x5x5"), "fvcore")
    assert amounts(fvcore) == {kind: expected}
    assert fvcore.not_explained == 0


def test_attention_of_three_dimensions() -> None:
    def attend(q: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, q, q)

    # Two products up to torch 2.13; since then a kernel that neither counter has a rule for.
    result = roofline.crosscheck(attend, "4x6x8")
    assert result.macs == 2 * 4 * 6 * 6 * 8
    (missed,) = of(result, "fvcore").differences
    assert missed.amount == -result.macs
    assert "scaled_dot_product" in missed.reason
    assert of(result, "FlopCounterMode").not_explained == 0


def test_the_fast_path_of_transformers() -> None:
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    result = roofline.crosscheck(layer, "2x4x16")
    for name in ("FlopCounterMode", "fvcore"):
        assert of(result, name).not_explained == 0


def test_a_step_of_training_of_a_depthwise_convolution() -> None:
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 1, bias=False),
        torch.nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False),
    )
    result = roofline.crosscheck(layers, "2x3x5x5", train=True)
    first, depthwise = 2 * 25 * 3 * 8, 2 * 25 * 8 * 9
    # The first layer's input needs no gradient.
    assert result.macs == 2 * first + 3 * depthwise
    assert amounts(of(result, "FlopCounterMode")) == {"backward of convolutions": 7 * depthwise}
    assert amounts(of(result, "fvcore")) == {"backward pass": -(first + 2 * depthwise)}
    assert all(each.not_explained == 0 for each in result.counters)
    assert all(each.grad is None for each in layers.parameters())


def test_a_loss_of_ones_own_and_batch_norm_in_training() -> None:
    norm = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    result = roofline.crosscheck(norm, "5x4", train=True, loss=lambda y: y.square().sum())
    # Five an element in training, by its rule.
    assert amounts(of(result, "fvcore")) == {"backward pass": -5 * 12, "batch norm": 5 * 15}
    assert of(result, "FlopCounterMode").differences == ()
    assert norm[1].num_batches_tracked == 0


class Keyword(torch.nn.Module):
    """Takes keywords and structures, and returns an object."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, images: list[torch.Tensor], *, scale: torch.Tensor, flag: bool) -> Any:
        assert flag
        return types.SimpleNamespace(out={"a": self.layer(images[1]) * scale, "b": None})


def test_keywords_structures_and_types() -> None:
    given = roofline.Inputs(["3x4", "5x4"], scale="1", flag=True)
    model = Keyword()
    result = roofline.crosscheck(model, given, dtype="float64")
    assert result.macs == 5 * 4 * 2
    assert [each.differences for each in result.counters] == [(), ()]
    assert model.layer.weight.dtype == torch.float32
    assert model.training


class Loud(torch.nn.Module):
    """Prints, warns, and changes what it can reach."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        print("loud")
        warnings.warn("loud", stacklevel=1)
        return self.layer(x)


def test_a_module_is_left_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    model = Loud()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        roofline.crosscheck(model, "1x4")
    # Ours is the one pass whose output is not held back.
    assert capsys.readouterr().out.count("loud") == 1
    assert model.calls == 0
    assert not model.layer._forward_hooks and not model.layer._forward_pre_hooks


def asked(
    monkeypatch: pytest.MonkeyPatch, count: Callable[[Subject], Any], package: str = "torch"
) -> CountedBy:
    """What a crosscheck says of a counter that does what `count` does."""
    peer = known.PeerCounter(
        name="stand-in",
        package=package,
        install="pip install stand-in",
        conventions=HERE[0].conventions,
        count=count,
    )
    monkeypatch.setattr(known, "PEERS", (peer,))
    (found,) = roofline.crosscheck(torch.nn.Linear(4, 2), "1x4").counters
    return found


def test_a_counter_that_fails_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    relu, hooks = torch.relu, dict(torch.nn.modules.module._global_forward_hooks)

    def fails(subject: Subject) -> Any:
        print("noise")
        print("noise", file=sys.stderr)
        warnings.warn("noise", stacklevel=1)
        torch.relu = lambda x: x
        torch.nn.functional.linear = lambda *_: None
        torch.Tensor.brand_new = lambda _: None  # pyright: ignore[reportAttributeAccessIssue]
        torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
        raise SystemExit("no\nway")

    found = asked(monkeypatch, fails)
    assert found.outcome == "failed"
    assert found.note == "failed: SystemExit: no way"
    assert "noise" not in "".join(capfd.readouterr())
    assert torch.relu is relu
    assert torch.nn.functional.linear(torch.ones(1, 2), torch.ones(3, 2)).shape == (1, 3)
    assert not hasattr(torch.Tensor, "brand_new")
    assert dict(torch.nn.modules.module._global_forward_hooks) == hooks


def test_a_counter_that_is_interrupted_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(subject: Subject) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asked(monkeypatch, interrupted)


def test_a_counter_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked(monkeypatch, lambda _: (), package="no_such_counter")
    assert (found.outcome, found.version) == ("not installed", "")
    assert found.note == "not installed (pip install stand-in)"


def test_weights_that_do_not_fit_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roofline.workload.capture.passes._FREE_MEMORY_SHARE", 0)
    result = roofline.crosscheck("resnet18")
    without, with_weights = result.counters
    assert without.in_our_unit == result.macs
    assert with_weights.outcome == "not run"
    assert with_weights.note.startswith("not run: requires weights, and 46.8 MB exceed")


def test_numbers_of_nonsense_are_refused() -> None:
    for options in ({"batch": 0}, {"seq": True}, {"dtype": "int8"}):
        with pytest.raises(InputError):
            roofline.crosscheck("resnet18", **options)  # pyright: ignore[reportArgumentType]


def test_real_and_fake_subjects_are_the_same_model() -> None:
    given = Inputs("2x4")
    with torch.device("meta"):
        module = torch.nn.Linear(4, 3)
    tied = torch.nn.Sequential(module, module)
    with pytest.raises(ValueError, match="without weights"):
        real_subject(tied, given, None, None)
    fake = fake_subject(module, given, torch.bfloat16)
    with fake.mode:
        (output,) = fake.model(*fake.inputs)
    assert (tuple(output.shape), output.dtype, output.device.type) == (
        (2, 3),
        torch.bfloat16,
        "cpu",
    )
    real = real_subject(module, given, torch.bfloat16, lambda: torch.nn.Linear(4, 3))
    assert real.model(*real.inputs)[0].dtype == torch.bfloat16
    assert not any(module.training for module in real.model.children())


def test_isolation_lets_errors_through_and_keeps_the_state_of_random_numbers() -> None:
    before = torch.random.get_rng_state()
    with pytest.raises(ValueError, match="through"), isolated():
        torch.randn(3)
        assert not torch.is_grad_enabled()
        raise ValueError("through")
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.is_grad_enabled()


# -- adapters of counters that need not be installed -----------------------------------------------


def installed(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> types.ModuleType:
    """A stand-in for the module `name` of a library."""
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        path = ".".join(parts[:depth])
        if path not in sys.modules:
            made = types.ModuleType(path)
            made.__spec__ = importlib.machinery.ModuleSpec(path, None)
            monkeypatch.setitem(sys.modules, path, made)
    vars(sys.modules[name]).update(content)
    return sys.modules[name]


class Profiler:
    """Does to a model what DeepSpeed's profiler does: hooks that push and pop lists."""

    flops: ClassVar[list[list[tuple[Any, int]]]] = []
    macs: ClassVar[list[list[tuple[Any, int]]]] = []

    def __init__(self, model: torch.nn.Module) -> None:
        self.model, self.total, self.hooks = model, {"flops": 0, "macs": 0}, list[Any]()

    def start_profile(self) -> None:
        def enter(*_: Any) -> None:
            self.flops.append([])
            self.macs.append([])

        def leave(*_: Any) -> None:
            self.total["flops"] += sum(count for _, count in self.flops.pop())
            self.total["macs"] += sum(count for _, count in self.macs.pop())

        for module in self.model.modules():
            if isinstance(module, torch.nn.LSTM):
                module.__flops__ = 1000
            else:
                self.hooks.append(module.register_forward_pre_hook(enter))
                self.hooks.append(module.register_forward_hook(leave))

    def end_profile(self) -> None:
        for hook in self.hooks:
            hook.remove()

    def get_total_macs(self) -> int:
        return self.total["macs"]

    def get_total_flops(self) -> int:
        return self.total["flops"] + 1000


class Calls(torch.nn.Module):
    """A module in which functions are called that the stand-in counts."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = torch.nn.LSTM(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        name = torch.nn.functional.conv1d.__str__
        Profiler.macs[-1].append((name, 100))
        Profiler.flops[-1].append((name, 207))
        Profiler.flops[-1].append((torch.relu.__str__, 9))
        Profiler.flops[-1].append((torch.einsum.__str__, 40))
        return self.recurrent(x)[0]


def test_deepspeeds_breakdown_is_read_before_it_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(
        monkeypatch,
        "deepspeed.profiling.flops_profiler.profiler",
        FlopsProfiler=Profiler,
        MODULE_HOOK_MAPPING={torch.nn.LSTM: None},
        module_flop_count=Profiler.flops,
        module_mac_count=Profiler.macs,
    )
    given = Inputs("2x1x4")
    subject = Subject(model=Positional(Calls(), given), inputs=(torch.ones(2, 1, 4),))
    macs, flops = count_deepspeed(subject)
    assert (macs.number, dict(macs.product), dict(macs.left_out)) == (
        *(100, {"conv1d": 100}),
        {"einsum": 20},
    )
    assert flops.number == 1256
    assert dict(flops.product) == {"conv1d": 200, "einsum": 40}
    assert dict(flops.rest) == {"relu": 9, "addend": 7, "recurrent layer": 1000}
    assert sum(flops.product.values()) + sum(flops.rest.values()) == flops.number
    assert all(not module._forward_hooks for module in subject.model.modules())


@pytest.fixture
def torchlens(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A stand-in for torchlens, and a list of what was done to it."""
    done: list[str] = []

    def row(name: str, flops: int | None, macs: int | None, coverage: str = "known") -> Any:
        return types.SimpleNamespace(
            func_name=name, flops_fma2=flops, fma_macs=macs, coverage_class=coverage
        )

    rows = [
        *(row("conv2d", 210, 100), row("conv2d", 20, 10), row("relu", 7, 0)),
        *(row("lstm", None, None, "unknown"), row("None", None, None, "not_applicable")),
    ]
    trace = types.SimpleNamespace(total_macs_forward=110, total_flops_forward=237)
    installed(monkeypatch, "torchlens", trace=lambda model, inputs: trace)
    installed(
        monkeypatch,
        "torchlens.report",
        compute_aggregation=lambda trace: types.SimpleNamespace(rows=rows),
    )
    installed(
        monkeypatch,
        "torchlens.backends.torch.wrappers",
        unwrap_torch=lambda: done.append("unwrapped"),
    )
    yield done


def test_torchlens_rows_are_both_numbers(torchlens: list[str]) -> None:
    model = Positional(torch.nn.Identity(), Inputs("1"))
    macs, flops = count_torchlens(Subject(model=model, inputs=(torch.ones(1),)))
    assert (macs.number, dict(macs.product)) == (110, {"conv2d": 110})
    assert (flops.number, dict(flops.product)) == (237, {"conv2d": 220})
    assert dict(flops.rest) == {"conv2d": 10, "relu": 7}
    assert dict(flops.no_rule_for) == {"lstm": 1}
    assert torchlens == ["unwrapped"]
