"""A run on disk: its folder, configuration, text and objective."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from fedlearn.app.snapshots import replica_of, snapshot_of
from fedlearn.app.throughput import measure_throughput, probe_of, threads_of
from fedlearn.config import AUTOMATIC_KEYS, ConfigError, RunConfig, load_config, to_json
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.replica import Replica
from fedlearn.es.schedules import LearningRateSchedule, Schedule
from fedlearn.es.strategy import Strategy
from fedlearn.objectives import Objective, build_objective
from fedlearn.recipe import LEAST_HIDDEN_SIZE, REFERENCE_HIDDEN_SIZE, settle
from fedlearn.storage.checkpoint import write_checkpoint
from fedlearn.storage.datasets import Dataset, build_dataset, load_dataset, save_dataset
from fedlearn.storage.durable import write_durably
from fedlearn.storage.runs import RunFolder, create_run, resolve_run
from fedlearn.text.blocks import block_id, cut_blocks
from fedlearn.text.tokens import TokenArray
from fedlearn.wire.limits import DEFAULT_MAX_SNAPSHOT_BYTES
from fedlearn.wire.messages import Snapshot

MAX_BLOCK_TOKENS = 2**24
"""Of one token block, which a volunteer holds in memory and receives in one message."""

MAX_PARAMETERS = (DEFAULT_MAX_SNAPSHOT_BYTES - 4096) // 12
"""Of a model: weights and two moments in float32, with a Snapshot's few other bytes."""

MAX_SUMMED_PARAMETERS = 2**24
"""Of a model whose estimates travel in Results and Updates."""

Model = dict[str, str | int | float]
Measure = Callable[..., float]
"""`measure_throughput`, or what a test has in its place."""


class Run(msgspec.Struct, frozen=True):
    """Everything about a run that never changes while it goes on."""

    folder: RunFolder
    config: RunConfig
    dataset: Dataset
    model: Model
    objective: Objective
    blocks: dict[bytes, TokenArray]
    """Token blocks by name, in the order in which they are used."""
    reasons: tuple[str, ...] = ()
    """Of a new run: why the values that it chose itself are what they are."""

    def bits_per_character(self, loss: float) -> float:
        """The training loss (nats per token) in bits per character of the training text."""
        return self.dataset.train.bits_per_character(loss)

    def validation_bits_per_character(self, replica_weights: np.ndarray, *, threads: int) -> float:
        """How well these weights predict the validation text."""
        validation = self.dataset.validation
        loss = self.objective.text_loss(replica_weights, validation.tokens, threads=threads)
        return validation.bits_per_character(loss)

    def new_replica(self, snapshot: Snapshot) -> Replica:
        """A replica as the snapshot has it."""
        return replica_of(
            snapshot,
            layout=self.objective.layout,
            seed=self.config.seed,
            row_masks=lambda update: self.objective.row_masks(update, self.block(update.block)),
        )

    def block(self, name: bytes) -> TokenArray:
        """The tokens of a block. Raises ValueError for a name that the run does not have."""
        if name not in self.blocks:
            raise ValueError(f"token block {name.hex()}: not one of the run's; its data folder was changed")
        return self.blocks[name]


def strategy_of(config: RunConfig) -> Strategy:
    """The strategy that a configuration stands for."""
    return Strategy(
        perturbation=Perturbation(
            space=config.perturb,
            sigma=config.sigma,
            rank=config.rank,
            antithetic=config.antithetic,
            head=config.head,
            logit_sigma=config.logit_sigma,
            discount=config.discount,
        ),
        group_size=config.group_size,
        population_limit=config.population_limit,
        max_population=config.max_population,
        learning_rate=config.learning_rate,
        optimizer=config.optimizer,
        beta1=config.beta1,
        beta2=config.beta2,
        fitness_shaping=config.fitness_shaping,
        weight_decay=config.weight_decay,
        schedule=Schedule(
            learning_rate=_learning_rate_schedule(config),
            sigma=config.sigma_schedule,
            warmup_steps=config.warmup_steps,
            steps=config.steps,
            duration_s=config.duration,
        ),
    )


def _learning_rate_schedule(config: RunConfig) -> LearningRateSchedule:
    if config.learning_rate_schedule != "auto":
        return config.learning_rate_schedule
    return "linear" if config.has_end else "inverse-sqrt"


def create(config: RunConfig, *, measure: Measure = measure_throughput) -> Run:
    """A new run: its folder with configuration, text, and genesis. Where that fails no folder stays.

    Values that the configuration leaves open are chosen here; `measure` is called only where there are any.

    Raises ConfigError for a text or a model that can't be had, StorageError where the disk refuses.
    """
    dataset = build_dataset(
        config.data, tokenizer=config.tokenizer, vocab_size=config.vocab_size, documents=config.documents
    )
    config, reasons = _settle(config, dataset, measure)
    folder = create_run(Path(config.runs))
    try:
        run = msgspec.structs.replace(_describe(folder, config, dataset), reasons=reasons)
        save_dataset(folder.data, dataset)
        write_checkpoint(folder.genesis, _genesis_of(run), layout=layout_json(run), config=to_json(config))
        write_durably(folder.config, to_json(config).encode())
    except BaseException as error:
        shutil.rmtree(folder.path, ignore_errors=True)
        if isinstance(error, MemoryError):
            raise _too_large(config, "fits in memory") from error
        raise
    return run


