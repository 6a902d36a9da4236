"""Configuration files of an earlier text trainer: its spellings of our keys, and those of its keys that mean nothing
here."""

from typing import Any, NamedTuple

from fedlearn.config.setting import ConfigError

SPELLINGS = {
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
"""Our key for each of its spellings, which any file may use."""

MODEL_TYPE = "modelType"
"""The key that tells its files from all others."""

RECURRENT, CHAT = "rnn", "chat"


class Translated(NamedTuple):
    """The entries of such a file that have a meaning here, and sentences about the others."""

    entries: dict[str, Any]
    notes: tuple[str, ...]


def translated(name: str, entries: dict[str, Any], known: frozenset[str]) -> Translated:
    """The entries of a file of that trainer, of which those in `known` and in SPELLINGS are ours; other files are left
    as they are.

    Raises:
        ConfigError: it trains another type of model.
    """
    if MODEL_TYPE not in entries:
        return Translated(entries, ())
    if (model := entries[MODEL_TYPE]) not in (RECURRENT, CHAT):
        raise ConfigError(f"{MODEL_TYPE}: expected {RECURRENT} or {CHAT}, got {model!r} from {name}")
    kept = {key: value for key, value in entries.items() if key in known or key in SPELLINGS}
    notes = []
    if model == CHAT:
        notes.append(f"{name}: {MODEL_TYPE} {CHAT} is trained as {RECURRENT}, on the texts that data names")
    if kept.pop("stepNum", 0):
        notes.append(f"{name}: stepNum is left out, since the run begins at step 0 with weights of its own")
    if others := sorted(entries.keys() - kept.keys() - {MODEL_TYPE, "stepNum"}):
        notes.append(f"{name}: {', '.join(others)} mean nothing here and are left out")
    return Translated(kept, tuple(notes))
