"""The folders of the core keep apart what their numbers promise."""

import re
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "es_core" / "src"
ROOMS = {
    "replicated": {"replicated"},
    "rnn": {"replicated", "rnn"},
    "activations": {"replicated", "rnn", "activations"},
}
"""What the files of a room may include, beside the files that belong to none."""
ONLY_FOR_BINDINGS = {"dispatch.h", "bindings.h"}
"""Whoever asks for the instruction set in use twice in a call may get two answers."""


def foreign_includes(sources: Path, room: str) -> list[str]:
    found = []
    for path in sorted((sources / room).glob("*")):
        for included in re.findall(r'#include "([^"]+)"', path.read_text(encoding="utf-8")):
            folder = included.rpartition("/")[0]
            if folder not in {"", *ROOMS[room]} or included in ONLY_FOR_BINDINGS:
                found.append(f"{path.name}: {included}")
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_includes_nothing_of_the_rooms_above(room: str) -> None:
    assert len(list((SOURCES / room).glob("*.cpp"))) > 1
    assert foreign_includes(SOURCES, room) == []


def test_every_folder_is_a_room() -> None:
    assert {path.name for path in SOURCES.iterdir() if path.is_dir()} == set(ROOMS)


@pytest.mark.parametrize("included", ["activations/activity.h", "bindings.h", "dispatch.h"])
def test_a_foreign_include_is_seen(tmp_path: Path, included: str) -> None:
    (tmp_path / "rnn").mkdir()
    (tmp_path / "rnn" / "packing.cpp").write_text(
        f'#include "rnn/packing.h"\n#include <cmath>\n#include "{included}"\n#include "memory.h"\n', encoding="utf-8"
    )
    assert foreign_includes(tmp_path, "rnn") == [f"packing.cpp: {included}"]
