"""What is served: the server itself is stood in for, everything before it is real."""

import re
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from fedlearn.callback import Callback
from fedlearn.commands.parser import Parser
from fedlearn.commands.train import serve as module
from fedlearn.commands.train.serve import MOST_VOLUNTEERS, SMALL_MODEL, add_serve, serve_command
from fedlearn.config import ConfigError, RunConfig
from fedlearn.server.security import ServerSecurity
from fedlearn.server.training.trainer import Trainer
from fedlearn.storage.credentials import load_identity
from fedlearn.storage.durable import StorageError
from fedlearn.storage.runs import lock_run, resolve_run
from fedlearn.system.invocation import invocation
from fedlearn.system.waiting import WaitingProcess
from fedlearn.terminal import Terminal
from fedlearn.terminal.bars import Bars
from tests.run_folders import write_text

FIT = """import numpy as np
import fedlearn
task = fedlearn.function(
    lambda arrays: float((arrays["x"] ** 2).sum()), {"x": np.ones(SIZE)}, covariance=False,
    settings={"sigma": 0.25, "group_size": 16}
)
plain = fedlearn.function(lambda arrays: float((arrays["x"] ** 2).sum()), {"x": np.ones(SIZE)}, covariance=False)
"""
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
SETTLED = ["--population-limit", "64", "--group-size", "8", "--sigma", "0.1", "--learning-rate", "0.1"]
SETTLED += ["--time-per-step", "5", "--port", "0"]

Serve = Callable[..., RunConfig]


class Ahead:
    """A volunteer that is started before its run."""

    is_open = True

    def stop(self, *, patience_s: float) -> None:
        assert patience_s > 0
        self.is_open = False


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Serves with these flags, in an empty folder; gives the configuration of what is served."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("RUNS", "TASK", "SEED", "THREADS"):
        monkeypatch.delenv(f"FEDLEARN_{name}", raising=False)
    monkeypatch.setattr(module, "usable_processors", lambda: 6)
    configs: list[RunConfig] = []
    begun_ahead: list[Ahead] = []

    def begin_ahead() -> Ahead:
        begun_ahead.append(Ahead())
        return begun_ahead[-1]

    def stand_in(
        trainer: Trainer,
        listening: socket.socket,
        security: ServerSecurity,
        *,
        callbacks: list[Callback],
        next_commands: list[str],
        terminal: Terminal,
        bars: Bars,
        ahead: Ahead | None,
        usual: Mapping[str, object],
    ) -> int:
        of_task = {} if trainer.run.config.run.task == "rnn" else {"volunteers", "threads"}
        assert usual.keys() >= set(of_task)
        has_volunteers = trainer.run.config.volunteers.volunteers > 0
        assert (ahead is not None and ahead.is_open) == (has_volunteers and "torch" in sys.modules)
        for callback in callbacks:
            callback.on_notice("serving")
        assert terminal.screen.mode == "plain"
        assert isinstance(bars, Bars)
        named = f" --task {trainer.run.prepared.entry}" if trainer.run.prepared.entry else ""
        assert next_commands[-1] == f"{invocation('eval')} {trainer.run_name}{named}"
        assert listening.getsockname()[1] > 0
        assert security.settings == trainer.run.config.server
        assert security.rules.local == load_identity(trainer.run.folder.local_identity).public_key.hex()
        with pytest.raises(StorageError, match="expected a run that no process uses"), lock_run(trainer.run.folder):
            pass
        configs.append(trainer.run.config)
        return 0

    monkeypatch.setattr(module, "serve", stand_in)
    monkeypatch.setattr(module, "volunteer_ahead", begin_ahead)

    def serve(*arguments: str) -> RunConfig:
        parser = Parser()
        add_serve(parser)
        begun_ahead.clear()
        assert serve_command(parser.parse_args([*arguments])) == 0
        assert not any(volunteer.is_open for volunteer in begun_ahead)
        return configs[-1]

    return serve


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


def write_task(folder: Path, size: int = 5) -> str:
    (folder / "fit.py").write_text(FIT.replace("SIZE", str(size)))
    return "fit.py:task"


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


def test_settings_that_were_altered_by_hand_are_named(
    served: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served("--task", write_task(tmp_path), *SETTLED)
    path = tmp_path / "trainingRuns/1/config.json"
    path.write_text(path.read_text().replace('"sigma": 0.1', '"sigma": 0.3'))
    assert served("--resume", "1", "--task", "fit.py:task", "--steps", "9", "--port", "0").strategy.sigma == 0.3
    assert "sigma: 0.3 in trainingRuns/1/config.json, it was 0.1 when genesis" in capsys.readouterr().out


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


def test_run_is_resumed_with_the_configuration_that_it_repeats(served: Serve, tmp_path: Path) -> None:
    served("--data", str(write_text(tmp_path / "text.txt")), "--hidden-size", "8", *SETTLED)
    first = served("trainingRuns/1/config.json", "--port", "0", "--step-num", "3")
    assert first.run.step_num == 3
    assert served("trainingRuns/1/config.json", "--resume", "2", "--port", "0") == first


def test_first_lines_say_what_is_measured_and_why(
    served: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.py").write_text(ROWS)
    served("--task", "rows.py:task", "--port", "0")
    assert "\nmeasure = losses: a loss is of 9 rows (batch_size); by losses of about 8 most" in capsys.readouterr().out


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
