"""What a run is made of: one schema for its file, its environment variables and its command line flags.

A later source outranks an earlier one: file, environment, flags. Nothing here reads a file: callers bring
its text.
"""

import argparse
import difflib
import tomllib
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from msgspec.inspect import BoolType, FloatType, IntType, LiteralType, Metadata, StrType, Type, type_info

SourceFile = tuple[str, str]
"""Name (its suffix, .toml or .json, tells the format) and text of a configuration file."""


class ConfigError(ValueError):
    """A key, type or value that a run cannot have; the message names the key, its source and the remedy."""


MAX_MEMBERS = (2**31 - 1) // 127
"""Of a step at rank 1: utilities up to 127 each add up to a 32-bit integer."""


MAX_POPULATION = 16_000_000

LAST_STEP = 2**32 - 1
"""Of a run: noise is drawn with the number of the step in 32 bits."""

_AUTOMATIC = "0 = chosen when the run begins"


class RunConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one run. Meaning, unit and range of each key stand in its description.

    Until a run is created, keys of AUTOMATIC_KEYS may be 0; a run itself has numbers only (`is_settled`).

    Raises ConfigError where two keys contradict each other; ranges are checked by `load_config`.
    """

    time_per_step: Annotated[
        float,
        Meta(
            ge=0,
            le=86400,
            description="s, most time clients may run trials in one step; "
            f"it closes earlier when population_limit members are in; {_AUTOMATIC}",
        ),
    ] = 0.0
    learning_rate: Annotated[float, Meta(ge=0, le=1000, description=f"step size of the optimizer; {_AUTOMATIC}")] = 0.0
    sigma: Annotated[
        float, Meta(ge=0, le=1000, description=f"standard deviation of noise on weights or inputs; {_AUTOMATIC}")
    ] = 0.0
    perturb: Annotated[
        Literal["weights", "activations"],
        Meta(description="where the noise goes; activations learn more from a trial, and send more a step"),
    ] = "weights"
    head: Annotated[
        Literal["perturbed", "closed-form"],
        Meta(description="output layer: perturbed like the rest, or by the closed form of its gradient"),
    ] = "perturbed"
    logit_sigma: Annotated[
        float, Meta(gt=0, le=1000, description="standard deviation of the noise on logits, with perturbed activations")
    ] = 0.05
    discount: Annotated[
        float, Meta(ge=0, le=1, description="weight of a loss for each token after the noise on an activation")
    ] = 0.8
    control_variates: Annotated[
        int,
        Meta(
            ge=0,
            le=16,
            description="tokens whose losses are predicted from the noise on an activation, to take that off; 0 = none",
        ),
    ] = 2
    learning_rate_schedule: Annotated[
        Literal["auto", "constant", "linear", "cosine", "inverse-sqrt"],
        Meta(description="how the learning rate falls; auto = linear if the run has an end, else inverse-sqrt"),
    ] = "auto"
    sigma_schedule: Annotated[
        Literal["constant", "linear", "cosine"], Meta(description="how sigma falls to a tenth at the end of the run")
    ] = "constant"
    warmup_steps: Annotated[
        int, Meta(ge=0, le=2**53, description="steps over which the learning rate rises to its full size")
    ] = 0
    hidden_size: Annotated[
        int, Meta(ge=0, le=65536, description=f"units, width of each layer, 2 or more; {_AUTOMATIC}")
    ] = 0
    vocab_size: Annotated[
        int, Meta(ge=0, le=65535, description="tokens in the vocabulary; 0 = as many as the tokenizer needs")
    ] = 0
    n_layers: Annotated[int, Meta(ge=1, le=16, description="recurrent layers")] = 1
    optimizer: Annotated[Literal["adam", "sgd"], Meta(description="rule that turns gradients into steps")] = "adam"
    weight_decay: Annotated[
        float, Meta(ge=0, le=1e6, description="share of the matrices that a learning rate of 1 takes away in a step")
    ] = 0.0
    antithetic: Annotated[bool, Meta(description="members come in pairs with opposite noise")] = False
    beta1: Annotated[
        float, Meta(ge=0, lt=1, description="share of Adam's mean gradient, or SGD's momentum, kept from step to step")
    ] = 0.9
    beta2: Annotated[
        float, Meta(ge=0, lt=1, description="share of Adam's mean squared gradient kept from step to step")
    ] = 0.999
    step_num: Annotated[
        int, Meta(ge=0, le=LAST_STEP, description="steps, where the run stands; resumed runs start from it")
    ] = 0
    checkpoint_time: Annotated[float, Meta(gt=0, le=1e9, description="s between checkpoints")] = 60.0
    new_tokens_interval: Annotated[
        int, Meta(ge=0, le=2**53, description="steps between new token blocks; 0 = one block for the run")
    ] = 0
    batch_size: Annotated[int, Meta(ge=1, le=65536, description="sequences a member is evaluated on")] = 1
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1, description="start of all noise, initial weights and windows")] = 1
    rank: Annotated[int, Meta(ge=0, le=8, description="rank of a matrix's perturbation; 0 = full rank, far slower")] = 1
    group_size: Annotated[
        int, Meta(ge=0, le=65536, description=f"members on the same tokens, to be compared, 2 or more; {_AUTOMATIC}")
    ] = 0
    context: Annotated[
        int, Meta(ge=0, le=65536, description="tokens that warm up the hidden state before the scored ones")
    ] = 32
    sequence_length: Annotated[int, Meta(ge=1, le=65536, description="scored tokens a sequence")] = 16
    population_limit: Annotated[
        int, Meta(ge=0, le=MAX_POPULATION, description=f"members a step at most, in whole groups; {_AUTOMATIC}")
    ] = 0
    max_population: Annotated[
        int,
        Meta(ge=0, le=MAX_POPULATION, description="what population_limit grows to as volunteers join; 0 = it does not"),
    ] = 0
    steps: Annotated[int, Meta(ge=0, le=LAST_STEP, description="step at which the run ends; 0 = until stopped")] = 0
    duration: Annotated[
        float, Meta(ge=0, le=1e9, description="s of training after which the run ends; 0 = until stopped")
    ] = 0.0
    data: Annotated[str, Meta(min_length=1, description="corpus: python-docs or a text file's path")] = "python-docs"
    tokenizer: Annotated[Literal["chars", "bytes", "bpe"], Meta(description="how text becomes tokens")] = "chars"
    documents: Annotated[
        Literal["stream", "blank-lines"],
        Meta(description="the corpus is one stream, or documents separated by blank lines"),
    ] = "stream"
    block_tokens: Annotated[
        int, Meta(ge=2, le=2**22, description="tokens a block when new_tokens_interval is above 0")
    ] = 1048576
    fitness_shaping: Annotated[
        Literal["normalized", "centered-ranks", "sign"],
        Meta(description="how losses within a group become utilities"),
    ] = "normalized"
    embedding_scale: Annotated[
        float, Meta(gt=0, le=1e6, description="factor on sigma and learning rate of the embedding")
    ] = 10.0
    precision: Annotated[
        Literal["float32", "int8"],
        Meta(description="arithmetic of the trials; int8 is faster where the processor has int8 dot products"),
    ] = "float32"
    host: Annotated[str, Meta(min_length=1, description="address the server listens on")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="TCP port; 0 = any free one")] = 55551
    volunteers: Annotated[int, Meta(ge=0, le=1024, description="local volunteer processes that the server starts")] = 1
    threads: Annotated[int, Meta(ge=0, le=1024, description="threads of a local volunteer; 0 = all cores")] = 0
    runs: Annotated[str, Meta(min_length=1, description="folder that holds the run folders")] = "trainingRuns"
    sample_time: Annotated[float, Meta(ge=0, le=1e9, description="s between samples on the terminal; 0 = never")] = 30.0

    def __post_init__(self) -> None:
        self._check_population()
        self._check_recipe()
        window = self.context + self.sequence_length + 1
        if self.new_tokens_interval > 0 and self.block_tokens < window:
            raise ConfigError(
                f"block_tokens: expected at least one window (context + sequence_length + 1 = {window}), "
                f"got {self.block_tokens}"
            )

    def _check_population(self) -> None:
        for key in ("hidden_size", "group_size"):
            if getattr(self, key) == 1:
                raise ConfigError(f"{key}: expected 2 or more, or 0 for a choice of the run's own, got 1")
        least, most = max(self.group_size, 2), MAX_MEMBERS // max(self.rank, 1)
        for key in ("population_limit", "max_population"):
            members = getattr(self, key)
            if 0 < members < least:
                raise ConfigError(f"{key}: expected a group or more ({least} members), got {members}")
            if members > most:
                raise ConfigError(
                    f"{key}: expected at most {most} with rank {self.rank}, so that the gradient estimate "
                    f"fits 32 bits, got {members}"
                )
        if 0 < self.max_population < self.population_limit:
            raise ConfigError(
                f"max_population: expected population_limit ({self.population_limit}) or more, or 0 for a population "
                f"that does not grow, got {self.max_population}"
            )

    def _check_recipe(self) -> None:
        if self.fitness_shaping != "normalized" and (self.perturb == "activations" or self.head == "closed-form"):
            raise ConfigError(
                f"fitness_shaping: expected normalized where volunteers send sums of gradients "
                f"(perturb = {self.perturb}, head = {self.head}), got {self.fitness_shaping}"
            )
        if self.antithetic and self.perturb == "activations":
            raise ConfigError("antithetic: expected false with perturb = activations, got true; leave it out")
        if self.antithetic and self.group_size % 2:
            raise ConfigError(f"group_size: expected an even number with antithetic pairs, got {self.group_size}")
        if self.learning_rate * self.weight_decay >= 1.0:
            raise ConfigError(
                f"weight_decay: expected less than 1 / learning_rate ({1.0 / self.learning_rate:g}), "
                f"so that a step leaves something of the weights, got {self.weight_decay:g}"
            )
        for key in ("learning_rate_schedule", "sigma_schedule"):
            if getattr(self, key) in ("linear", "cosine") and not self.has_end:
                raise ConfigError(
                    f"{key}: expected steps or duration with {getattr(self, key)}, got neither; "
                    "set one, or choose a schedule that needs no end"
                )

    @property
    def has_end(self) -> bool:
        """Whether the run ends by itself."""
        return self.steps > 0 or self.duration > 0.0

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left for the run to choose."""
        return all(getattr(self, key) for key in AUTOMATIC_KEYS)


