"""What is served when a run begins."""

import re
import socket
import sys
from pathlib import Path

import pytest

from fedlearn.commands.train import serve as module
from fedlearn.commands.train.serve import MOST_VOLUNTEERS, SMALL_MODEL
from fedlearn.config import ConfigError, RunConfig
from fedlearn.system.waiting import WaitingProcess
from tests.commands.train.conftest import SETTLED, Serve, write_task
from tests.run_folders import write_text

ROWS = """import numpy as np
import fedlearn

task = fedlearn.function(
    lambda arrays, rows: float(((arrays["x"] - rows["y"]) ** 2).mean()),
    {"x": np.zeros(3)},
    data={"y": np.ones((20, 3))},
    batch_size=9,
)
"""

EAR = """import fedlearn
class Ear(fedlearn.Callback):
    def on_notice(self, text):
        print("an ear heard:", text)
"""


def test_callbacks_of_ones_own_are_told_what_the_server_tells(
    served: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ear.py").write_text(EAR)
    served("--task", write_task(tmp_path), *SETTLED, "--callback", "ear.py:Ear", "--callback", "ear.py:Ear")
    assert capsys.readouterr().out.count("an ear heard: serving") == 2


def test_callback_that_can_not_be_had_leaves_no_run_behind(served: Serve, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--callback: expected a Python file, got 'ear\.py'"):
        served("--task", write_task(tmp_path), *SETTLED, "--callback", "ear.py:Ear")
    assert not (tmp_path / "trainingRuns").exists()


def test_task_in_a_file_is_served_with_its_own_settings_unless_flags_say_otherwise(
    served: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = served("--task", write_task(tmp_path), "--population-limit", "64", "--time-per-step", "5", "--port", "0")
    assert (config.strategy.sigma, config.strategy.group_size) == (0.25, 16)
    assert config.run.task == f"{tmp_path / 'fit.py'}:task"
    shown = capsys.readouterr().out
    assert shown.startswith("run 1 in trainingRuns/1: fit.py:task, a model of 5 parameters\n")
    assert served("--task", "fit.py:task", *SETTLED).strategy.sigma == 0.1


def test_volunteer_of_a_task_on_pytorch_starts_before_the_run_is_prepared(
    served: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", sys.modules.get("torch", sys))
    served("--task", write_task(tmp_path), *SETTLED)
    served("--resume", "1", "--task", "fit.py:task")
    served("--task", "fit.py:task", *SETTLED, "--volunteers", "0")


def test_volunteer_that_no_run_has_taken_ends_with_its_server(
    served: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = WaitingProcess.start(command=["sleep", "60"])
    monkeypatch.setitem(sys.modules, "torch", sys.modules.get("torch", sys))
    monkeypatch.setattr(module, "volunteer_ahead", lambda: ahead)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="is taken"):
        served("--task", write_task(tmp_path), *SETTLED[:-1], str(taken.getsockname()[1]))
    assert ahead.process.returncode is not None
    assert ahead.process.stdin is not None
    assert ahead.process.stdin.closed


def test_reasons_of_settings_are_told_to_those_who_ask(
    served: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, told = write_task(tmp_path), []
    for flags in ([], ["--verbose"]):
        served("--task", task, "--port", "0", *flags)
        told.append(capsys.readouterr().out)
    assert "population_limit = " not in told[0]
    assert len(told[0].splitlines()) <= 3
    assert "population_limit = " in told[1]
    assert "share = nothing: " in told[0]


@pytest.mark.parametrize(
    ("size", "processors", "expected"),
    [(5, 6, (6, 1)), (5, 1, (1, 1)), (5, 20, (MOST_VOLUNTEERS, 2)), (SMALL_MODEL, 6, (1, 6))],
)
def test_small_models_have_a_volunteer_for_each_processor(
    served: Serve,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    processors: int,
    expected: tuple[int, int],
) -> None:
    monkeypatch.setattr(module, "usable_processors", lambda: processors)
    monkeypatch.setattr(module, "create", refuse_to_create)
    with pytest.raises(Created) as created:
        served("--task", write_task(tmp_path, size), *SETTLED)
    settings = created.value.config.volunteers
    assert (settings.volunteers, settings.threads) == expected


class Created(Exception):  # noqa: N818 (it is no error)
    def __init__(self, config: RunConfig) -> None:
        self.config = config


def refuse_to_create(_: object, config: RunConfig, __: object, **___: object) -> None:
    """Large models need not be written to see how they would be served."""
    raise Created(config)


def test_settings_come_from_a_file_the_environment_and_flags_in_this_order(
    served: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(tmp_path / "corpus.txt")
    (tmp_path / "run.toml").write_text('hidden_size = 8\ndata = "corpus.txt"\nseed = 3\nsteps = 5\n')
    monkeypatch.setenv("FEDLEARN_SEED", "4")
    config = served("run.toml", *SETTLED, "--steps", "6")
    assert (config.get("hidden_size"), config.run.seed, config.run.steps) == (8, 4, 6)


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_file_that_can_not_be_read_is_named(served: Serve, tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "run.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"run\.toml: expected a readable TOML or JSON file"):
        served("run.toml")


def test_a_task_in_place_of_a_configuration_is_told_its_flag(served: Serve, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"fit\.py:task: expected a TOML or JSON file, got a task; --task fit\.py:task"
    ):
        served(write_task(tmp_path))


def test_title_says_what_learns_from_what_and_from_where(
    served: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("It was so. " * 1000)
    served("--data", "mine.txt", "--hidden-size", "8", *SETTLED, "--step-num", "3")
    title = r"run 1 in trainingRuns/1: a recurrent network of \d{3} parameters learns from 9,900 tokens of mine\.txt"
    assert re.match(f"{title}, from step 3\n", capsys.readouterr().out)


def test_what_the_run_chose_itself_is_told_with_reasons(
    served: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_task(tmp_path)
    flags = ["--population-limit", "64", "--group-size", "8", "--time-per-step", "5", "--port", "0", "--verbose"]
    config = served("--task", "fit.py:plain", *flags)
    shown = capsys.readouterr().out
    assert f"\nsigma = {config.strategy.sigma:g}: " in shown
    assert f"\nlearning_rate = {config.optimizer.learning_rate:g}: " in shown


def test_runs_own_configuration_repeats_it_from_its_beginning(served: Serve, tmp_path: Path) -> None:
    data = str(write_text(tmp_path / "text.txt"))
    first = served("--data", data, "--hidden-size", "8", "--seed", "5", "--time-per-step", "0.5", "--port", "0")
    assert first.is_settled
    with Path("trainingRuns/1/config.json").open("r+") as file:
        stands = file.read().replace('"step_num": 0', '"step_num": 40')
        file.seek(0)
        file.write(stands)
    again = served("trainingRuns/1/config.json", "--port", "0")
    assert again == first
    one, two = (Path(f"trainingRuns/{number}") for number in (1, 2))
    assert (one / "genesis.safetensors").read_bytes() == (two / "genesis.safetensors").read_bytes()
    assert (one / "origin.json").read_text() == (two / "origin.json").read_text()


def test_runs_own_configuration_repeats_a_task_of_a_file(served: Serve, tmp_path: Path) -> None:
    first = served("--task", write_task(tmp_path), "--time-per-step", "5", "--port", "0")
    again = served("trainingRuns/1/config.json", "--port", "0")
    assert again == first
    one, two = (Path(f"trainingRuns/{number}/genesis.safetensors").read_bytes() for number in (1, 2))
    assert one == two


def test_first_lines_say_what_is_measured_and_why(
    served: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.py").write_text(ROWS)
    served("--task", "rows.py:task", "--port", "0")
    assert "\nmeasure = losses: a loss is of 9 rows (batch_size); by losses of about 8 most" in capsys.readouterr().out
