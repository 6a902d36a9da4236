"""The architectures this version knows, by name."""

from fedlearn.objectives.base import Model, Objective
from fedlearn.objectives.rnn import RnnObjective

OBJECTIVES: dict[str, type[RnnObjective]] = {"rnn": RnnObjective}


def build_objective(model: Model, seed: int) -> Objective:
    """The objective that a `Welcome` or a run's config describes.

    Raises ValueError for an architecture this version does not have.
    """
    architecture = model.get("architecture")
    if architecture not in OBJECTIVES:
        raise ValueError(
            f"architecture: expected one of {', '.join(OBJECTIVES)}, got {architecture!r}; "
            "is this version of fedlearn older than the server's?"
        )
    return OBJECTIVES[str(architecture)].from_model(model, seed)
