"""Verbs of a device's owner: what is called, with what, and everything that is refused."""

import json
import sys
from pathlib import Path

import psutil
import pytest

from fedlearn.client import verbs as module
from fedlearn.client.verbs import VerbError, VerbResult, Verbs
from tests.patience import LIMIT_S

if sys.platform == "win32":
    pytest.skip("a device of Windows offers no verbs", allow_module_level=True)

ECHO = f"#!{sys.executable}\nimport os, sys\nprint(sys.argv[1:], sys.stdin.read(), sorted(os.environ), os.getcwd())\n"


def put(folder: Path, name: str, text: str = ECHO, *, mode: int = 0o755) -> Path:
    (folder / name).write_text(text)
    (folder / name).chmod(mode)
    return folder / name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "verbs"
    made.mkdir(mode=0o755)
    put(made, "echo")
    return made


def test_arguments_come_as_json_on_standard_input_and_nowhere_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDLEARN_TOKEN", "secret")
    given = {"path": "$(touch here); `id`", "n": [1, 2.5, None], "--flag": "é"}
    found = Verbs(folder).call("echo", given)
    assert found.code == 0
    assert found.output.startswith("[] " + json.dumps(given, ensure_ascii=False, separators=(",", ":")))
    assert "FEDLEARN_TOKEN" not in found.output
    assert "secret" not in found.output
    assert found.output.rstrip().endswith(str(folder.resolve()))
    assert [path.name for path in folder.iterdir()] == ["echo"]


@pytest.mark.parametrize(
    "name", ["", "../echo", "/bin/sh", "echo;id", "echo x", "Echo", ".echo", "a/b", "-rf", "echo\n", "e" * 65, "\x00"]
)
def test_a_name_that_is_no_verbs_is_no_path_either(folder: Path, name: str) -> None:
    with pytest.raises(VerbError, match="expected a name of small letters"):
        Verbs(folder).call(name, {})


def test_only_executables_of_the_owners_own_are_verbs(folder: Path) -> None:
    verbs = Verbs(folder)
    put(folder, "notes", mode=0o644)
    put(folder, "open", mode=0o777)
    put(folder, "for-group", mode=0o775)
    (folder / "link").symlink_to("/bin/sh")
    (folder / "dir").mkdir()
    put(folder, "README")
    assert verbs.names() == ("echo",)
    for name, why in (
        ("none", "expected one of echo; its owner puts an executable there"),
        ("notes", r"expected an executable, got another file; chmod u\+x"),
        ("open", "got one that its group or everybody can write to; chmod go-w"),
        ("for-group", "got one that its group or everybody can write to"),
        ("link", "expected a file, got a link or something else"),
        ("dir", "expected a file, got a link or something else"),
    ):
        with pytest.raises(VerbError, match=why):
            verbs.call(name, {})


def test_a_folder_that_others_may_fill_is_refused(folder: Path) -> None:
    folder.chmod(0o777)
    with pytest.raises(ValueError, match="--verbs: expected a folder that only its owner can change"):
        Verbs(folder)
    with pytest.raises(ValueError, match="--verbs: expected a folder of executables"):
        Verbs(folder / "echo")
    folder.chmod(0o755)
    with pytest.raises(ValueError, match="--verb-limit: expected seconds above 0"):
        Verbs(folder, limit_s=0.0)


def test_a_folder_that_is_opened_to_others_later_has_no_verbs_any_more(folder: Path) -> None:
    verbs = Verbs(folder)
    folder.chmod(0o777)
    assert verbs.names() == ()
    with pytest.raises(VerbError, match="folder"):
        verbs.call("echo", {})


def test_one_that_takes_too_long_is_killed_with_all_that_it_started(folder: Path) -> None:
    put(folder, "slow", "#!/bin/sh\nsleep 1000 &\necho $! > pid\nwait\n")
    with pytest.raises(VerbError, match=r"expected its end within 0.5 s, it went on and was killed"):
        Verbs(folder, limit_s=0.5).call("slow", {})
    started = int((folder / "pid").read_text())
    # Whoever adopted it may not have looked yet.
    assert not psutil.pid_exists(started) or psutil.Process(started).wait(LIMIT_S) is None


def test_of_much_output_the_end_is_told_with_the_exit_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OUTPUT_BYTES", 10)
    put(folder, "babble", "#!/bin/sh\necho 0123456789abcdef\necho end >&2\nexit 3\n")
    assert Verbs(folder).call("babble", {}) == VerbResult(3, "bcdef\nend\n")
