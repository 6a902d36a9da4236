"""A model as a list of layers, whose values later layers may ask for by name."""

from collections.abc import Mapping, Sequence
from typing import Any, final

from torch import Tensor, nn

Entry = tuple[type[nn.Module], Mapping[str, Any], Any]
"""A layer's class, its arguments, and the shape of what it is given (a list of shapes where it has dependencies)."""


@final
class Layers(nn.Module):
    """Runs the layers one after another.

    Two arguments are read here and not passed on to the class. `out_variables` names what the layer gives, for later
    ones. `dependencies` names what earlier ones gave: the layer is called with its input and then these. On which
    machines either of them is does not matter.

    Raises:
        ValueError: the list is empty, a layer depends on a name that no earlier one gave, or a name is given twice.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        super().__init__()
        if not entries:
            raise ValueError("layers: expected at least one layer, got none")
        self._wanted: list[tuple[str, ...]] = []
        self._given: list[tuple[str, ...]] = []
        self.layers = nn.ModuleList()
        known: set[str] = set()
        for number, (kind, arguments, _) in enumerate(entries):
            own = dict(arguments)
            wanted, given = tuple(own.pop("dependencies", ())), tuple(own.pop("out_variables", ()))
            if missing := [name for name in wanted if name not in known]:
                raise ValueError(
                    f"layer {number}: expected dependencies among {sorted(known)}, which earlier layers give, "
                    f"got {missing[0]!r}; name it in their out_variables"
                )
            if twice := [name for name in given if name in known]:
                raise ValueError(f"layer {number}: expected a new name in out_variables, got {twice[0]!r} again")
            known |= set(given)
            self._wanted.append(wanted)
            self._given.append(given)
            self.layers.append(kind(**own))

    @property
    def variables(self) -> tuple[str, ...]:
        """All names, in the order in which layers give them."""
        return tuple(name for names in self._given for name in names)

    @property
    def dependencies(self) -> dict[str, tuple[int, ...]]:
        """The layers that read each name, by number."""
        return {
            name: tuple(number for number, wanted in enumerate(self._wanted) if name in wanted)
            for name in self.variables
        }

    def forward(self, x: Tensor, values: Mapping[str, Tensor] | None = None) -> Tensor:
        """The last layer's output; `values` take the place of what layers give under these names.

        Raises:
            ValueError: no layer gives a value of that name.
        """
        replaced = dict(values or {})
        if unknown := sorted(set(replaced) - set(self.variables)):
            raise ValueError(f"values: expected names among {sorted(self.variables)}, got {unknown[0]!r}")
        kept: dict[str, Tensor] = {}
        for layer, wanted, given in zip(self.layers, self._wanted, self._given, strict=True):
            x = layer(x, *(kept[name] for name in wanted))
            kept |= {name: replaced.get(name, x) for name in given}
        return x
