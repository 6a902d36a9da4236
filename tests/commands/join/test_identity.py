import argparse
import sys
from pathlib import Path

import pytest

from fedlearn.commands.arguments import add_identity
from fedlearn.commands.join.identity import identity_command
from fedlearn.storage.credentials import load_identity, read_allowed


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_identity(parser)
    return parser.parse_args(arguments)


def test_identity_is_shown_as_a_list_of_allowed_ones_takes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.pem"
    assert identity_command(parsed("--identity", str(path))) == 0
    shown = capsys.readouterr().out
    (tmp_path / "allow").write_text(shown)
    assert read_allowed(str(tmp_path / "allow")) == frozenset({load_identity(path).public_key.hex()})


def test_identity_that_can_not_be_kept_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert identity_command(parsed()) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "can be neither read nor made" in shown.err


@pytest.mark.skipif(sys.platform == "win32", reason="no modes of files")
def test_identity_that_others_can_read_is_shown_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.pem"
    load_identity(path)
    path.chmod(0o644)
    assert identity_command(parsed("--identity", str(path))) == 0
    shown = capsys.readouterr()
    assert shown.out == f"{load_identity(path).public_key.hex()}\n"
    assert "only its owner can read" in shown.err
