"""What a step measured: one record, made when the step closes, which metrics.jsonl, callbacks and viewers have."""

from typing import Annotated, Literal, get_type_hints

import msgspec


class Figure(msgspec.Struct, frozen=True):
    """How people are shown a figure."""

    label: str
    text: str
    """A sentence that says what it is."""
    unit: Literal["", "share"] = ""
    """A share is written in percent."""
    in_terminal: bool = False
    """Whether the terminal's line of a step has it; board, TensorBoard and Prometheus have every figure."""
    is_spread: bool = False
    """Whether it is the deviation of the loss, and so of a return, which is minus the loss and is shown with it."""


class Figures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a step may measure beside its loss; None where it does not.

    The fields are all that is declared of a figure: whoever draws figures goes through `FIGURES`.
    """

    variance_left: Annotated[
        float | None,
        Figure(
            "variance left",
            "Share of the losses' variance that control variates left, the median over members.",
            unit="share",
            in_terminal=True,
        ),
    ] = None
    loss_spread: Annotated[
        float | None,
        Figure(
            "loss spread",
            "Standard deviation of losses within a group, the median over groups, as a running mean over steps.",
            is_spread=True,
        ),
    ] = None

    @property
    def figures(self) -> dict[str, float]:
        """The figures that were measured, by name."""
        return {name: value for name in FIGURES if (value := getattr(self, name)) is not None}


FIGURES: dict[str, Figure] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(Figures, include_extras=True).items()
}
"""The table of figures, by name."""

(SPREAD,) = (name for name, figure in FIGURES.items() if figure.is_spread)
"""The name of the loss's deviation."""


class StepReport(Figures, frozen=True, kw_only=True):
    """Server: a step is over; this is what it measured."""

    step: int
    loss: float | None
    """Mean over the members of the groups in the middle (`middle_mean`); None where no loss is finite."""
    members: int
    volunteers: int
    duration_s: float = 0.0
    """Seconds that the step was open."""
