"""The kind `rnn`: from a text and a few settings to a recurrent network that can be trained."""

from typing import final

import msgspec

import es_core
from fedlearn.config import ConfigError, RunConfig
from fedlearn.es.strategy import Strategy
from fedlearn.tasks.blocks import Columns, block_name
from fedlearn.tasks.invitation import Invitation, Option
from fedlearn.tasks.kind import DataFolder, Kind, Measure, Prepared
from fedlearn.tasks.limits import MAX_PARAMETERS, MAX_SUMMED_PARAMETERS, UNBOUNDED
from fedlearn.tasks.objective import Objective
from fedlearn.tasks.reason import Reason, Reasons
from fedlearn.tasks.rnn.dataset import Dataset, dataset_files, dataset_in
from fedlearn.tasks.rnn.examiner import RnnExaminer
from fedlearn.tasks.rnn.objective import RnnObjective
from fedlearn.tasks.rnn.options import RnnOptions, check_abilities, options_of, wants_weights
from fedlearn.tasks.rnn.recipe import (
    LEAST_HIDDEN_SIZE,
    REFERENCE_HIDDEN_SIZE,
    choose_optimizer,
    choose_precision,
    members_per_s,
    probe_of,
    settle,
)
from fedlearn.tasks.rnn.text_blocks import TextBlocks, text_blocks
from fedlearn.tasks.rnn.tokenizing import build_dataset
from fedlearn.tasks.strategy import strategy_of
from fedlearn.tasks.task import Device
from fedlearn.tasks.user.named_task import NamedTask
from fedlearn.text.source import Progress

BLOCKS_FILE = "blocks.json"
"""The file with the names of the blocks in the run's data folder."""


@final
class RnnKind(Kind):
    """Trains on a text that the configuration names; no code of a user's takes part."""

    name = "rnn"
    options = RnnOptions
    perturbs_activations = True

    def start(
        self,
        config: RunConfig,
        task: NamedTask | None,
        *,
        folder: DataFolder,
        measure: Measure,
        progress: Progress,
    ) -> Prepared:
        del task
        options = options_of(config)
        check_abilities(config)
        dataset = build_dataset(
            folder.source(options.data, options.encoding, progress),
            folder,
            tokenizer=options.tokenizer,
            vocab_size=options.vocab_size,
            documents=options.documents,
            progress=progress,
        )
        progress.begin("cutting blocks")
        blocks = text_blocks(folder, dataset, options)
        names = tuple(map(block_name, blocks))
        config, precise = choose_precision(config, es_core.current_isa())
        config, stepped = choose_optimizer(config)
        settled, reasons, speed = _settled(config, dataset, blocks[0], measure)
        prepared = _prepared(settled, dataset, blocks, names)
        files = {**dataset_files(dataset), BLOCKS_FILE: msgspec.json.encode([name.hex() for name in names])}
        notes = [Reason(note) for note in (_on_documents(dataset), blocks.note) if note]
        return msgspec.structs.replace(
            prepared, files=files, reasons=(*notes, *precise, *stepped, *reasons), members_per_s=speed
        )

    def wants_weights(self, config: RunConfig) -> str:
        return wants_weights(config)

    def reopen(self, config: RunConfig, task: NamedTask | None, *, folder: DataFolder) -> Prepared:
        del task
        dataset = dataset_in(folder)
        blocks = text_blocks(folder, dataset, options_of(config))
        return _prepared(config, dataset, blocks, _names_in(folder, len(blocks)))

    def join(
        self, invitation: Invitation, task: NamedTask | None, *, device: Device, max_bytes: int = UNBOUNDED
    ) -> Objective:
        del device, max_bytes  # its kernels are the processor's, and nothing is allocated yet
        if task is not None:
            raise ValueError(
                f"task: expected none, since this server trains a recurrent network, got {task.entry}; leave --task out"
            )
        return RnnObjective.from_options(invitation.options, invitation.seed)


KIND = RnnKind()


def _prepared(config: RunConfig, dataset: Dataset, blocks: TextBlocks, names: tuple[bytes, ...]) -> Prepared:
    described = _described(config, dataset)
    objective = RnnObjective.from_options(described, config.run.seed, unigram_counts=dataset.unigram_counts)
    _check_size(config, objective)
    return Prepared(
        config=config,
        objective=objective,
        examiner=RnnExaminer(objective, dataset),
        invitation=Invitation(KIND.name, config.run.seed, described, {}),
        blocks=blocks,
        block_names=names,
        steps_per_block=blocks.interval,
    )


