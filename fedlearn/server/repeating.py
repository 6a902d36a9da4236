"""A run's own `config.json` as the settings of another run that begins as it did."""

from pathlib import Path

import msgspec

from fedlearn.storage.origin import load_origin
from fedlearn.storage.runs import RunFolder

OF_THE_MOMENT = ("port", "runs", "step_num")
"""Keys that say where a run is and how far: of another run they are others."""


def as_begun(path: Path, text: str, *, is_new: bool = True) -> str:
    """The text of a configuration file; a run's own is left without what is of the moment.

    Another run that `is_new` begins at the step at which that one did.

    Raises StorageError for a run's folder that does not say how the run began.
    """
    folder = RunFolder(path.parent)
    if path.name != folder.config.name or not folder.genesis.is_file():
        return text
    try:
        groups = msgspec.json.decode(text, type=dict[str, dict[str, object]])
    except (msgspec.DecodeError, RecursionError):
        return text  # whoever reads it says what is wrong with it
    kept = {
        name: {key: value for key, value in group.items() if key not in OF_THE_MOMENT} for name, group in groups.items()
    }
    if is_new:
        origin, _ = load_origin(folder)
        kept.setdefault("run", {})["step_num"] = origin.step
    return msgspec.json.encode(kept).decode()
