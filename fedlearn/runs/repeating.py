"""A run's own `config.json` as the configuration of another run that begins as it did."""

from pathlib import Path

import msgspec

from fedlearn.config.server_settings import ServerSettings, VolunteerSettings
from fedlearn.config.setting import keys_with
from fedlearn.storage.origin import load_origin
from fedlearn.storage.runs import RunFolder

OF_THE_MOMENT = frozenset(
    {"runs", "step_num", *keys_with(ServerSettings, "of_start"), *keys_with(VolunteerSettings, "of_start")}
)
"""Keys about a run's folder, its progress, and its server, which another run does not share."""


def as_begun(path: Path, text: str, *, is_new: bool = True) -> str:
    """Reads the text of a configuration file, and drops the keys in OF_THE_MOMENT from a run's own.

    A run that `is_new` begins at the step at which that run began.

    Raises:
        StorageError: the folder of the run does not say how the run began.
    """
    folder = RunFolder(path.parent)
    if path.name != folder.config.name or not folder.genesis.is_file():
        return text
    try:
        groups = msgspec.json.decode(text, type=dict[str, dict[str, object]])
    except (msgspec.DecodeError, RecursionError):
        return text  # the reader of the configuration says what is wrong with it
    kept = {
        name: {key: value for key, value in group.items() if key not in OF_THE_MOMENT} for name, group in groups.items()
    }
    if is_new:
        origin, _ = load_origin(folder)
        kept.setdefault("run", {})["step_num"] = origin.step
    return msgspec.json.encode(kept).decode()
