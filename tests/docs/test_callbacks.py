"""The callbacks of docs/callbacks.md, told of a run."""

import re
import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from fedlearn.callback import Begun, Callback
from tests.docs.pages import REPOSITORY
from tests.test_callback import METRICS

TEXT = (REPOSITORY / "docs" / "callbacks.md").read_text(encoding="utf-8")
BEGUN = Begun("7", folder=None, unit="tokens", step=0, n_parameters=1, settings={"sigma": 0.1})


def made(name: str) -> Callback:
    """The callback of that name, of the code that defines it."""
    (code,) = [fence for fence in re.findall(r"```python\n(.*?)```", TEXT, flags=re.S) if f"class {name}(" in fence]
    names: dict[str, Any] = {}
    exec(code, names)
    callback: Callback = names[name]()
    return callback


def test_the_first_one_says_each_step_that_is_better(capsys: pytest.CaptureFixture[str]) -> None:
    callback = made("BestStep")
    callback.on_step(METRICS)
    callback.on_step(METRICS)
    assert capsys.readouterr().out == "step 3: 2.500\n"


def test_the_one_for_weights_and_biases_hands_on_what_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = SimpleNamespace(init=Mock(), log=Mock(), finish=Mock())
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    callback = made("WandB")
    callback.on_begin(BEGUN)
    callback.on_step(METRICS)
    callback.on_end("done")
    wandb.init.assert_called_once_with(project="fedlearn", name="run 7", config={"sigma": 0.1})
    wandb.log.assert_called_once_with({"loss": 2.5, "volunteers": 1}, step=3)
    wandb.finish.assert_called_once_with()


def test_every_method_stands_in_the_table() -> None:
    methods = {name for name in vars(Callback) if name.startswith("on_")}
    assert set(re.findall(r"`(on_\w+)\(", TEXT)) == methods
