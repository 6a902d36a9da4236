"""Observes in a plain run which parameters a function reads, and refuses what members must not do."""

from collections.abc import Iterable, Mapping
from typing import Any, final

from torch import Tensor
from torch.overrides import TorchFunctionMode

from fedlearn.tasks.torch.members.mode import UNCHANGED
from fedlearn.tasks.torch.members.refusals import RULES, Refused, refuse_changes


@final
class ParameterWatch(TorchFunctionMode):
    """A mode that raises refusals and notes which parameters are read, and changes nothing else."""

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.unmet = {id(parameter) for parameter in parameters.values()}
        """The `id` of each parameter that no function has been given."""
        self._names = {id(parameter): name for name, parameter in parameters.items()}

    def __torch_function__(
        self,
        function: Any,  # noqa: ANN401 (whatever torch lets modes see)
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 (whatever the function gives)
        kwargs = kwargs or {}
        if function not in UNCHANGED:
            refuse_changes(function, args, kwargs, self._is_parameter, self._name_of)
            if function in RULES:
                RULES[function](self, function, *args, **kwargs)
            self._note((*args, *kwargs.values()))
        return function(*args, **kwargs)

    def _is_parameter(self, value: object) -> bool:
        return id(value) in self._names

    def _name_of(self, value: object) -> str:
        return f"the parameter {self._names[id(value)]}"

    def _note(self, values: Iterable[Any]) -> None:
        for value in values:
            if isinstance(value, list | tuple):
                self._note(value)
            else:
                self.unmet.discard(id(value))


def states(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, int]]:
    """The identity of each tensor, and the number of writes to it, by name."""
    # Tensors made in inference mode do not count their changes.
    return {name: (id(x), 0 if x.is_inference() else x._version) for name, x in tensors.items()}


def refuse_changed(before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]]) -> None:
    """Compares the states of tensors that a function must not change.

    Raises:
        Refused: a tensor was written to or replaced, or is new.
    """
    changed = sorted(name for name, state in after.items() if before.get(name) != state)
    if changed:
        raise Refused(
            f"running the model changes its {', '.join(changed)}, so that a member's loss depends on those before it; "
            "call model.eval(), or keep nothing from one call for the next"
        )