KEYS = RunConfig.__struct_fields__

AUTOMATIC_KEYS = ("hidden_size", "group_size", "sigma", "learning_rate", "population_limit", "time_per_step")
"""Of which 0 stands for a value that is chosen when the run begins."""

RESUMABLE_KEYS = frozenset(
    {"learning_rate", "learning_rate_schedule", "sigma", "sigma_schedule", "warmup_steps", "weight_decay"}
    | {"beta1", "beta2", "population_limit", "max_population", "time_per_step", "steps", "duration"}
    | {"checkpoint_time", "sample_time", "host", "port", "volunteers", "threads", "runs"}
)
"""What a resumed run may change: travels in each Update, or touches no number of the run."""

_SPELLINGS = {key: key for key in KEYS} | {
    "timePerStep": "time_per_step",
    "learningRate": "learning_rate",
    "hiddenSize": "hidden_size",
    "vocabSize": "vocab_size",
    "nLayers": "n_layers",
    "stepNum": "step_num",
    "checkPointTime": "checkpoint_time",
    "newTokensInterval": "new_tokens_interval",
    "batchSize": "batch_size",
}
_PREFIX = "FEDLEARN_"
_VARIABLES = {_PREFIX + key.upper(): key for key in KEYS}
_FOREIGN_VARIABLES = frozenset({"FEDLEARN_SERVER", "FEDLEARN_ISA", "FEDLEARN_NAME"})
"""Read by other programs of the project; no keys of a run."""

