"""The common base of tasks around a PyTorch module: the tensors that are trained, and members around them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import Any

import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedlearn.es.layout import Float32Array
from fedlearn.es.noise import TensorNoise
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.signatures import check_takes, named_values
from fedlearn.tasks.task import Batch, LossGradients, Setting, Task, flat_weights
from fedlearn.tasks.torch.backward import Backward
from fedlearn.tasks.torch.devices import use_device
from fedlearn.tasks.torch.gradients import Batching, loss_gradients
from fedlearn.tasks.torch.hidden import hidden_matrices
from fedlearn.tasks.torch.members.execution_plans import ExecutionPlans
from fedlearn.tasks.torch.members.kept import keepers
from fedlearn.tasks.torch.members.members import TorchMembers
from fedlearn.tasks.torch.members.noise import as_tensors as as_noise
from fedlearn.tasks.torch.members.refusals import refuse_lazy, refuse_module
from fedlearn.tasks.torch.members.sequential import load_flat
from fedlearn.tasks.torch.training_mode import buffers_taken_back
from fedlearn.tasks.torch.trees import Tree, as_tensors

Model = nn.Module | Callable[[], nn.Module]
"""A module, or a function that makes one; called when first needed, after `torch.manual_seed` of a run's seed."""
Train = Callable[[str], bool] | Sequence[str] | None
"""The parameters to train, by a predicate on names or parts of names; None trains all with `requires_grad`."""


