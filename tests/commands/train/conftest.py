"""A run that is served: the server itself is stood in for, everything before it is real."""

import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from fedlearn.callback import Callback
from fedlearn.commands.parser import Parser
from fedlearn.commands.train import serve as module
from fedlearn.commands.train.serve import add_serve, serve_command
from fedlearn.config import RunConfig
from fedlearn.server.security import ServerSecurity
from fedlearn.server.training.trainer import Trainer
from fedlearn.storage.credentials import load_identity
from fedlearn.storage.durable import StorageError
from fedlearn.storage.runs import lock_run
from fedlearn.system.invocation import invocation
from fedlearn.terminal import Terminal
from fedlearn.terminal.bars import Bars

FIT = """import numpy as np
import fedlearn
task = fedlearn.function(
    lambda arrays: float((arrays["x"] ** 2).sum()), {"x": np.ones(SIZE)}, covariance=False,
    settings={"sigma": 0.25, "group_size": 16}
)
plain = fedlearn.function(lambda arrays: float((arrays["x"] ** 2).sum()), {"x": np.ones(SIZE)}, covariance=False)
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


def write_task(folder: Path, size: int = 5) -> str:
    (folder / "fit.py").write_text(FIT.replace("SIZE", str(size)))
    return "fit.py:task"