def load(folder: RunFolder) -> Run:
    """The run in a folder."""
    return _describe(folder, load_run_config(folder), load_dataset(folder.data))


def load_run_config(folder: RunFolder) -> RunConfig:
    """The configuration in a run's folder. Raises ConfigError when it was damaged."""
    config = load_config((str(folder.config), folder.config.read_text(encoding="utf-8")), {}, {})
    if not config.is_settled:
        missing = ", ".join(key for key in AUTOMATIC_KEYS if not getattr(config, key))
        raise ConfigError(f"{missing}: expected the values of the run, got 0 from {folder.config}; put them back")
    return config


def find(root: str, text: str) -> Run:
    """The run that `text` names under `root`: a number, `latest`, or a folder."""
    return load(resolve_run(Path(root), text))


def layout_json(run: Run) -> str:
    """The parameter layout, as it stands in checkpoints."""
    return msgspec.json.encode(run.objective.layout).decode()


def age_of(folder: RunFolder) -> float:
    """Seconds since the run last wrote anything."""
    files = [folder.config, folder.journal, folder.metrics]
    return time.time() - max(file.stat().st_mtime for file in files if file.exists())


def _settle(config: RunConfig, dataset: Dataset, measure: Measure) -> tuple[RunConfig, tuple[str, ...]]:
    """The configuration with nothing left open, and why it is so."""
    if config.is_settled:
        return config, ()
    n_tokens, vocab_size = len(dataset.train.tokens), dataset.tokenizer.vocab_size
    probe, _ = settle(probe_of(config), throughput=1.0, n_training_tokens=n_tokens, vocab_size=vocab_size)
    objective = build_objective(_model_of(probe, vocab_size), probe.seed)
    # A model that no hidden size makes small enough is refused before it takes memory.
    least = msgspec.structs.replace(config, hidden_size=config.hidden_size or LEAST_HIDDEN_SIZE)
    _check_size(least, build_objective(_model_of(least, vocab_size), least.seed))
    threads = threads_of(config)
    throughput = measure(objective, strategy_of(probe), dataset, threads=threads)
    settled, reasons = settle(config, throughput=throughput, n_training_tokens=n_tokens, vocab_size=vocab_size)
    whose = "of the local volunteers" if config.volunteers else "as no volunteer is local"
    measured = (
        f"measured: {throughput / 1e6:.3g} million trial-tokens/s at hidden_size {REFERENCE_HIDDEN_SIZE}, "
        f"{threads} thread{'' if threads == 1 else 's'} {whose}"
    )
    return settled, (measured, *reasons)


def _genesis_of(run: Run) -> Snapshot:
    weights = run.objective.initial_weights(run.dataset.unigram_counts)
    zeros = np.zeros_like(weights)
    return snapshot_of(run.new_replica(Snapshot(run.config.step_num, bytes(8), weights, zeros, zeros, 1.0, 1.0)))


def _too_large(config: RunConfig, limit: str) -> ConfigError:
    return ConfigError(
        f"hidden_size, n_layers: expected a model that {limit}, "
        f"got {config.hidden_size} and {config.n_layers}; lower them"
    )


def _check_size(config: RunConfig, objective: Objective) -> None:
    """Raises ConfigError for a model that messages can't hold."""
    is_summed = strategy_of(config).perturbation.is_summed
    limit = MAX_SUMMED_PARAMETERS if is_summed else MAX_PARAMETERS
    size = objective.layout.size
    if size <= limit:
        return
    n_controls = sum(tensor.size for tensor in objective.layout.tensors if tensor.name.startswith("control."))
    if size - n_controls <= limit:
        raise ConfigError(
            f"control_variates: expected at most {limit} parameters in all, got {size}, of which {n_controls} are "
            f"control matrices; set control_variates = 0, head = closed-form, or a smaller vocabulary"
        )
    raise _too_large(config, f"has at most {limit} parameters")


def _model_of(config: RunConfig, vocab_size: int) -> Model:
    model: Model = {
        "architecture": "rnn",
        "vocab_size": vocab_size,
        "hidden_size": config.hidden_size,
        "n_layers": config.n_layers,
        "context": config.context,
        "sequence_length": config.sequence_length,
        "batch_size": config.batch_size,
        "embedding_scale": config.embedding_scale,
        "precision": config.precision,
    }
    if config.perturb == "activations":
        model["control_taps"] = config.control_variates
        model["control_features"] = "residuals" if config.head == "closed-form" else "tokens"
    return model


def _describe(folder: RunFolder, config: RunConfig, dataset: Dataset) -> Run:
    model = _model_of(config, dataset.tokenizer.vocab_size)
    objective = build_objective(model, config.seed)
    _check_size(config, objective)
    tokens = dataset.train.tokens
    block_tokens = config.block_tokens if config.new_tokens_interval else 0
    if (longest := max(length for _, length in cut_blocks(tokens, block_tokens))) > MAX_BLOCK_TOKENS:
        raise ConfigError(
            f"data: expected at most {MAX_BLOCK_TOKENS} tokens in one block, got {longest}; "
            "set new_tokens_interval, so that volunteers get the text in turns"
        )
    pieces = [tokens[start : start + length] for start, length in cut_blocks(tokens, block_tokens)]
    return Run(
        folder=folder,
        config=config,
        dataset=dataset,
        model=model,
        objective=objective,
        blocks={block_id(piece): piece for piece in pieces},
    )
