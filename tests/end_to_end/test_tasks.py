"""Tasks of every kind with real processes: a volunteer is killed, another comes late, and all digests are equal."""

import re
import signal
from pathlib import Path

import pytest

from tests.end_to_end.processes import ended_at_exit, fedlearn, final_digest, metrics_of, start, wait_for
from tests.patience import LIMIT_S

FUNCTION = """
import numpy as np
import fedlearn
task = fedlearn.function(lambda arrays: np.sum((arrays["x"] - 3.0) ** 2) - 1.0, {"x": np.zeros((40, 5))})
"""

SUPERVISED = """
import numpy as np
import torch.nn.functional as F
from torch import nn
import fedlearn
x = np.random.default_rng(0).standard_normal((400, 6)).astype(np.float32)
task = fedlearn.supervised(
    lambda: nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2)),
    lambda model, rows: F.cross_entropy(model(rows["x"]), rows["y"]),
    {"x": x, "y": (x[:, 0] > x[:, 1]).astype(np.int64)},
    metrics={"accuracy": lambda model, rows: (model(rows["x"]).argmax(-1) == rows["y"]).float().mean()},
    settings={"sigma": 0.05, "learning_rate": 0.05},
)
"""

ENVIRONMENT = """
from torch import nn
import fedlearn
def policy():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
task = fedlearn.environment("CartPole-v1", policy, max_steps=40)
"""

REWARD = """
from transformers import LlamaConfig, LlamaForCausalLM
import fedlearn
LETTERS = "abcdefgh"
class Tokenizer:
    encode = staticmethod(lambda text: [LETTERS.index(letter) for letter in text])
    decode = staticmethod(lambda tokens: "".join(LETTERS[token] for token in tokens))
def model():
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=8, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=16, bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )).eval()
task = fedlearn.reward(
    model, lambda prompt, text: text.count("a") / len(text), ["ab", "cde", "f"], tokenizer=Tokenizer(), new_tokens=4,
    batch_size=2, settings={"sigma": 0.05, "learning_rate": 0.02},
)
"""

CUSTOM = """
import numpy as np
import fedlearn
class Peak(fedlearn.Task):
    kind = "peak"
    tensors = {"x": np.zeros((40, 5), dtype=np.float32)}
    def losses(self, members, batch):
        return members(lambda arrays: np.sum((arrays["x"] - 3.0) ** 2) - 1.0)
task = Peak()
"""

TASKS = {
    "function": (FUNCTION, []),
    "supervised": (SUPERVISED, ["torch"]),
    "environment": (ENVIRONMENT, ["torch", "gymnasium"]),
    "reward": (REWARD, ["torch", "transformers"]),
    "custom": (CUSTOM, []),
}
N_STEPS = 12
STEPS = ["--group-size", "16", "--population-limit", "64", "--time-per-step", "60", "--sample-time", "1"]


@pytest.fixture
def folder(tmp_path: Path, kind: str) -> Path:
    """A folder with the task of a kind in `mine.py`; skips the test where a package is missing that it needs."""
    source, packages = TASKS[kind.removesuffix(" as a graph")]
    for package in packages:
        pytest.importorskip(package)
    (tmp_path / "mine.py").write_text(source)
    return tmp_path


@pytest.mark.parametrize("kind", ["supervised as a graph", "custom"])
def test_a_killed_and_a_late_volunteer_do_no_harm_and_the_run_is_resumed_to_the_bit(folder: Path, kind: str) -> None:
    named = [] if kind.endswith("graph") else ["--task", "mine.py:task"]
    share = "graph" if kind.endswith("graph") else "nothing"
    arguments = ["--task", "mine.py:task", "--share", share, "--volunteers", "0", "--port", "0", *STEPS]
    server = start("server.py", *arguments, "--steps", str(N_STEPS), folder=folder)
    with ended_at_exit(server):
        port, _ = wait_for(server, r"listening on 127\.0\.0\.1:(\d+)")
        address = [*named, "--server", f"127.0.0.1:{port}", "--threads", "1", "--once"]
        steady = start("client.py", *address, "--name", "steady", folder=folder)
        victim = start("client.py", *address, "--name", "victim", folder=folder)
        with ended_at_exit(steady, victim):
            wait_for(server, "victim joined|steady joined")
            victim.send_signal(signal.SIGKILL)
            late = start("client.py", *address, "--name", "late", folder=folder)
            with ended_at_exit(late):
                _, read = wait_for(server, f"all {N_STEPS} steps are done")
                assert server.wait(timeout=LIMIT_S) == 0
                assert "drifted" not in read
                assert final_digest(steady) == metrics_of(folder)[-1]["digest"]
    check_learning(folder)
    resume(folder)