class ModuleTask(Task):
    """A task whose tensors are parameters of a module."""

    def __init__(
        self,
        model: Model,
        *,
        train: Train = None,
        scales: Mapping[str, float] | None = None,
        settings: Mapping[str, Setting] | None = None,
        hidden: Mapping[str, int] | None = None,
    ) -> None:
        """`hidden` is as `Task.hidden`; None means what the module's layers tell."""
        if not isinstance(model, nn.Module):
            check_takes("model", model)
        self.scales, self.settings = named_values("scales", scales), named_values("settings", settings)
        self._hidden = hidden
        self._model, self._train, self._seed = model, train, 0
        self.device, self._threads = torch.device("cpu"), 0
        self._plans = ExecutionPlans(self._frozen_tensors, lambda: keepers(self.model), self._elsewhere)

    def use(self, device: str = "cpu", *, threads: int = 0) -> None:
        """Sets the device (cpu, cuda, mps) and the number of threads for trials; 0 threads leaves the number as it
        is."""
        self.device, self._threads = use_device(device), threads
        self.model.to(self.device)

    @cached_property
    def model(self) -> nn.Module:
        """The module, with the weights that were loaded last.

        Raises:
            Refused: the task can't train the module in its mode, or it has parameters without a shape yet.
        """
        model = self._made()
        self._named_at_first = _named_tensors(model)
        return model

    def draw_weights(self, seed: int) -> None:
        if seed == self._seed:
            return
        self._seed = seed
        if isinstance(self._model, nn.Module) or "model" not in self.__dict__:
            return
        self.load(flat_weights(self.tensors))  # since the function may give a module that it gave before
        drawn = _named_tensors(self._made())
        with torch.no_grad():
            for name, tensor in self._named_at_first.items():
                tensor.copy_(drawn[name])
        del self.tensors

    def _made(self) -> nn.Module:
        """The module, or another one of the function that makes it.

        Raises:
            Refused: the task can't train the module in its mode, or it has parameters without a shape yet.
        """
        if isinstance(self._model, nn.Module):
            model = self._model
        else:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self._seed)
                model = self._model()
        if not isinstance(model, nn.Module):
            raise ValueError(
                f"model: expected a function that gives an nn.Module, got {type(model).__name__}; return it"
            )
        refuse_lazy(model)
        self._prepare(model)
        return model

    @cached_property
    def parameters(self) -> dict[str, Tensor]:
        """The parameters that are trained, by name; a tied parameter has one name.

        Raises:
            ValueError: there is none, or one is not float32, or has no numbers; or a buffer is sparse.
        """
        named: dict[str, Tensor] = dict(self.model.named_parameters())
        chosen = {name: tensor for name, tensor in named.items() if _is_trained(name, tensor, self._train)}
        if not chosen:
            raise ValueError("no parameter of the model is trained: train= chose none, or none has requires_grad")
        for name, parameter in chosen.items():
            if parameter.dtype != torch.float32:
                raise ValueError(
                    f"parameter {name!r} is {parameter.dtype}, but only float32 can be trained; "
                    f"{_remedy(parameter)}, or leave it out with train=..."
                )
            if parameter.is_meta or not parameter.numel():
                found = "on the meta device, which holds no numbers" if parameter.is_meta else "without elements"
                remedy = "load it onto the processor first" if parameter.is_meta else "leave it out with train=..."
                raise ValueError(f"parameter {name!r}: expected numbers to train, got one {found}; {remedy}")
        for name, buffer in self.model.named_buffers():
            if buffer.layout is not torch.strided:
                raise ValueError(
                    f"buffer {name!r}: expected a dense tensor, got one of {buffer.layout}; keep it outside of the "
                    "module, where the loss finds it, or as its indices and values"
                )
        places = [parameter.data_ptr() for parameter in chosen.values()]
        twice = [name for name, place in zip(chosen, places, strict=True) if places.count(place) > 1]
        if twice:
            raise ValueError(
                f"{', '.join(twice)}: different parameters share memory; tie them by using one nn.Parameter"
            )
        return chosen

    @cached_property
    def tensors(self) -> Mapping[str, Float32Array]:
        return {name: parameter.detach().cpu().numpy().copy() for name, parameter in self.parameters.items()}

    @cached_property
    def hidden(self) -> Mapping[str, int]:  # type: ignore[override]  # it is read alone
        if self._hidden is not None:
            return self._hidden
        with buffers_taken_back(self.model):  # which reading a weight may change, as a spectral norm does
            found = hidden_matrices(self.model)
        return {name: found[name] for name in self.parameters if name in found}

    @property
    def frozen(self) -> Columns:
        """Parameters that are not trained, and buffers, except those that the module makes in its first call."""
        learned = self.parameters  # for which the module is made
        tensors = _without(learned, self._named_at_first)
        return {name: _as_array(tensor) for name, tensor in tensors.items()}

    @cached_property
    def _batching(self) -> Batching:
        return Batching(self.backward_bytes)

    @cached_property
    def _backward(self) -> Backward:
        return Backward(self.model.parameters)

    def report(self) -> str:
        return str(self._plans)

    def members(self, weights: Float32Array, noise: Sequence[TensorNoise], *, n_groups: int) -> TorchMembers:
        loaded = self.load(weights)
        return TorchMembers(
            self.parameters,
            loaded,
            as_noise(noise, self.device),
            n_groups=n_groups,
            plans=self._plans,
        )

    def gradients_of(
        self,
        loss: Callable[[Mapping[str, Tensor]], Tensor | float],
        weights: Float32Array,
        batch: Batch,
        *,
        drawn: Callable[[int], Mapping[str, Tensor]] | None = None,
        draws: bool = True,
    ) -> LossGradients:
        """The gradients of a loss of rows, whose weights are the module's; see `Task.loss_gradients`.

        A loss that `draws` nothing needs no seed; `drawn` is what it takes among its rows for a group with a seed.
        """
        self.load(weights)
        rows = as_tensors(dict(batch.rows), self.device)
        with self.computing():
            parameters, seed = list(self.parameters.values()), batch.seeds[0] if draws else None
            return loss_gradients(
                loss,
                parameters,
                rows,
                len(batch.seeds),
                seed=seed,
                more=None if drawn is None else lambda group: drawn(batch.seeds[group]),
                batching=self._batching,
                backward=self._backward,
                now=lambda: self._plans.now(self.device),
            )

    def load(self, weights: Float32Array) -> list[Tensor]:
        """Loads flat weights into the module; gives them as tensors on its device."""
        _ = self.tensors  # where learning starts is read before anything is written over it
        return load_flat(list(self.parameters.values()), weights)

    def state_dict(self, weights: Float32Array, about: Mapping[str, str]) -> bytes:
        """The module's `state_dict` with these weights, tied parameters under each of their names, as safetensors."""
        self.load(weights)
        with self.judging():
            tensors = {name: tensor.detach().cpu().clone() for name, tensor in self.model.state_dict().items()}
        return safetensors.torch.save(
            {name: tensor.contiguous() for name, tensor in tensors.items()}, {"format": "pt", **about}
        )

    def judging(self) -> AbstractContextManager[None]:
        """A context in which the module is as it will be used, for judging it or for saving it."""
        return nullcontext()

    def _elsewhere(self) -> Iterable[Sequence[Tree]]:
        """Arguments of a loss for other groups than the first, if there are any."""
        return ()

    def _prepare(self, model: nn.Module) -> None:
        """Prepares the module for training.

        Raises:
            Refused: layers of the module behave differently in training mode, in which it is.
        """
        refuse_module(model)

    def _frozen_tensors(self) -> dict[str, Tensor]:
        return _without(self.parameters, _named_tensors(self.model))

    def computing(self) -> AbstractContextManager[None]:
        """A context without gradients, with the number of threads for trials."""
        return computing(self._threads)


@contextmanager
def computing(threads: int) -> Iterator[None]:
    """A context without gradients, with `threads` threads; 0 leaves the number as it is."""
    before = torch.get_num_threads()
    if threads:
        torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_num_threads(before)


def _named_tensors(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _without(learned: Mapping[str, Tensor], named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    of_learned = {id(parameter) for parameter in learned.values()}
    return {name: tensor for name, tensor in named.items() if id(tensor) not in of_learned}


def _remedy(parameter: Tensor) -> str:
    """What makes a parameter one of float32."""
    if parameter.is_complex():
        return "make it of two that are real, by torch.complex where the model computes"
    return "pass model.float(), with data and casts of the model to match, or under torch.autocast"


def _is_trained(name: str, parameter: Tensor, train: Train) -> bool:
    if train is None:
        return parameter.requires_grad
    return train(name) if callable(train) else any(part in name for part in train)


def _as_array(tensor: Tensor) -> NDArray[Any]:
    """The tensor as an array; for dtypes that numpy lacks, integers of the same bytes."""
    tensor = tensor.detach().cpu().contiguous()
    try:
        array: NDArray[Any] = tensor.numpy()
    except TypeError:
        array = tensor.view({1: torch.uint8, 2: torch.int16}[tensor.element_size()]).numpy()
    return array
