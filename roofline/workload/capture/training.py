"""One training step: default loss, optimizer with its state, gradient scaling, checkpointing."""

from __future__ import annotations

import contextlib
import fnmatch
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from roofline.errors import InputError, ModelError, argument, did_you_mean, error_text
from roofline.workload.capture.model_errors import FAKE_TENSOR_ERRORS
from roofline.workload.capture.operands import tensors_in
from roofline.workload.capture.real_tensors import ReplacementTensors
from roofline.workload.inputs import InputRequest
from roofline.workload.operators import Phase
from roofline.workload.tensors import Role

BLOCKS = "blocks"
"""Selects the composite members of module lists and sequences."""


def select_modules(model: torch.nn.Module, what: str) -> tuple[str, ...]:
    """Return the paths of the outermost selected modules.

    ``what`` is `BLOCKS`, or a path with the wildcards ``*`` and ``?``.
    """
    outermost: list[str] = []
    for path in _blocks(model) if what == BLOCKS else _matching(model, what):
        if not any(path.startswith(f"{other}.") for other in outermost):
            outermost.append(path)
    if outermost:
        return tuple(outermost)
    if what == BLOCKS:
        raise InputError(
            f"{argument('checkpoint', BLOCKS)}: {type(model).__name__} has no lists of composite"
            " modules; name modules, such as 'layer*.*'"
        )
    names = [path for path, _ in model.named_modules() if path]
    raise InputError(f"{argument('checkpoint', what)}: no such module{did_you_mean(what, names)}")


def _blocks(model: torch.nn.Module) -> Iterator[str]:
    lists = (torch.nn.ModuleList, torch.nn.Sequential)
    for path, module in model.named_modules():
        if isinstance(module, lists) and len(module) > 1:
            for name, child in module.named_children():
                if any(True for _ in child.children()) and not isinstance(child, lists):
                    yield f"{path}.{name}".lstrip(".")


def _matching(model: torch.nn.Module, pattern: str) -> Iterator[str]:
    """Yield paths that match step by step: ``*`` does not cross a dot."""
    wanted = pattern.split(".")
    for path, _ in model.named_modules():
        steps = path.split(".")
        if path and len(steps) == len(wanted) and all(map(fnmatch.fnmatchcase, steps, wanted)):
            yield path


@contextlib.contextmanager
def checkpointed(model: torch.nn.Module, paths: tuple[str, ...]) -> Iterator[None]:
    """Apply activation checkpointing to the modules at these paths."""
    with contextlib.ExitStack() as after:
        for path in paths:
            module = model.get_submodule(path)
            own: Any = module.__dict__
            before = own.get("forward")
            own["forward"] = _checkpointed_forward(module, before)
            if before is None:
                after.callback(own.pop, "forward")
            else:
                after.callback(own.__setitem__, "forward", before)
        yield


def _checkpointed_forward(module: torch.nn.Module, before: Any) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        # Looked up now: capture replaces the method of the class.
        plain: Callable[..., Any] = before or type(module).forward.__get__(module)
        if not torch.is_grad_enabled():
            return plain(*args, **kwargs)
        # The values of dropout masks do not matter, only that they are drawn.
        return checkpoint(plain, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)

    return forward


# -- losses and optimizers -------------------------------------------------------------------------

OptimizerFactory = Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]
Loss = Callable[[Any], torch.Tensor]
Target = Callable[[tuple[int, ...], torch.dtype], torch.Tensor]
"""Creates the target of a loss, of this shape and type."""

_FACTORIES: Mapping[str, OptimizerFactory] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-3),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


def optimizer_factory(optimizer: str | OptimizerFactory) -> OptimizerFactory:
    """Return the factory of a named optimizer with torch's defaults, or `optimizer` itself."""
    if callable(optimizer):
        return optimizer
    if optimizer not in _FACTORIES:
        raise InputError(
            f"{argument('optimizer', optimizer)}: unknown; use one of {', '.join(_FACTORIES)}, or"
            " none; in Python also a function of the parameters"
        )
    return _FACTORIES[optimizer]


def _with_state(
    make: OptimizerFactory, parameters: Sequence[torch.nn.Parameter]
) -> torch.optim.Optimizer:
    """Return the optimizer after a first step, which creates its state."""
    optimizer = make(parameters)
    if not isinstance(optimizer, torch.optim.Optimizer):  # pyright: ignore[reportUnnecessaryIsInstance]  of the user's
        raise TypeError(f"expected a torch.optim.Optimizer, got {type(optimizer).__name__}")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise TypeError("LBFGS is not supported: it runs the model several times per step")
    for each in parameters:
        each.grad = torch.zeros_like(each)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return optimizer


