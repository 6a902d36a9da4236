"""Films of policies, by an environment that draws a bar as long as its state."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlearn.commands.look import film as module
from fedlearn.commands.look.evaluate import eval_command
from fedlearn.commands.look.sample import sample_command
from fedlearn.runs.run import Run, find, named_task
from fedlearn.storage.durable import StorageError
from fedlearn.tasks.environment import registered as registered_module
from fedlearn.tasks.environment.registered import Registered, RegisteredExaminer
from tests.commands.recorded_run import options_of
from tests.run_folders import created, task_config

pytest.importorskip("gymnasium")
imageio = pytest.importorskip("imageio")

import gymnasium  # noqa: E402

DRAWN = """
import gymnasium, numpy as np, fedlearn

class Bar(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    def __init__(self, render_mode=None):
        self.render_mode = render_mode
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.n = 0
        return np.zeros(1, np.float32), {}
    def step(self, action):
        self.n += 1
        return np.full(1, self.n / 4, np.float32), 0.5, self.n == 4, False, {}
    def render(self):
        picture = np.zeros((16, 32, 3), np.uint8)
        picture[:, : 8 * self.n] = 255
        return picture

def policy(arrays, observations):
    return observations @ arrays["w"]

start = {"w": [[1.0, -1.0]]}
task = fedlearn.environment(lambda: Bar("rgb_array"), policy, start=start)
blind = fedlearn.environment(Bar, policy, start=start)
plain = fedlearn.function(lambda arrays: 0.0, {"x": [3.0]})
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "drawn.py").write_text(DRAWN)
    return tmp_path


def run_of(folder: Path, name: str = "task") -> Run:
    """A run that has taken no step yet."""
    entry = f"{folder / 'drawn.py'}:{name}"
    return created(task_config(folder, task=entry), named_task(entry))


