"""The settings that every run has, in groups; those of its task come from the task's kind."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec

from fedlearn.config.server_settings import ServerSettings, VolunteerSettings
from fedlearn.config.setting import ConfigError, is_open, keys_with, setting
from fedlearn.config.sizes import parse_size
from fedlearn.config.strategy_settings import StrategySettings, check_population
from fedlearn.es.optimizers import HYPERPARAMETERS, OPTIMIZERS, optimizer_of
from fedlearn.es.schedules import parse_factors
from fedlearn.es.strategy import audited_local_steps

LAST_STEP = 2**32 - 1
"""The last step of a run: noise is drawn with the number of the step in 32 bits."""


Group = TypeVar("Group", bound=msgspec.Struct)


def _with_hyperparameters(group: type[Group]) -> type[Group]:
    """The group with a key for each hyperparameter of the optimizers."""
    keys = []
    for key, declared in HYPERPARAMETERS.items():
        bounds: dict[str, Any] = declared.bounds
        meaning = setting(declared.description, resumable=True, **bounds)
        keys.append((key, Annotated[float, meaning], declared.default))
    whole = msgspec.defstruct(
        group.__name__,
        keys,
        bases=(group,),
        module=group.__module__,
        namespace={"__doc__": group.__doc__},
        frozen=True,
        kw_only=True,
    )
    return cast("type[Group]", whole)


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is trained, how long, and where it is kept."""

    task: Annotated[
        str,
        setting(
            "what is trained: a kind such as rnn, or FILE.py:NAME of a task", min_length=1, resumable=True, common=True
        ),
    ] = "rnn"
    seed: Annotated[
        int,
        setting("seed of all noise, of the initial weights and of the choice of data", ge=0, le=2**63 - 1, common=True),
    ] = 1
    steps: Annotated[
        int, setting("step at which the run ends; 0 = until stopped", ge=0, le=LAST_STEP, resumable=True, common=True)
    ] = 0
    duration: Annotated[
        float,
        setting(
            "seconds of training after which the run ends; 0 = until stopped", ge=0, le=1e9, resumable=True, common=True
        ),
    ] = 0.0
    step_num: Annotated[int, setting("step with which the run begins", ge=0, le=LAST_STEP)] = 0
    runs: Annotated[str, setting("folder that holds the run folders", min_length=1, resumable=True, common=True)] = (
        "trainingRuns"
    )
    keep_journal: Annotated[
        str,
        setting(
            "size above which the journal drops steps before the oldest checkpoint, such as 500MB; all = never",
            min_length=1,
            resumable=True,
        ),
    ] = "1GB"
    checkpoint_time: Annotated[float, setting("seconds between checkpoints", gt=0, le=1e9, resumable=True)] = 60.0
    sample_time: Annotated[
        float,
        setting(
            "seconds between validations of the unperturbed model, with a sample of text; 0 = never",
            ge=0,
            le=1e9,
            resumable=True,
        ),
    ] = 30.0
    sample_every: Annotated[
        int,
        setting(
            "steps between such validations, beside those by sample_time; 0 = none", ge=0, le=LAST_STEP, resumable=True
        ),
    ] = 0


