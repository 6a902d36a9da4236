"""The contestants of the learning benchmark: the product's recipes, and peers with settings of their own.

A recipe of the product is what it changes in the default configuration for a budget; flags outrank it. Settings were
chosen on the validation part, see docs/recipe.md.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from importlib.util import find_spec
from math import inf
from typing import Any, cast

import msgspec

from benchmarks.text.in_process import InProcess
from benchmarks.text.learner import Budget, Learner
from benchmarks.text.rnn_run import SCHEMA, RnnRun, Settings
from fedlearn.config import RunConfig
from fedlearn.tasks.rnn.options import options_of

PRODUCT: dict[str, Settings] = {
    "weights": {"perturb": "weights", "head": "perturbed"},
    "weights-closed-form": {"perturb": "weights", "head": "closed-form", "group_size": 16},
    "activations": {
        "perturb": "activations",
        "head": "perturbed",
        "sigma": 0.05,
        "precision": "float32",
        "context": 8,
        "group_size": 4,
        "discount": 0.7,
    },
    "activations-closed-form": {
        "perturb": "activations",
        "head": "closed-form",
        "precision": "float32",
        "sigma": 0.05,
        "context": 8,
        "group_size": 4,
        "optimizer": "adam",
    },
    "automatic": {"perturb": "activations", "head": "closed-form"},
}
"""What a recipe is, whatever the budget."""

AUTOMATIC = "automatic"
"""The recipe whose other settings the run chooses itself."""

BY_BUDGET: dict[str, tuple[tuple[float, Settings], ...]] = {
    "weights": (
        (2e6, {"population_limit": 512, "learning_rate": 0.01}),
        (2e7, {"population_limit": 2048, "learning_rate": 0.01}),
        (8e7, {"population_limit": 4096, "learning_rate": 0.01}),
        (1e9, {"population_limit": 8192, "learning_rate": 0.01}),
        (inf, {"population_limit": 16384, "learning_rate": 0.003, "context": 16, "precision": "int8"}),
    ),
    "weights-closed-form": (
        (2e7, {"population_limit": 1024, "learning_rate": 0.007}),
        (1e9, {"population_limit": 2048, "learning_rate": 0.005}),
        (inf, {"population_limit": 8192, "learning_rate": 0.005, "precision": "int8"}),
    ),
    "activations": (
        (2e6, {"population_limit": 64, "learning_rate": 0.01}),
        (5e6, {"population_limit": 128, "learning_rate": 0.01}),
        (2e7, {"population_limit": 256, "learning_rate": 0.01}),
        (1e8, {"population_limit": 512, "learning_rate": 0.01, "discount": 0.9}),
        (1e9, {"population_limit": 1024, "learning_rate": 0.0125, "discount": 0.9, "hidden_size": 128}),
        (
            inf,
            {
                "precision": "int8",
                "hidden_size": 256,
                "population_limit": 4096,
                "learning_rate": 0.006,
                "weight_decay": 0.2,
                "discount": 0.95,
            },
        ),
    ),
    "activations-closed-form": (
        (2e7, {"population_limit": 128, "learning_rate": 0.01, "group_size": 2}),
        (1e8, {"population_limit": 512, "learning_rate": 0.01, "group_size": 2, "discount": 0.9}),
        (1e9, {"population_limit": 1024, "learning_rate": 0.01, "discount": 0.95, "hidden_size": 128}),
        (
            inf,
            {
                "precision": "int8",
                "hidden_size": 384,
                "population_limit": 1024,
                "learning_rate": 0.005,
                "weight_decay": 0.09,
                "sigma": 0.1,
                "discount": 1.0,
            },
        ),
    ),
}
"""Settings up to so many trial-tokens."""

TRIAL_TOKENS_PER_S = 5e6
"""Speed by which the settings for a budget in seconds are found."""


PEERS = {
    "plain-es": ("plain_es", "PlainEs", "PlainEsSettings"),
    "backprop": ("backprop", "Backprop", "BackpropSettings"),
}
"""Module, learner and settings of each peer; both need PyTorch."""

NAMES = (*PRODUCT, *PEERS)


def settings_of(recipe: str, budget: Budget) -> Settings:
    """What a recipe of the product changes in the configuration; nothing for a peer."""
    tokens = budget.amount * (TRIAL_TOKENS_PER_S if budget.unit == "seconds" else 1.0)
    fitting = (settings for most, settings in BY_BUDGET.get(recipe, ()) if tokens <= most)
    return {**PRODUCT.get(recipe, {}), **next(fitting, {})}


def why_absent(recipe: str) -> str | None:
    """A sentence where the recipe can't be had here."""
    if recipe in PEERS:
        return (
            None if find_spec("torch") else f"{recipe} needs PyTorch, which is not installed: pip install -e '.[torch]'"
        )
    unknown = [key for key in PRODUCT[recipe] if key not in SCHEMA.fields]
    return f"{recipe} needs settings that this version lacks: {', '.join(unknown)}" if unknown else None


def ending_at(config: RunConfig, budget: Budget) -> RunConfig:
    """The configuration of a run that ends with the budget: schedules reach their end where the budget does."""
    if budget.unit == "seconds":
        return config.replace({"duration": budget.amount})
    strategy, options = config.strategy, options_of(config)
    members = strategy.population_limit // strategy.group_size * strategy.group_size
    tokens = members * options.batch_size * options.sequence_length
    return config.replace({"steps": max(round(budget.amount / tokens), 1)})


@contextmanager
def open_learner(
    recipe: str, budget: Budget, run: RnnRun, clock: Callable[[], float], peer_settings: dict[str, str]
) -> Iterator[tuple[Learner, Settings]]:
    """The learner of a recipe, new, and the settings that make it what it is.

    A peer takes `peer_settings` in place of its own.

    Raises:
        ValueError: the peer can't have such a setting or network.
    """
    if recipe in PRODUCT:
        with closing(InProcess(run, clock)) as learner:
            yield learner, settings_of(recipe, budget)
        return
    name, maker, kind = PEERS[recipe]
    module: Any = import_module(f"benchmarks.text.peers.{name}")
    settings = _peer_settings(recipe, getattr(module, kind), peer_settings)
    yield cast(Learner, getattr(module, maker)(run, settings)), msgspec.structs.asdict(settings)


def _peer_settings(recipe: str, kind: type[msgspec.Struct], given: dict[str, str]) -> msgspec.Struct:
    if unknown := set(given) - set(kind.__struct_fields__):
        raise ValueError(
            f"--peer: expected settings of {recipe} ({', '.join(kind.__struct_fields__)}), got {', '.join(unknown)}"
        )
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"--peer: expected settings of {recipe}: {error}") from error