_FIELDS = {field.name: field for field in msgspec.structs.fields(RunConfig)}
_METAVARS: dict[type[Type], str] = {FloatType: "NUMBER", IntType: "N", StrType: "TEXT", BoolType: "true|false"}


def load_config(file: SourceFile | None, environ: Mapping[str, str], flags: Mapping[str, Any]) -> RunConfig:
    """The configuration of a new run.

    `flags` may be `vars()` of a parser's namespace: a name that is no key belongs to the command and is
    ignored.
    Raises ConfigError.
    """
    return RunConfig(**{key: value for key, (value, _) in _given(file, environ, flags).items()})


def resume_config(
    base: RunConfig, file: SourceFile | None, environ: Mapping[str, str], flags: Mapping[str, Any]
) -> RunConfig:
    """`base`, the configuration in the run's folder, with what is given now.

    What was chosen when the run began stays, unless a value is given: a population that is given does not grow.

    Raises ConfigError as `load_config` does, and where a key outside RESUMABLE_KEYS would change.
    """
    given = {
        key: (value, source)
        for key, (value, source) in _given(file, environ, flags).items()
        if value or key not in AUTOMATIC_KEYS
    }
    if "population_limit" in given:
        given.setdefault("max_population", (0, ""))
    for key, (value, source) in given.items():
        was = getattr(base, key)
        if value != was and key not in RESUMABLE_KEYS:
            raise ConfigError(
                f"{key}: expected {was!r} as in the run that is resumed, got {value!r} from {source}; "
                f"leave it out, or start a new run"
            )
    return msgspec.structs.replace(base, **{key: value for key, (value, _) in given.items()})