@_with_hyperparameters
class OptimizerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a gradient estimate becomes a step.

    Further keys are the hyperparameters that the optimizers declare.
    """

    optimizer: Annotated[
        str,
        setting(
            "rule that turns gradient estimates into steps; auto = muon where gradients are measured and the model has "
            "hidden matrices, and with perturbed activations and a head in closed form, else adam",
            choices=("auto", *OPTIMIZERS),
        ),
    ] = "auto"
    learning_rate: Annotated[
        float,
        setting(
            "step size of the optimizer in a step of population_limit members",
            ge=0,
            le=1000,
            automatic=True,
            resumable=True,
            common=True,
        ),
    ] = 0.0
    max_learning_rate: Annotated[
        float,
        setting(
            "what learning_rate may grow to, by the square root of the population; 0 = it does not grow",
            ge=0,
            le=1000,
            resumable=True,
        ),
    ] = 0.0
    learning_rate_schedule: Annotated[
        Literal["auto", "constant", "linear", "late-linear", "cosine", "inverse-sqrt"],
        setting(
            "how the learning rate falls; auto = linear if the run has an end, in its second half where gradients are "
            "measured; else inverse-sqrt",
            resumable=True,
        ),
    ] = "auto"
    learning_rate_factors: Annotated[
        str,
        setting(
            "further factors on the learning rate, each from a step on, such as '0:1 300:0.1'; empty = none",
            resumable=True,
        ),
    ] = ""
    warmup_steps: Annotated[
        int, setting("steps over which the learning rate rises to its full size", ge=0, le=2**53, resumable=True)
    ] = 0
    weight_decay: Annotated[
        float,
        setting(
            "decoupled weight decay, as in AdamW; 0 = none, but 0.1 with muon where learning_rate is chosen",
            ge=0,
            le=1e6,
            resumable=True,
        ),
    ] = 0.0
    weight_decay_towards: Annotated[
        Literal["zero", "start"],
        setting("where weights decay to: zero (matrices only), or the weights that the run began with"),
    ] = "zero"


class RunConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one run; the annotation of each key has its meaning, unit and range.

    Until a run is created, automatic keys may be 0 or `auto`; a run itself has a value for each.

    Raises:
        ConfigError: two keys contradict each other; ranges are checked by `load_config`.
    """

    run: RunSettings = RunSettings()
    strategy: StrategySettings = StrategySettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    server: ServerSettings = ServerSettings()
    volunteers: VolunteerSettings = VolunteerSettings()
    options: msgspec.Struct
    """The task's own settings, as its kind declares them."""

    def __post_init__(self) -> None:
        journal_bytes_kept(self.run)
        check_population(self.strategy)
        self._check_sums()
        self._check_local_steps()
        self._check_schedules()

    @property
    def has_end(self) -> bool:
        """Whether the run ends by itself."""
        return self.run.steps > 0 or self.run.duration > 0.0

    @property
    def open_keys(self) -> tuple[str, ...]:
        """Automatic keys that are still to be chosen."""
        groups: list[msgspec.Struct] = [getattr(self, name) for name in self.__struct_fields__]
        return tuple(
            key for group in groups for key in keys_with(type(group), "automatic") if is_open(getattr(group, key))
        )

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left for the run to choose."""
        return not self.open_keys

    def get(self, key: str) -> Any:  # noqa: ANN401 (a key's type is the key's)
        """The value of a key, in whichever group it stands."""
        return getattr(getattr(self, _group_of(self, key)), key)

    def replace(self, values: Mapping[str, Any]) -> "RunConfig":
        """The same configuration with other values of some keys, in any group."""
        groups: dict[str, dict[str, Any]] = {}
        for key, value in values.items():
            groups.setdefault(_group_of(self, key), {})[key] = value
        return msgspec.structs.replace(
            self, **{name: msgspec.structs.replace(getattr(self, name), **given) for name, given in groups.items()}
        )

    def _check_sums(self) -> None:
        strategy = self.strategy
        if strategy.fitness_shaping != "normalized" and (
            strategy.perturb == "activations" or strategy.head == "closed-form"
        ):
            raise ConfigError(
                f"fitness_shaping: expected normalized where volunteers send sums of gradients "
                f"(perturb = {strategy.perturb}, head = {strategy.head}), got {strategy.fitness_shaping}"
            )
        if strategy.antithetic and strategy.perturb == "activations":
            raise ConfigError("antithetic: expected false with perturb = activations, got true; leave it out")

    def _check_local_steps(self) -> None:
        n_local, audit = self.strategy.local_steps, self.server.audit
        most = audited_local_steps(optimizer_of(msgspec.structs.asdict(self.optimizer)))
        if n_local > most and audit:
            raise ConfigError(
                f"local_steps: expected at most {most} where results are audited (audit = {audit:g}), "
                f"since honest machines differ too much after more, got {n_local}; set audit to 0 if all volunteers "
                "are yours"
            )

    def _check_schedules(self) -> None:
        try:
            parse_factors(self.optimizer.learning_rate_factors)
        except ValueError as error:
            raise ConfigError(f"learning_rate_factors: {error}") from error
        rate, most, decay = (
            self.optimizer.learning_rate,
            self.optimizer.max_learning_rate,
            self.optimizer.weight_decay,
        )
        if 0.0 < most < rate:
            raise ConfigError(
                f"max_learning_rate: expected learning_rate ({rate:g}) or more, or 0 for a rate that does not grow, "
                f"got {most:g}"
            )
        largest = max(rate, most)
        if largest * decay >= 1.0:
            raise ConfigError(
                f"weight_decay: expected less than 1 / {'max_' if most else ''}learning_rate ({1.0 / largest:g}), "
                f"so that a step does not decay the weights to nothing, got {decay:g}"
            )
        for key in ("learning_rate_schedule", "sigma_schedule"):
            if self.get(key) in ("linear", "late-linear", "cosine") and not self.has_end:
                raise ConfigError(
                    f"{key}: expected steps or duration with {self.get(key)}, got neither; "
                    "set one, or choose a schedule that needs no end"
                )


def journal_bytes_kept(settings: RunSettings) -> int | None:
    """The most bytes of the journal that are kept; None if all of it is.

    Raises:
        ConfigError: the text is no size.
    """
    if settings.keep_journal == "all":
        return None
    try:
        return parse_size(settings.keep_journal)
    except ValueError as error:
        raise ConfigError(f"keep_journal: {error}, or all, which drops nothing") from error


def _group_of(config: RunConfig, key: str) -> str:
    for name in config.__struct_fields__:
        if key in getattr(config, name).__struct_fields__:
            return name
    raise KeyError(key)
