"""Callbacks: all are told, and none of them ends a run."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fedlearn.callback import Begun, Callback, Callbacks
from fedlearn.coordination.status import RunStatus
from fedlearn.storage.logs.metrics import StepMetrics
from tests.steps import step_metrics

METRICS = step_metrics(3, shown={}, work_per_s=1.0)
STATUS = RunStatus(
    run="7", state="running", step=4, steps=0, run_left_s=None, members_per_s=5.0, open_step=None, volunteers=()
)
EVENTS: dict[str, tuple[Any, ...]] = {
    "on_begin": (Begun("7", folder=None, unit="tokens", step=0, n_parameters=1, settings={}),),
    "on_step": (METRICS,),
    "on_look": (4,),
    "on_examined": (4, {"accuracy": 0.5}, "It was"),
    "on_checkpoint": (4, Path("4.safetensors")),
    "on_join": ("Ada",),
    "on_local_join": ("local-1",),
    "on_leave": ("Ada", "the line broke"),
    "on_notice": ("listening",),
    "on_problem": ("a volunteer died",),
    "on_status": (STATUS,),
    "on_end": ("all 4 steps are done",),
}


class Listener(Callback):
    """Writes down whatever it is told."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 (an attribute is anything)
        if not name.startswith("on_"):
            return super().__getattribute__(name)
        return lambda *told: self.heard.append((name, *told))


class Broken(Callback):
    def __init__(self) -> None:
        self.n_told = 0

    def on_step(self, metrics: StepMetrics) -> None:
        self.n_told += 1
        raise RuntimeError(f"no step {metrics.step}")


class Touchy(Callback):
    def on_notice(self, text: str) -> None:
        raise ValueError(text)


def test_there_is_an_event_for_each_method() -> None:
    assert [name for name, _ in inspect.getmembers(Callback, inspect.isfunction)] == sorted(EVENTS)


@pytest.mark.parametrize("name", EVENTS)
def test_everybody_is_told_in_order(name: str) -> None:
    listeners = [Listener(), Listener()]
    getattr(Callbacks(listeners), name)(*EVENTS[name])
    assert [listener.heard for listener in listeners] == [[(name, *EVENTS[name])]] * 2


def test_a_problem_is_a_notice_for_whoever_does_not_tell_them_apart() -> None:
    class Notices(Callback):
        said = ""

        def on_notice(self, text: str) -> None:
            self.said = text

    notices = Notices()
    Callbacks([notices]).on_problem("a volunteer died")
    assert notices.said == "a volunteer died"


@pytest.mark.parametrize("name", EVENTS)
def test_a_callback_does_nothing_until_a_method_is_overridden(name: str) -> None:
    assert getattr(Callback(), name)(*EVENTS[name]) is None


def test_whoever_raises_is_named_once_and_told_nothing_more() -> None:
    first, broken, last = Listener(), Broken(), Listener()
    told = Callbacks([first, broken, last])
    told.on_step(METRICS)
    told.on_step(METRICS)
    assert broken.n_told == 1
    for listener in (first, last):
        assert [event[1] for event in listener.heard if event[0] == "on_step"] == [METRICS] * 2
        (notice,) = [event[1] for event in listener.heard if event[0] == "on_problem"]
        assert notice.startswith("Broken.on_step: RuntimeError: no step 3 (")
        assert f"{Path(__file__).name}:" in notice
        assert notice.endswith("this callback is told nothing more, and the run goes on")


def test_one_that_can_not_hear_of_anothers_failure_goes_with_it() -> None:
    listener = Listener()
    told = Callbacks([Broken(), Touchy(), listener])
    told.on_step(METRICS)
    told.on_notice("quiet now")
    said = [event[1].split(":")[0] for event in listener.heard if event[0] in ("on_notice", "on_problem")]
    assert said == ["Touchy.on_problem", "Broken.on_step", "quiet now"]


def test_one_that_was_dropped_meanwhile_is_told_nothing() -> None:
    class TouchyToo(Touchy, Broken):
        pass

    touchy = TouchyToo()
    Callbacks([Broken(), touchy]).on_step(METRICS)
    assert touchy.n_told == 0


def test_a_run_with_nobody_left_to_hear_goes_on() -> None:
    told = Callbacks([Broken()])
    told.on_step(METRICS)
    told.on_end("done")


def test_figures_are_passed_as_they_are() -> None:
    figures: Mapping[str, float] = {"accuracy": 0.5}
    listener = Listener()
    Callbacks([listener]).on_examined(1, figures, "")
    assert listener.heard[0][2] is figures