def filmed(folder: Path, video: str, name: str = "task", *, names_task: bool = True) -> int:
    task = f"{folder / 'drawn.py'}:{name}" if names_task else None
    return sample_command(options_of(run_of(folder, name), video=str(folder / video), task=task))


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # imageio's
@pytest.mark.parametrize("ending", ["mp4", "gif"])
def test_a_film_shows_an_episode_from_its_beginning_to_its_end(
    folder: Path, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    if ending == "mp4":
        pytest.importorskip("imageio_ffmpeg")
    assert filmed(folder, f"out.{ending}") == 0
    path = folder / f"out.{ending}"
    assert capsys.readouterr().out == f"run 1, step 0: return 2 in 5 frames, 1 s, in {path}\n"
    pictures = [np.asarray(picture)[..., :3] for picture in imageio.mimread(path)]
    bright = [round(float((picture > 127).mean()) * 4) for picture in pictures]
    assert bright == [0, 1, 2, 3, 4]
    assert {file.suffix for file in folder.iterdir() if "out" in file.name} == {f".{ending}"}


def test_a_film_is_of_the_step_that_is_wanted(folder: Path) -> None:
    options = options_of(run_of(folder), video=str(folder / "out.gif"), task=f"{folder / 'drawn.py'}:task", step=3)
    with pytest.raises(StorageError, match=r"step: expected one that can be rebuilt, at most 0 .*got 3"):
        sample_command(options)


def test_a_package_for_drawing_that_is_missing_is_told(folder: Path) -> None:
    missing = 'raise gymnasium.error.DependencyNotInstalled("no pygame, pip install it")\n        picture = np.zeros'
    (folder / "drawn.py").write_text(DRAWN.replace("picture = np.zeros", missing))
    with pytest.raises(ValueError, match=r"env: expected all packages with which it draws.* no pygame"):
        filmed(folder, "out.gif")


def test_a_film_that_fails_leaves_the_last_one(folder: Path) -> None:
    (folder / "out.gif").write_bytes(b"before")
    (folder / "drawn.py").write_text(
        DRAWN.replace("picture = np.zeros", "assert self.n < 2\n        picture = np.zeros")
    )
    with pytest.raises(AssertionError):
        filmed(folder, "out.gif")
    assert (folder / "out.gif").read_bytes() == b"before"
    assert len([file for file in folder.iterdir() if file.suffix == ".gif"]) == 1


@pytest.mark.parametrize(
    ("video", "name", "told"),
    [
        ("out.avi", "task", "--video: expected a file that ends in .mp4 or .gif, got"),
        ("out.gif", "blind", "expected one that draws frames, got None as its render_mode; make it with"),
        ("out.gif", "plain", "video: expected a policy in an environment, got a task of kind function"),
    ],
)
def test_what_can_not_be_drawn_is_named(folder: Path, video: str, name: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        filmed(folder, video, name)


def test_a_task_that_only_the_runs_folder_names_is_not_imported(folder: Path) -> None:
    flag = f" --task {folder / 'drawn.py'}:task"
    told = rf"since drawing takes its code.* if you trust it, type: \S+ sample 1{re.escape(flag)}$"
    with pytest.raises(ValueError, match=told):
        filmed(folder, "out.gif", names_task=False)


class Square(gymnasium.Env[Any, Any]):
    """An environment as gymnasium has many, which draws grey squares."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:  # noqa: ANN401
        super().reset(seed=seed, options=options)
        self.n = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:  # noqa: ANN401, ARG002
        self.n += 1
        return np.full(1, self.n / 4, np.float32), 0.5, self.n == 4, False, {}

    def render(self) -> Any:  # noqa: ANN401
        return np.full((16, 16, 3), 60 * self.n, np.uint8)


@pytest.fixture
def square(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an environment that counts as one of gymnasium's own."""
    spec = gymnasium.envs.registration.EnvSpec("Square-v0", entry_point=f"{__name__}:Square")
    monkeypatch.setattr(registered_module, "OWN", f"{__name__}:")
    monkeypatch.setattr(gymnasium.envs.registration, "registry", registry := {"Square-v0": spec})
    monkeypatch.setattr(gymnasium, "registry", registry)
    return "Square-v0"


def code_free(folder: Path) -> Run:
    """A run of a policy that is made again without its file, which is gone."""
    file = folder / "drawn.py"
    file.write_text('import fedlearn\ntask = fedlearn.environment("Square-v0", scales={"linear": 2.0}, max_steps=3)\n')
    run = run_of(folder)
    file.write_text("raise AssertionError('this code was run')")
    return run


def test_the_usual_policy_in_an_environment_of_gymnasiums_is_drawn_without_its_file(
    folder: Path, square: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = code_free(folder)
    assert sample_command(options_of(run, video=str(folder / "out.gif"))) == 0
    assert capsys.readouterr().out == f"run 1, step 0: return 1.5 in 4 frames, 0.8 s, in {folder / 'out.gif'}\n"
    assert eval_command(options_of(run)) == 0
    assert capsys.readouterr().out == "run 1, step 0: return 1.5 on the run's held-out data\n"
    assert find(run.config.run.runs, "1").prepared.examiner.show(-2.0) == ("return", 2.0)
    assert square in (run.folder.data / "task.json").read_text()


@pytest.mark.parametrize("name", ["elsewhere:Square-v0", "Round-v0", "Foreign-v0"])
def test_a_name_in_a_runs_folder_imports_nothing(folder: Path, square: str, name: str) -> None:
    (folder / "elsewhere.py").write_text("raise AssertionError('this code was run')")
    foreign = gymnasium.envs.registration.EnvSpec("Foreign-v0", entry_point="elsewhere:Square")
    assert square in gymnasium.registry
    gymnasium.registry["Foreign-v0"] = foreign
    run = code_free(folder)
    examiner = RegisteredExaminer(Registered(name, True, 3), run.prepared.objective.layout)
    with pytest.raises(ValueError, match=f"env: expected an environment of gymnasium's own.* got '{name}', which"):
        examiner.film(run.prepared.objective.initial_weights())


@pytest.mark.usefixtures("square")
def test_a_policy_of_other_shapes_is_named(folder: Path) -> None:
    run = code_free(folder)
    examiner = RegisteredExaminer(Registered("Square-v0", False, 3), run.prepared.objective.layout)
    with pytest.raises(ValueError, match="env: expected Square-v0 with the policy that the run began with"):
        examiner.film(run.prepared.objective.initial_weights())


@pytest.mark.parametrize(
    "arguments",
    [
        "'Square-v0', policy, start=start",
        "'Square-v0', action=lambda outputs: outputs.argmax(axis=-1), policy=policy, start=start",
        "lambda: gymnasium.make('Square-v0', disable_env_checker=True)",
        "'Foreign-v0'",
    ],
)
@pytest.mark.usefixtures("square")
def test_a_task_with_code_of_its_own_is_asked_for(folder: Path, arguments: str) -> None:
    registration = "gymnasium.register('Foreign-v0', entry_point=Bar)\n" if "Foreign" in arguments else ""
    (folder / "drawn.py").write_text(f"{DRAWN}{registration}task = fedlearn.environment({arguments})\n")
    with pytest.raises(ValueError, match="since drawing takes its code"):
        filmed(folder, "out.gif", names_task=False)


def test_a_run_without_a_policy_is_named(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="video: expected a policy, got a model that has no episodes"):
        sample_command(options_of(run, video=str(tmp_path / "out.gif")))


def test_a_missing_package_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(module, "import_module", missing)
    with pytest.raises(ValueError, match=r"expected the package imageio.*pip install 'fedlearn\[video\]'"):
        filmed(folder, "out.gif")