def to_json(config: RunConfig) -> str:
    """JSON text that `load_config` reads back equal."""
    return msgspec.json.format(msgspec.json.encode(config), indent=2).decode() + "\n"


def add_config_flags(parser: argparse.ArgumentParser) -> None:
    """Gives the parser a flag for each key; a flag that is not given leaves no trace in the namespace."""
    group = parser.add_argument_group("settings of the run")
    for key, field in _FIELDS.items():
        kind = _kind(key)
        group.add_argument(
            _flag(key),
            default=argparse.SUPPRESS,
            choices=kind.values if isinstance(kind, LiteralType) else None,
            metavar=_METAVARS.get(type(kind)),
            help=f"{field.type.__metadata__[0].description} (default: {field.default})",
        )


def _given(file: SourceFile | None, environ: Mapping[str, str], flags: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    """Each key that a source gives: its checked value, and the source that won."""
    given = _from_file(*file) if file else {}
    for name, text in environ.items():
        if name.startswith(_PREFIX) and name not in _FOREIGN_VARIABLES:
            key = _known(name, _VARIABLES, "the environment", others=_FOREIGN_VARIABLES)
            given[key] = _checked(key, text, f"environment variable {name}", strict=False)
    for key in KEYS:
        if key in flags:
            given[key] = _checked(key, flags[key], f"flag {_flag(key)}", strict=False)
    return given


def _from_file(name: str, text: str) -> dict[str, tuple[Any, str]]:
    suffix = name.lower().rpartition(".")[2]
    decoders: dict[str, Callable[[str], Any]] = {"toml": tomllib.loads, "json": msgspec.json.decode}
    if suffix not in decoders:
        raise ConfigError(f"{name}: expected a file name that ends in .toml or .json")
    try:
        entries = decoders[suffix](text)
    except ValueError as error:
        raise ConfigError(f"{name}: expected valid {suffix.upper()}: {error}") from error
    if not isinstance(entries, dict):
        raise ConfigError(f"{name}: expected an object of keys and values, got {text.strip()[:40]!r}")
    given: dict[str, tuple[Any, str]] = {}
    for spelling, value in entries.items():
        if isinstance(value, dict):
            raise ConfigError(f"{spelling}: expected a value, got a table from {name}; keys stand outside of tables")
        key = _known(spelling, _SPELLINGS, name)
        if key in given:
            raise ConfigError(f"{spelling}: expected one spelling of {key}, got two from {name}; delete one")
        given[key] = _checked(key, value, name, strict=True)
    return given


def _known(spelling: str, spellings: Mapping[str, str], source: str, others: Iterable[str] = ()) -> str:
    if spelling in spellings:
        return spellings[spelling]
    nearest = difflib.get_close_matches(spelling, [*spellings, *others], n=1)
    remedy = f"did you mean {nearest[0]}?" if nearest else "--help lists all keys"
    raise ConfigError(f"{spelling}: expected a known key, got this one from {source}; {remedy}")


def _checked(key: str, value: object, source: str, *, strict: bool) -> tuple[Any, str]:
    """The value in its key's type, and its source; unless strict, text becomes a number where one is due."""
    try:
        return msgspec.convert(value, _FIELDS[key].type, strict=strict), source
    except msgspec.ValidationError:
        raise ConfigError(f"{key}: expected {_expectation(key)}, got {value!r} from {source}") from None


def _expectation(key: str) -> str:
    kind = _kind(key)
    match kind:
        case LiteralType(values=values):
            return f"one of {', '.join(map(str, values))}"
        case BoolType():
            return "true or false"
        case IntType() | FloatType():
            noun = "a whole number" if isinstance(kind, IntType) else "a number"
            bounds = {"at least": kind.ge, "above": kind.gt, "at most": kind.le, "below": kind.lt}
            limits = [f"{words} {bound}" for words, bound in bounds.items() if bound is not None]
            return f"{noun}, {' and '.join(limits)}"
        case _:
            return "text that is not empty"


def _kind(key: str) -> Type:
    described = type_info(_FIELDS[key].type)
    assert isinstance(described, Metadata), f"{key} lacks its Meta"
    return described.type


def _flag(key: str) -> str:
    return f"--{key.replace('_', '-')}"
