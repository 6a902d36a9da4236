"""Films of policies, by an environment that draws a bar as long as its state."""

from pathlib import Path

import numpy as np
import pytest

from fedlearn.commands.look import film as module
from fedlearn.commands.look.sample import sample_command
from fedlearn.runs.run import Run, named_task
from fedlearn.storage.durable import StorageError
from tests.commands.recorded_run import options_of
from tests.run_folders import created, task_config

gymnasium = pytest.importorskip("gymnasium")
imageio = pytest.importorskip("imageio")

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
