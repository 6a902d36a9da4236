from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from fedlearn.tasks import registry
from fedlearn.tasks.kind import Kind
from fedlearn.tasks.registry import find_kind, kind_names, kind_of_task
from fedlearn.tasks.rnn.kind import KIND
from fedlearn.tasks.user.task_kind import CUSTOM_KIND
from tests.tasks.counting import CountingTask


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    caches = (find_kind, registry.registered)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """The entry points that packages bring; tests may add to them."""
    points = [EntryPoint("rnn", "fedlearn.tasks.rnn.kind:KIND", registry.GROUP)]
    monkeypatch.setattr(registry, "entry_points", lambda *, group: points if group == "fedlearn.tasks" else [])
    return points


def test_fedlearns_own_kinds_are_found() -> None:
    names = kind_names()
    assert {"custom", "environment", "function", "graph", "reward", "rnn", "supervised"} <= set(names)
    assert names == sorted(names)
    assert find_kind("rnn") is KIND


@pytest.mark.parametrize("name", ["custom", "environment", "function", "graph", "reward", "rnn", "supervised"])
def test_a_kind_has_the_name_under_which_it_is_registered(name: str) -> None:
    kind: Kind = find_kind(name)
    assert kind.name == name


def test_another_package_may_bring_a_kind(installed: list[EntryPoint]) -> None:
    installed.append(EntryPoint("words", "fedlearn.tasks.rnn.kind:KIND", registry.GROUP))
    assert kind_names() == ["rnn", "words"]
    assert find_kind("words") is KIND


def test_a_task_whose_kind_no_package_brings_is_custom(installed: list[EntryPoint]) -> None:
    installed.append(EntryPoint("custom", "fedlearn.tasks.user.task_kind:CUSTOM_KIND", registry.GROUP))
    task = CountingTask({})
    assert kind_of_task(task) is CUSTOM_KIND
    installed.append(EntryPoint(task.kind, "fedlearn.tasks.rnn.kind:KIND", registry.GROUP))
    assert kind_of_task(task) is KIND


def test_a_kind_that_nobody_brings_is_refused_with_those_that_there_are(installed: list[EntryPoint]) -> None:
    del installed[1:]
    with pytest.raises(
        ValueError, match=r"task: expected one of rnn, or FILE\.py:NAME of a task, got 'gpt'; is this version"
    ):
        find_kind("gpt")


def test_a_package_that_was_installed_twice_is_listed_once(installed: list[EntryPoint]) -> None:
    installed.append(installed[0])
    assert kind_names() == ["rnn"]


def test_a_kind_is_looked_for_once(installed: list[EntryPoint]) -> None:
    first = find_kind("rnn")
    installed.clear()
    assert find_kind("rnn") is first


def test_kind_with_a_slip_of_the_pen_is_told_with_the_one_that_was_meant() -> None:
    with pytest.raises(ValueError, match=r"got 'rn'; did you mean rnn\?$"):
        find_kind("rn")