def make_default_loss(output: Any, target: Target) -> tuple[torch.Tensor, str]:
    """Return the default loss of an output, and its description.

    It is the model's own loss if it returns one. Else it sums over outputs with a gradient: cross
    entropy for two-dimensional ones (samples x classes), mean squared error for others.
    """
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(own, torch.Tensor) and own.requires_grad:
        return own.sum(), "the model's own"
    tensors = list(tensors_in(output))
    outputs = [each for each in tensors if each.requires_grad]
    if not outputs and not tensors:
        raise ModelError(
            f"nothing to train: the model returns {type(output).__name__} without a tensor; pass"
            " loss="
        )
    if not outputs:
        raise ModelError(
            "nothing to train: no output requires a gradient; set requires_grad on parameters, or"
            " run inference"
        )
    losses: list[torch.Tensor] = []
    kinds: dict[str, None] = {}
    for each in outputs:
        shape = tuple(each.shape)
        if len(shape) == 2 and shape[1] > 1:
            loss = torch.nn.functional.cross_entropy(each, target(shape[:1], torch.int64))
            kinds["cross entropy"] = None
        else:
            values = torch.view_as_real(each) if each.is_complex() else each
            loss = torch.nn.functional.mse_loss(values, target(tuple(values.shape), values.dtype))
            kinds["mean squared error"] = None
        losses.append(loss)
    description = f"{' and '.join(kinds)} of the output{'s' * (len(outputs) > 1)}"
    return sum(losses[1:], start=losses[0]), description


@contextlib.contextmanager
def _attribute_errors_to(what: str) -> Iterator[None]:
    """Report errors inside as errors of the user's optimizer or loss.

    Errors of fake tensors pass through: the step is retried on real ones.
    """
    try:
        yield
    except (KeyboardInterrupt, ModelError, *FAKE_TENSOR_ERRORS):
        raise
    except BaseException as error:
        text = error_text(error) or type(error).__name__
        raise ModelError(f"{what}: {text.partition(chr(10))[0]}; use another {what}") from error


# torch's scaler skips a step with non-finite gradients; an analyzed step has finite ones.

_INITIAL_SCALE = 65536.0
_GROWTH, _BACKOFF, _INTERVAL = 2.0, 0.5, 2000

_unscale: Any = getattr(torch, "_amp_foreach_non_finite_check_and_unscale_")  # noqa: B009  not exported
_update: Any = getattr(torch, "_amp_update_scale_")  # noqa: B009


class _GradientScale:
    """Loss scale, and the count of steps without overflow."""

    def __init__(self, tensors: ReplacementTensors) -> None:
        number = InputRequest(shape=())
        self.factor = tensors.make_input(number, torch.float32).fill_(_INITIAL_SCALE)
        self._found_inf: torch.Tensor | None = None
        self._growth = tensors.make_input(number, torch.int32)

    def unscale(self, gradients: Sequence[torch.Tensor]) -> None:
        """Unscale all gradients in place, and check that they are finite."""
        inverse = self.factor.double().reciprocal().float()
        found_inf = torch.full((), 0.0, dtype=torch.float32, device=self.factor.device)
        # torch's scaler copies both for each device with gradients, even their own.
        self._found_inf = found_inf.to(device=found_inf.device, copy=True)
        inverse = inverse.to(device=inverse.device, copy=True)
        by_type: dict[torch.dtype, list[torch.Tensor]] = {}
        for each in gradients:
            by_type.setdefault(each.dtype, []).append(each)
        for same in by_type.values():
            _unscale(same, self._found_inf, inverse)

    def update(self) -> None:
        """Double the scale after many finite steps, halve it after an overflow."""
        _update(self.factor, self._growth, self._found_inf, _GROWTH, _BACKOFF, _INTERVAL)
        # Created again in the next step.
        self._found_inf = None


# -- steps -----------------------------------------------------------------------------------------


