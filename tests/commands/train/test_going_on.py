"""What is served when a run goes on."""

from pathlib import Path

import pytest

from fedlearn.config import ConfigError
from fedlearn.storage.durable import StorageError
from fedlearn.storage.runs import lock_run, resolve_run
from tests.commands.train.conftest import SETTLED, Serve, write_task
from tests.run_folders import write_text


def test_resumed_run_has_what_it_was_begun_with_and_what_is_given_now(
    served: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = served("--task", write_task(tmp_path), *SETTLED, "--steps", "5")
    (tmp_path / "moved").mkdir()
    (tmp_path / "fit.py").rename(tmp_path / "moved/fit.py")
    task = f"{tmp_path / 'moved/fit.py'}:task"
    for run in ("1", "latest", "trainingRuns/1"):
        config = served("--resume", run, "--task", task, "--steps", "9", "--port", "0")
        assert config == begun.replace({"steps": 9, "task": task})
    title = "run 1 in trainingRuns/1: fit.py:task, a model of 5 parameters\n"
    assert capsys.readouterr().out.count(title) == 4
    assert [path.name for path in (tmp_path / "trainingRuns").iterdir()] == ["1"]


def test_a_device_that_is_not_here_is_refused_at_the_start_of_a_run_and_of_one_that_goes_on(
    served: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    flags = ["--task", write_task(tmp_path), "--port", "0"]
    with pytest.raises(ValueError, match=r"device: expected one that PyTorch .* got cuda"):
        served(*flags, *SETTLED, "--device", "cuda")
    assert not (tmp_path / "trainingRuns").exists()
    served(*flags, *SETTLED)
    with pytest.raises(ValueError, match=r"device: expected one that PyTorch .* got cuda"):
        served("--resume", "1", *flags, "--device", "cuda")
    assert served("--resume", "1", *flags, "--device", "cuda", "--volunteers", "0").volunteers.device == "cuda"


def test_what_the_environment_gives_is_not_asked_for_again(
    served: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FEDLEARN_BOARD")
    flags = ["--task", write_task(tmp_path), "--port", "0"]
    served(*flags, *SETTLED, "--board", "55599")
    capsys.readouterr()
    served("--resume", "1", *flags)
    assert "give it again where it is wanted: --board 55599\n" in capsys.readouterr().out
    served("--resume", "1", *flags, "--board", "55599")
    capsys.readouterr()
    monkeypatch.setenv("FEDLEARN_BOARD", "0")
    served("--resume", "1", *flags)
    assert "not taken over" not in capsys.readouterr().out


def test_door_is_opened_only_when_it_is_asked_for(
    served: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, flags = write_task(tmp_path), ["--task", "fit.py:task", "--port", "0"]
    (tmp_path / "token").write_text("a token that nobody guesses\n")
    door = ["--host", "0.0.0.0", "--token-file", "token", "--volunteers", "0", "--joins-per-minute", "7"]
    served("--task", task, *SETTLED, *door, "--audit", "0.5")
    capsys.readouterr()
    again = served("--resume", "1", *flags)
    assert (again.server.host, again.server.token_file, again.server.joins_per_minute) == ("127.0.0.1", "", 240)
    assert again.volunteers.volunteers > 0  # as many as a new run of this task has
    assert again.server.audit == 0.5
    assert (
        "give it again where it is wanted: --host 0.0.0.0 --token-file token --joins-per-minute 7 --volunteers 0\n"
        in (capsys.readouterr().out)
    )
    asked = served("--resume", "1", *flags, *door)
    assert (asked.server.host, asked.volunteers.volunteers) == ("0.0.0.0", 0)
    assert "not taken over" not in capsys.readouterr().out
    assert served("--resume", "1", *flags).server.host == "127.0.0.1"
    (tmp_path / "run.toml").write_text('host = "0.0.0.0"\n')
    assert served("run.toml", "--resume", "1", *flags).server.host == "0.0.0.0"
    assert served("trainingRuns/1/config.json", *flags).server.host == "127.0.0.1"


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--task", "rnn"], "task: expected one of kind function, .* got rnn of kind rnn; leave it out"),
        (
            ["--task", "fit.py:task", "--hidden-size", "8"],
            "--hidden-size: expected a setting of function, got one of rnn; leave it out",
        ),
        (
            ["--task", "fit.py:task", "--seed", "2"],
            "seed: expected 1 as in the run that is resumed, got 2 from flag --seed",
        ),
    ],
)
def test_run_is_not_resumed_as_another(served: Serve, tmp_path: Path, flags: list[str], complaint: str) -> None:
    served("--task", write_task(tmp_path), *SETTLED)
    with pytest.raises(ConfigError, match=complaint):
        served("--resume", "1", *flags)


def test_run_that_another_process_serves_is_left_alone(served: Serve, tmp_path: Path) -> None:
    served("--task", write_task(tmp_path), *SETTLED)
    with (
        lock_run(resolve_run(tmp_path / "trainingRuns", "1")),
        pytest.raises(StorageError, match="expected a run that no process uses"),
    ):
        served("--resume", "1", "--task", "fit.py:task")


def test_code_that_only_the_runs_folder_names_is_not_run_when_it_goes_on(
    served: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served("--task", write_task(tmp_path), *SETTLED)
    entry = f"{tmp_path / 'fit.py'}:task"
    content = (tmp_path / "fit.py").read_text()
    (tmp_path / "fit.py").write_text("raise AssertionError('this code was run')")
    with pytest.raises(ConfigError, match=rf"since going on takes its code, .*; if you trust it, add: --task {entry}"):
        served("--resume", "1")
    (tmp_path / "fit.py").write_text(content)
    monkeypatch.setenv("FEDLEARN_TASK", entry)
    assert served("--resume", "1", "--port", "0").run.task == entry


def test_settings_that_were_altered_by_hand_are_named(
    served: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served("--task", write_task(tmp_path), *SETTLED)
    path = tmp_path / "trainingRuns/1/config.json"
    path.write_text(path.read_text().replace('"sigma": 0.1', '"sigma": 0.3'))
    assert served("--resume", "1", "--task", "fit.py:task", "--steps", "9", "--port", "0").strategy.sigma == 0.3
    assert "sigma: 0.3 in trainingRuns/1/config.json, it was 0.1 when genesis" in capsys.readouterr().out


def test_run_is_resumed_with_the_configuration_that_it_repeats(served: Serve, tmp_path: Path) -> None:
    served("--data", str(write_text(tmp_path / "text.txt")), "--hidden-size", "8", *SETTLED)
    first = served("trainingRuns/1/config.json", "--port", "0", "--step-num", "3")
    assert first.run.step_num == 3
    assert served("trainingRuns/1/config.json", "--resume", "2", "--port", "0") == first


def test_place_of_the_noise_follows_who_may_join_and_stays_when_the_run_goes_on(
    served: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--data", str(write_text(tmp_path / "text.txt")), "--hidden-size", "8", *SETTLED]
    first = served(*flags)
    assert (first.strategy.perturb, first.strategy.head) == ("activations", "closed-form")
    shown = capsys.readouterr().out
    assert "\nperturb = activations: it learns fastest, and all volunteers are yours: only this machine" in shown
    assert "anybody may join" not in shown
    opened = served("--resume", "1", "--host", "0.0.0.0", "--port", "0")
    assert (opened.strategy.perturb, opened.strategy.head) == ("activations", "closed-form")
    assert "\nanybody may join, and volunteers of this run send sums of gradients" in capsys.readouterr().out
    assert served(*flags, "--host", "0.0.0.0").strategy.perturb == "weights"
    assert "\nperturb = weights: anybody may join" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="perturb: expected 'activations' as in the run that is resumed"):
        served("--resume", "1", "--perturb", "weights")
