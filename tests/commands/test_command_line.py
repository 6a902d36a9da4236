import io
import os
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

import fedlearn
from fedlearn.commands.command_line import GROUPS, main
from fedlearn.config import RunConfig, flag_of
from fedlearn.system.children import NO_ANSWER
from fedlearn.tasks.registry import find_kind, kind_names
from fedlearn.wire.messages import PROTOCOL_VERSION
from tests.run_folders import created


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("SERVER", "NAME", "THREADS", "RUNS"):
        monkeypatch.delenv(f"FEDLEARN_{name}", raising=False)
    # Where another test has imported PyTorch here, a volunteer would be started that outlives its test.
    monkeypatch.setattr("fedlearn.commands.train.serve._volunteer_ahead", lambda *_: None)


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


def outcome(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int | str | None, str]:
    """Exit code, and all that was printed."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    shown = capsys.readouterr()
    return ended.value.code, shown.out + shown.err


def test_taken_port_is_told_once_and_leaves_no_run(
    config: RunConfig, taken_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    code, shown = outcome(capsys, "serve", "--port", str(taken_port), "--data", *config.get("data"))
    assert code == 1
    message = f"port: {taken_port} is taken by another program; stop that one, or choose another with --port"
    assert shown == f"fedlearn: {message}\n"
    assert not Path("trainingRuns").exists()


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_address_of_another_machine_is_told_once_and_leaves_no_run(
    config: RunConfig, capsys: pytest.CaptureFixture[str], host: str
) -> None:
    code, shown = outcome(capsys, "serve", "--host", host, "--port", "0", "--data", *config.get("data"))
    assert code == 1
    assert re.fullmatch(rf"fedlearn: host: expected an address of this machine, got '{host}'.*--host\n", shown)
    assert not Path("trainingRuns").exists()


@pytest.mark.parametrize("root", ["/proc/x", "file"])
def test_root_that_can_be_no_folder_is_named(
    config: RunConfig, capsys: pytest.CaptureFixture[str], tmp_path: Path, root: str
) -> None:
    (tmp_path / "file").touch()
    code, shown = outcome(capsys, "serve", "--runs", root, "--port", "0", "--data", *config.get("data"))
    assert (code, shown.count("\n")) == (1, 1)
    assert f"runs: expected a folder for run folders, got '{root}'" in shown


def test_file_that_the_system_refuses_is_named(config: RunConfig, capsys: pytest.CaptureFixture[str]) -> None:
    lock = created(config).folder.path / "lock"
    lock.mkdir()
    code, shown = outcome(capsys, "serve", "--resume", "1", "--runs", config.run.runs, "--port", "0")
    assert code == 1
    assert re.fullmatch(f"fedlearn: .*{lock}.*", shown.splitlines()[-1])


def test_client_that_is_to_come_once_fails_without_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        free_port = listener.getsockname()[1]
    code, shown = outcome(capsys, "join", "--once", "--server", f"127.0.0.1:{free_port}", "--threads", "1")
    assert code == NO_ANSWER
    assert "no server answers" in shown


def test_output_that_the_encoding_cannot_hold_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    with pytest.raises(SystemExit):
        main(["runs", "--runs", "Läufe"])
    assert b"no runs in L?ufe" in written.getvalue()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk that is always full")
@pytest.mark.parametrize(
    ("words", "buffering"),
    [(["runs"], 1), (["runs"], 4096), (["--version"], 4096), (["serve", "--help"], 2**20)],
    ids=["each line", "at the end", "version", "help"],
)
def test_output_that_a_full_disk_does_not_take_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], buffering: int
) -> None:
    with open("/dev/full", "w", buffering=buffering) as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as ended:
            main(words)
    assert ended.value.code == 1
    told = "output: could not be written: No space left on device; make room, or let it go elsewhere"
    assert capsys.readouterr().err == f"fedlearn: {told}\n"


def test_process_may_have_no_output_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(SystemExit) as ended:
        main(["runs"])
    assert ended.value.code == 0


def test_flag_of_another_kind_is_refused_with_its_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "fit.py").write_text(
        "import fedlearn\ntask = fedlearn.function(lambda a: a['x'].sum(), {'x': [1.0]})\n"
    )
    code, shown = outcome(capsys, "serve", "--task", "fit.py:task", "--hidden-size", "8")
    assert code == 1
    assert shown == "fedlearn: --hidden-size: expected a setting of function, got one of rnn; leave it out\n"


def test_task_that_is_no_kind_is_told_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = outcome(capsys, "serve", "--task", "nothing")
    assert code == 1
    assert re.search("task: expected one of .*, rnn, .*, or FILE.py:NAME of a task, got 'nothing'", shown)


def test_verbs_stand_below_their_headings(capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = outcome(capsys, "--help")
    assert code == 0
    assert shown.startswith("usage: fedlearn COMMAND ...\n")
    for heading, verbs in GROUPS.items():
        _, _, below = shown.partition(f"\n{heading}:\n")
        names = [line.split()[0] for line in below.partition("\n\n")[0].splitlines() if line[2] != " "]
        assert names == [name for name, *_ in verbs]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["smaple"], "fedlearn: expected a COMMAND, got 'smaple'; did you mean sample?\n"),
        (["zzzzz"], "fedlearn: expected a COMMAND, got 'zzzzz'; fedlearn --help shows what there is\n"),
        ([], "fedlearn: expected COMMAND, got none; fedlearn --help shows what there is\n"),
        (
            ["sample", "1", "The", "sea"],
            "fedlearn sample: expected flags, got 'The sea'; did you mean --prompt 'The sea'?\n",
        ),
        (["eval", "1", "2"], "fedlearn eval: expected flags, got 2; fedlearn eval --help shows what there is\n"),
    ],
)
def test_wrong_word_is_told_with_what_was_meant(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(capsys, *arguments) == (2, complaint)


def test_unknown_flag_is_told_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = outcome(capsys, "serve", "--hiden-size", "8")
    assert code == 2
    assert shown == "fedlearn serve: expected a known flag, got --hiden-size; did you mean --hidden-size?\n"


@pytest.mark.parametrize("verb", [name for verbs in GROUPS.values() for name, *_ in verbs])
def test_every_verb_has_its_help_and_its_command(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    code, shown = outcome(capsys, verb, "--help")
    assert code == 0
    assert shown.startswith(f"usage: fedlearn {verb}")


def test_verb_that_is_interrupted_while_it_is_imported_ends_quietly(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedlearn.commands.look.runs.add_runs", Mock(side_effect=KeyboardInterrupt))
    assert outcome(capsys, "runs") == (130, "")


def test_unknown_flag_like_no_other_is_told_with_where_all_stand(capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = outcome(capsys, "runs", "--zzzzz")
    assert code == 2
    assert shown == "fedlearn runs: expected a known flag, got --zzzzz; fedlearn runs --help shows what there is\n"


def test_flag_of_every_kind_is_known_to_serve(capsys: pytest.CaptureFixture[str]) -> None:
    _, shown = outcome(capsys, "serve", "--help-all")
    for name in kind_names():
        for key in find_kind(name).options.__struct_fields__:
            assert flag_of(key) in shown


def test_help_of_serve_shows_first_what_people_change_first(capsys: pytest.CaptureFixture[str]) -> None:
    code, few = outcome(capsys, "serve", "--help")
    assert code == 0
    assert few.startswith("usage: fedlearn serve [CONFIG] [flags]\n")
    assert {"--data", "--hidden-size", "--duration", "--help-all", "--host"} <= set(few.split())
    assert not {"--beta1", "--rank", "--connections-per-address", "--steps-per-block"} & set(few.split())
    assert 40 < len(few.splitlines()) < 120 < len(outcome(capsys, "serve", "--help-all")[1].splitlines())


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt(), 130), (BrokenPipeError(), 1), (ValueError("why"), 1), (OSError("why"), 1)]
)
def test_exit_code_says_what_went_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    monkeypatch.setattr("fedlearn.commands.look.runs.list_runs", Mock(side_effect=error))
    found, shown = outcome(capsys, "runs")
    assert found == code
    assert shown == ("fedlearn: why\n" if error.args else "")


def test_what_was_added_to_an_error_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = ValueError("no product")
    error.add_note("the loss failed on rows with the columns x")
    monkeypatch.setattr("fedlearn.commands.look.runs.list_runs", Mock(side_effect=error))
    assert outcome(capsys, "runs") == (1, "fedlearn: no product; the loss failed on rows with the columns x\n")


def test_foreign_texts_in_an_error_send_nothing_to_the_terminal(
    config: RunConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    run = created(config)
    run.folder.config.write_text('{"\\u001b[2J": 1}')
    code, shown = outcome(capsys, "eval", "1", "--runs", config.run.runs)
    assert code == 1
    assert shown.startswith("fedlearn: \\x1b[2J: expected a known key")


@pytest.mark.parametrize(("set_by_user", "expected"), [(None, "passive"), ("active", "active")])
def test_threads_that_wait_sleep_unless_the_user_wants_them_to_spin(
    set_by_user: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", set_by_user or "")  # so that it is as before afterwards
    if set_by_user is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    with pytest.raises(SystemExit):
        main(["--version"])
    assert os.environ["OMP_WAIT_POLICY"] == expected


def test_version_is_that_of_the_package_and_of_the_protocol(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(capsys, "--version") == (0, f"fedlearn {fedlearn.__version__}, protocol {PROTOCOL_VERSION}\n")


@pytest.mark.parametrize(
    ("code", "shown_line", "shown_error"),
    [
        ("import fedlearn\nx = {}['a']\n", "line 2, in <module>: x = {}['a']", "KeyError: 'a'"),
        (
            "import fedlearn\ndef loss(a):\n    raise RuntimeError('it exploded')\n"
            "task = fedlearn.function(loss, {'x': [1.0]}, covariance=False)\n",
            "line 3, in loss: raise RuntimeError('it exploded')",
            "RuntimeError: it exploded; the loss of a task",
        ),
    ],
)
def test_an_error_in_a_task_is_told_by_the_lines_of_its_file_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, code: str, shown_line: str, shown_error: str
) -> None:
    (tmp_path / "broken.py").write_text(code)
    exit_code, shown = outcome(capsys, "serve", "--task", "broken.py:task", "--port", "0", "--board", "0")
    assert exit_code == 1
    words = " ".join(shown.split())
    assert f"broken.py, {shown_line} fedlearn: {shown_error}" in words
    assert "Traceback" not in shown


def test_an_error_of_syntax_in_a_task_is_told_with_its_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("x = 1\ndef f(:\n")
    code, shown = outcome(capsys, "serve", "--task", "broken.py:task")
    assert (code, shown) == (1, "fedlearn: invalid syntax (broken.py, line 2)\n")