class StepListener:
    """Receiver of the progress of a step; this one ignores it."""

    def paused(self) -> contextlib.AbstractContextManager[None]:
        """Exclude the code inside from the step."""
        return contextlib.nullcontext()

    def part(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Assign operators outside of modules to a part of that `name`."""
        return contextlib.nullcontext()

    def enter(self, phase: Phase) -> None:
        """Assign the following operators to `phase`."""

    def own(self, tensors: Any, path: str) -> None:
        """Assign optimizer operators on `tensors` to the module at `path`."""

    def note_parameter_owners(self, model: torch.nn.Module) -> None:
        """Record the module of each parameter of `model`."""

    def owner_of(self, parameter: torch.Tensor) -> str:
        """Return the path of the module of a parameter."""
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """Loss and optimizer of a training step.

    ``optimizer`` creates an optimizer of the trained parameters; None: no update. ``loss`` computes
    the loss of an output; None: `make_default_loss`. ``scales_loss``: gradient scaling.
    """

    optimizer: OptimizerFactory | None = None
    loss: Loss | None = None
    scales_loss: bool = False

    def new_step(self) -> TrainingStep:
        """Return a new training step."""
        return TrainingStep(self)


class TrainingStep:
    """One training step; ``state_bytes`` is the optimizer state, ``target_bytes`` the targets."""

    def __init__(self, training: TrainingConfig) -> None:
        self.loss_description = ""
        self.state_bytes = 0
        self.target_bytes = 0
        self._config = training
        self._targets: list[torch.Tensor] = []
        self._unused: list[Any] = []
        self._scale: _GradientScale | None = None

    def prepare(
        self, model: torch.nn.Module, tensors: ReplacementTensors, listener: StepListener
    ) -> torch.optim.Optimizer | None:
        """Return the optimizer with its state after a first step."""
        with listener.paused():
            if self._config.scales_loss:
                self._scale = _GradientScale(tensors)
            parameters = [each for each in model.parameters() if each.requires_grad]
            if self._config.optimizer is None or not parameters:
                return None
            with _attribute_errors_to("optimizer"):
                optimizer = _with_state(self._config.optimizer, parameters)
        for each in tensors_in([dict(state) for state in optimizer.state.values()]):
            tensors.roles[each.untyped_storage()._cdata] = Role.OPTIMIZER_STATE
        return optimizer

    def loss(
        self, output: Any, tensors: ReplacementTensors, listener: StepListener
    ) -> torch.Tensor:
        """Return the loss of an output."""
        positions = itertools.count()

        def target(shape: tuple[int, ...], kind: torch.dtype) -> torch.Tensor:
            # The same targets in every step: a data loader makes them, not the model.
            number = next(positions)
            if number == len(self._targets):
                with listener.paused():
                    self._targets.append(tensors.make_input(InputRequest(shape=shape), kind))
                self.target_bytes += self._targets[-1].nbytes
            return self._targets[number]

        if self._config.loss is not None:
            self.loss_description = "the given one"
            with _attribute_errors_to("loss"):
                loss: Any = self._config.loss(output)
            is_tensor = isinstance(loss, torch.Tensor)
            if not is_tensor or loss.numel() != 1 or not loss.requires_grad:
                got = f"a tensor of shape {tuple(loss.shape)}" if is_tensor else repr(loss)
                raise ModelError(f"loss: must return one number that requires grad, got {got}")
        else:
            loss, self.loss_description = make_default_loss(output, target)
        if self._scale is None:
            return loss
        self.loss_description += ", scaled"
        return loss * self._scale.factor

    def end(
        self,
        leaves: Iterable[torch.Tensor],
        loss: torch.Tensor,
        optimizer: torch.optim.Optimizer | None,
        listener: StepListener,
    ) -> None:
        """Run the backward pass and the update, then drop the gradients of `leaves`."""
        listener.enter("backward")
        loss.backward()
        if optimizer is not None:
            self._update(optimizer, listener)
        for each in leaves:
            each.grad = None

    def _update(self, optimizer: torch.optim.Optimizer, listener: StepListener) -> None:
        listener.enter("optimizer")
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        for parameter in parameters:
            if parameter.grad is None:
                # Real optimizers have no state for it. Kept alive here, so that no other tensor
                # gets its address, which is known as optimizer state.
                self._unused.append(optimizer.state.pop(parameter, None))
            kept = dict(optimizer.state.get(parameter, {}))
            listener.own([parameter, parameter.grad, kept], listener.owner_of(parameter))
        states = tensors_in([dict(state) for state in optimizer.state.values()])
        self.state_bytes = sum(
            {each.untyped_storage()._cdata: each.nbytes for each in states}.values()
        )
        if self._scale is not None:
            self._scale.unscale([each.grad for each in parameters if each.grad is not None])
        with _attribute_errors_to("optimizer"):
            optimizer.step()
        if self._scale is not None:
            self._scale.update()
