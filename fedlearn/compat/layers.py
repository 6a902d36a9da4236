"""A model as a list of layers, whose values later layers may ask for by name."""

from collections.abc import Mapping, Sequence
from typing import Any, final

from torch import Tensor, nn

Shape = tuple[int, ...]
Entry = tuple[type[nn.Module], Mapping[str, Any], Any]
"""A layer's class, its arguments, and the shape of what it is given (a list of shapes where it has dependencies)."""


@final
class Layers(nn.Module):
    """Runs the layers one after another.

    Two arguments are read here and not passed on to the class. `out_variables` names what the layer gives, for later
    ones. `dependencies` names what earlier ones gave, or what comes with the input where no layer gives it: the layer
    is called with its input and then these. On which machines either of them is does not matter.

    Raises:
        ValueError: the list is empty, a layer depends on a name that a later one gives, or a name is given twice.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        super().__init__()
        if not entries:
            raise ValueError("layers: expected at least one layer, got none")
        self._wanted: list[tuple[str, ...]] = []
        self._given: list[tuple[str, ...]] = []
        self.layers = nn.ModuleList()
        self.inputs: dict[str, Shape] = {}
        """The shape of each value that no layer gives, by name."""
        everything = {name for _, arguments, _ in entries for name in arguments.get("out_variables", ())}
        known: set[str] = set()
        for number, (kind, arguments, shapes) in enumerate(entries):
            own = dict(arguments)
            wanted, given = tuple(own.pop("dependencies", ())), tuple(own.pop("out_variables", ()))
            if late := [name for name in wanted if name in everything - known]:
                raise ValueError(
                    f"layer {number}: expected dependencies among {sorted(known)}, which earlier layers give, "
                    f"got {late[0]!r} of a later one; name it in the out_variables of an earlier one"
                )
            each = shapes_of(shapes)
            for name, place in ((name, place) for place, name in enumerate(wanted, 1) if name not in known):
                if place >= len(each):
                    raise ValueError(
                        f"layer {number}: expected the shape of {name!r} behind that of its input, since no layer "
                        f"gives it, got {shapes!r}; write a list of shapes"
                    )
                self.inputs[name] = each[place]
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
            ValueError: no layer gives or wants a value of that name, or one that none gives is missing.
        """
        replaced = dict(values or {})
        known = {*self.variables, *self.inputs}
        if unknown := sorted(set(replaced) - known):
            raise ValueError(f"values: expected names among {sorted(known)}, got {unknown[0]!r}")
        if missing := sorted(set(self.inputs) - set(replaced)):
            raise ValueError(f"values: expected {missing[0]!r}, which no layer gives, got none; pass it with the input")
        kept = {name: replaced[name] for name in self.inputs}
        for layer, wanted, given in zip(self.layers, self._wanted, self._given, strict=True):
            x = layer(x, *(kept[name] for name in wanted))
            kept |= {name: replaced.get(name, x) for name in given}
        return x


def shapes_of(named: Any) -> tuple[Shape, ...]:  # noqa: ANN401 (a shape or several)
    """The shapes that an entry names: of the layer's input, and of its dependencies."""
    several = named if isinstance(named[0], Sequence) else [named]
    return tuple(tuple(shape) for shape in several)