@pytest.mark.parametrize("kind", ["environment", "reward"])
@pytest.mark.usefixtures("kind")
def test_a_run_of_each_kind_learns_and_is_resumed_to_the_bit(folder: Path) -> None:
    server = start("server.py", *ALONE, "--share", "nothing", *STEPS, "--steps", str(N_STEPS), folder=folder)
    with ended_at_exit(server):
        _, read = wait_for(server, f"all {N_STEPS} steps are done")
        assert server.wait(timeout=LIMIT_S) == 0
    assert "drifted" not in read
    check_learning(folder)
    resume(folder)


ALONE = ["--task", "mine.py:task", "--volunteers", "1", "--threads", "1", "--port", "0"]


def resume(folder: Path) -> None:
    """The run goes on where it ended, and all of it can be replayed."""
    server = start("server.py", "--resume", "1", *ALONE, "--steps", str(N_STEPS + 3), folder=folder)
    with ended_at_exit(server):
        _, read = wait_for(server, f"all {N_STEPS + 3} steps are done")
        assert re.search(rf"from step {N_STEPS}$", read, re.MULTILINE)
        assert server.wait(timeout=LIMIT_S) == 0
    assert [line["step"] for line in metrics_of(folder)] == list(range(N_STEPS + 3))
    assert "equal to" in fedlearn("replay", "1", folder=folder)


def check_learning(folder: Path) -> None:
    """A dozen steps are few, but enough to see the loss of these tasks fall."""
    losses = [line["loss"] for line in metrics_of(folder)]
    assert min(losses[-4:]) < min(losses[:2])


NORMALIZED = """
import numpy as np
from torch import nn
import fedlearn
def model():
    widths = (6, 80, 96)
    layers = [nn.Sequential(nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU()) for a, b in zip(widths, widths[1:])]
    return nn.Sequential(*layers, nn.Linear(96, 1)).eval()
task = fedlearn.supervised(
    model, lambda model, rows: model(rows["x"]).square().mean(), {"x": np.ones((40, 6), np.float32)}
)
"""


def test_volunteers_need_no_file_of_a_model_whose_frozen_arrays_differ_in_length(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "mine.py").write_text(NORMALIZED)
    server = start("server.py", "--task", "mine.py:task", "--port", "0", *STEPS, "--steps", "3", folder=tmp_path)
    with ended_at_exit(server):
        _, read = wait_for(server, "all 3 steps are done")
        assert server.wait(timeout=LIMIT_S) == 0
    assert "volunteers need no file" in read


def test_a_run_without_a_finite_loss_ends_with_the_reason_and_an_error(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FUNCTION.replace("- 1.0", "* 1e30"))
    server = start("server.py", "--task", "mine.py:task", "--port", "0", *STEPS, folder=tmp_path)
    with ended_at_exit(server):
        wait_for(server, r"^no loss is finite in the first 3 steps: a loss such as \S+ is beyond 1e\+12.*; divide it$")
        assert server.wait(timeout=LIMIT_S) == 2
    assert len(metrics_of(tmp_path)) == 3


def test_a_task_of_one_side_only_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FUNCTION)
    (tmp_path / "other.py").write_text(FUNCTION + "# of another version\n")
    server = start("server.py", "--task", "mine.py:task", "--volunteers", "0", "--port", "0", *STEPS, folder=tmp_path)
    with ended_at_exit(server):
        port, read = wait_for(server, r"listening on 127\.0\.0\.1:(\d+)")
        assert re.search(r"join with: \S*fedlearn join --task ", read)
        for named, told in (([], "name your copy of it with --task FILE.py:NAME"), (["other.py:task"], "source")):
            flags = ["--task", *named] if named else []
            client = start("client.py", *flags, "--server", f"127.0.0.1:{port}", folder=tmp_path)
            with ended_at_exit(client):
                wait_for(client, f"refused: task: expected .*{told}")
                assert client.wait(timeout=LIMIT_S) == 1
            wait_for(server, f"left: task: expected .*{told}")


def test_a_volunteer_that_lacks_a_package_tells_its_server_which(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FUNCTION)
    (tmp_path / "other.py").write_text("import nowhere\n" + FUNCTION)
    server = start("server.py", "--task", "mine.py:task", "--volunteers", "0", "--port", "0", *STEPS, folder=tmp_path)
    told = "other.py: expected the module nowhere, which is missing; install it: pip install nowhere"
    with ended_at_exit(server):
        port, _ = wait_for(server, r"listening on 127\.0\.0\.1:(\d+)")
        client = start("client.py", "--task", "other.py:task", "--server", f"127.0.0.1:{port}", folder=tmp_path)
        with ended_at_exit(client):
            wait_for(client, f"refused: {told}")
            assert client.wait(timeout=LIMIT_S) == 1
        wait_for(server, f"left: {told}")