def _names_in(folder: DataFolder, n_blocks: int) -> tuple[bytes, ...]:
    """The names of the run's blocks, which are not computed again: that would take a look at all of the text."""
    try:
        names = tuple(bytes.fromhex(name) for name in msgspec.json.decode(folder.read(BLOCKS_FILE), type=list[str]))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{BLOCKS_FILE}: expected the names of the run's blocks, got: {error}") from error
    if len(names) != n_blocks:
        raise ValueError(f"{BLOCKS_FILE}: expected {n_blocks} names, got {len(names)}; restore it from a copy")
    return names


def _on_documents(dataset: Dataset) -> str:
    """What is to be said of packed documents."""
    n_documents, n_tokens = dataset.record.n_documents, len(dataset.train.tokens)
    if not n_documents:
        return ""
    n_stops = int(dataset.unigram_counts[dataset.tokenizer.stop_token])
    return (
        f"documents: {n_documents} are packed one after another, {n_tokens / n_stops:.3g} tokens each on average; "
        f"fill rate 100 %: no position is padding, {n_stops / n_tokens:.2%} are <stop>; the state is reset at <stop>"
    )


OF_THE_MODEL = (
    "hidden_size",
    "n_layers",
    "context",
    "sequence_length",
    "batch_size",
    "embedding_scale",
    "precision",
    "cell",
)
"""Settings that say what network volunteers build."""


def _described(config: RunConfig, dataset: Dataset) -> dict[str, Option]:
    """What volunteers build the objective from."""
    options, strategy = options_of(config), config.strategy
    described: dict[str, Option] = {"vocab_size": dataset.tokenizer.vocab_size}
    described |= {name: getattr(options, name) for name in OF_THE_MODEL}
    if strategy.perturb == "activations":
        described["control_variates"] = options.control_variates
        described["control_residuals"] = "head" if strategy.head == "closed-form" else "readout"
    if dataset.record.reset_token >= 0:
        described["reset_token"] = dataset.record.reset_token
    return described


def _settled(config: RunConfig, dataset: Dataset, data: Columns, measure: Measure) -> tuple[RunConfig, Reasons, float]:
    """The configuration with nothing left open, why it is so, and members per second; 0 where none were measured."""
    if config.is_settled:
        return config, (), 0.0
    n_tokens, vocab_size = len(dataset.train.tokens), dataset.tokenizer.vocab_size
    probe, _ = settle(probe_of(config), throughput=1.0, n_training_tokens=n_tokens, vocab_size=vocab_size)
    objective = RnnObjective.from_options(_described(probe, dataset), probe.run.seed)
    # A model that no hidden size makes small enough is refused before it takes memory.
    least = config.replace({"hidden_size": options_of(config).hidden_size or LEAST_HIDDEN_SIZE})
    _check_size(least, RnnObjective.from_options(_described(least, dataset), least.run.seed))
    strategy: Strategy = strategy_of(probe)
    throughput = measure(objective, strategy, data) * objective.work_per_member
    settled, reasons = settle(config, throughput=throughput, n_training_tokens=n_tokens, vocab_size=vocab_size)
    measured = f"measured: {throughput / 1e6:.3g} million trial-tokens/s at hidden_size {REFERENCE_HIDDEN_SIZE}"
    speed = members_per_s(settled, throughput=throughput, vocab_size=vocab_size)
    return settled, (Reason(measured), *reasons), speed


def _check_size(config: RunConfig, objective: RnnObjective) -> None:
    """Refuses a model that does not fit into messages.

    Raises:
        ConfigError: it has too many parameters.
    """
    limit = MAX_SUMMED_PARAMETERS if strategy_of(config).perturbation.is_summed else MAX_PARAMETERS
    size = objective.layout.size
    if size <= limit:
        return
    n_controls = sum(tensor.size for tensor in objective.layout.tensors if tensor.name.startswith("control."))
    if size - n_controls <= limit:
        raise ConfigError(
            f"control_variates: expected at most {limit} parameters in all, got {size}, of which {n_controls} are "
            f"control matrices; set control_variates = false, head = closed-form, or a smaller vocabulary"
        )
    options = options_of(config)
    raise ConfigError(
        f"hidden_size, n_layers: expected a model that has at most {limit} parameters, "
        f"got {options.hidden_size} and {options.n_layers}; lower them"
    )
