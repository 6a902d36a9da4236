"""The kind `rnn`: from a text and a few settings to a recurrent network that can be trained."""

from typing import final

import msgspec

from fedlearn.config import ConfigError, RunConfig
from fedlearn.es.strategy import Strategy
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.invitation import Invitation, Option
from fedlearn.tasks.kind import Measure, Prepared, ReadFile
from fedlearn.tasks.limits import MAX_PARAMETERS, MAX_SUMMED_PARAMETERS, UNBOUNDED
from fedlearn.tasks.named_task import NamedTask
from fedlearn.tasks.objective import Objective
from fedlearn.tasks.rnn.dataset import Dataset, build_dataset, dataset_files, dataset_of
from fedlearn.tasks.rnn.examiner import RnnExaminer
from fedlearn.tasks.rnn.objective import RnnObjective
from fedlearn.tasks.rnn.options import RnnOptions, check_abilities, options_of
from fedlearn.tasks.rnn.recipe import LEAST_HIDDEN_SIZE, REFERENCE_HIDDEN_SIZE, probe_of, settle
from fedlearn.tasks.strategy import strategy_of
from fedlearn.tasks.task import Device
from fedlearn.text.blocks import cut_blocks
from fedlearn.text.tokens import TokenArray

MAX_BLOCK_TOKENS = 2**24
"""Of one token block, which a volunteer holds in memory and receives in one message."""


@final
class RnnKind:
    """Trains on a text that the configuration names; no code of a user's takes part."""

    name = "rnn"
    options = RnnOptions

    def start(self, config: RunConfig, task: NamedTask | None, *, read_file: ReadFile, measure: Measure) -> Prepared:
        del task
        options = options_of(config)
        check_abilities(config)
        dataset = build_dataset(
            options.data,
            read_file,
            tokenizer=options.tokenizer,
            vocab_size=options.vocab_size,
            documents=options.documents,
        )
        settled, reasons = _settled(config, dataset, measure)
        prepared = _prepared(settled, dataset)
        return msgspec.structs.replace(prepared, files=dataset_files(dataset), reasons=reasons)

    def reopen(self, config: RunConfig, task: NamedTask | None, *, read_file: ReadFile) -> Prepared:
        del task
        return _prepared(config, dataset_of(read_file))

    def join(
        self, invitation: Invitation, task: NamedTask | None, *, device: Device, max_bytes: int = UNBOUNDED
    ) -> Objective:
        del device, max_bytes  # its kernels are the processor's, and nothing is allocated yet
        if task is not None:
            raise ValueError(
                f"task: expected none, since this server trains an RNN, got {task.entry}; leave --task out"
            )
        return RnnObjective.from_options(invitation.options, invitation.seed)


KIND = RnnKind()


def _prepared(config: RunConfig, dataset: Dataset) -> Prepared:
    options = options_of(config)
    described = _described(config, dataset.tokenizer.vocab_size)
    objective = RnnObjective.from_options(described, config.run.seed, unigram_counts=dataset.unigram_counts)
    _check_size(config, objective)
    return Prepared(
        config=config,
        objective=objective,
        examiner=RnnExaminer(objective, dataset),
        invitation=Invitation(KIND.name, config.run.seed, described, {}),
        blocks=_blocks(dataset.train.tokens, options.block_tokens if options.new_tokens_interval else 0),
        steps_per_block=options.new_tokens_interval,
    )


def _blocks(tokens: TokenArray, block_tokens: int) -> tuple[Columns, ...]:
    pieces = cut_blocks(tokens, block_tokens)
    if (longest := max(length for _, length in pieces)) > MAX_BLOCK_TOKENS:
        raise ConfigError(
            f"data: expected at most {MAX_BLOCK_TOKENS} tokens in one block, got {longest}; "
            "set new_tokens_interval, so that volunteers get the text in turns"
        )
    return tuple({"tokens": tokens[start : start + length]} for start, length in pieces)


def _described(config: RunConfig, vocab_size: int) -> dict[str, Option]:
    """What volunteers build the objective from."""
    options, strategy = options_of(config), config.strategy
    described: dict[str, Option] = {
        "vocab_size": vocab_size,
        "hidden_size": options.hidden_size,
        "n_layers": options.n_layers,
        "context": options.context,
        "sequence_length": options.sequence_length,
        "batch_size": options.batch_size,
        "embedding_scale": options.embedding_scale,
        "precision": options.precision,
        "cell": options.cell,
    }
    if strategy.perturb == "activations":
        described["control_taps"] = options.control_variates
        described["control_features"] = "residuals" if strategy.head == "closed-form" else "tokens"
    return described


def _settled(config: RunConfig, dataset: Dataset, measure: Measure) -> tuple[RunConfig, tuple[str, ...]]:
    """The configuration with nothing left open, and why it is so."""
    if config.is_settled:
        return config, ()
    n_tokens, vocab_size = len(dataset.train.tokens), dataset.tokenizer.vocab_size
    probe, _ = settle(probe_of(config), throughput=1.0, n_training_tokens=n_tokens, vocab_size=vocab_size)
    objective = RnnObjective.from_options(_described(probe, vocab_size), probe.run.seed)
    # A model that no hidden size makes small enough is refused before it takes memory.
    least = config.replace({"hidden_size": options_of(config).hidden_size or LEAST_HIDDEN_SIZE})
    _check_size(least, RnnObjective.from_options(_described(least, vocab_size), least.run.seed))
    strategy: Strategy = strategy_of(probe)
    throughput = measure(objective, strategy, {"tokens": dataset.train.tokens}) * objective.work_per_member
    settled, reasons = settle(config, throughput=throughput, n_training_tokens=n_tokens, vocab_size=vocab_size)
    measured = f"measured: {throughput / 1e6:.3g} million trial-tokens/s at hidden_size {REFERENCE_HIDDEN_SIZE}"
    return settled, (measured, *reasons)


def _check_size(config: RunConfig, objective: RnnObjective) -> None:
    """Raises ConfigError for a model that messages can't hold."""
    limit = MAX_SUMMED_PARAMETERS if strategy_of(config).perturbation.is_summed else MAX_PARAMETERS
    size = objective.layout.size
    if size <= limit:
        return
    n_controls = sum(tensor.size for tensor in objective.layout.tensors if tensor.name.startswith("control."))
    if size - n_controls <= limit:
        raise ConfigError(
            f"control_variates: expected at most {limit} parameters in all, got {size}, of which {n_controls} are "
            f"control matrices; set control_variates = 0, head = closed-form, or a smaller vocabulary"
        )
    options = options_of(config)
    raise ConfigError(
        f"hidden_size, n_layers: expected a model that has at most {limit} parameters, "
        f"got {options.hidden_size} and {options.n_layers}; lower them"
    )
