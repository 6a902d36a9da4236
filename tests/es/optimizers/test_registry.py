import re
from pathlib import Path

import pytest

from fedlearn.es.optimizers import HYPERPARAMETERS, MOST_SLOTS, OPTIMIZERS, Adam, Optimizer, Sgd, optimizer_of
from fedlearn.es.optimizers.clipup import ClipUp
from fedlearn.es.optimizers.cma import Cma
from fedlearn.es.optimizers.lion import Lion
from fedlearn.es.optimizers.muon import Muon
from fedlearn.es.replica import BEST
from fedlearn.es.snapshot import MAX_SLOTS, START

REPOSITORY = Path(__file__).parents[3]
SETTINGS = {"learning_rate": 0.5, "beta1": 0.75, "beta2": 0.25, "matrix_rate": 3.0, "vector_rate": 0.5}
SETTINGS |= {"path_share": 0.75, "sigma": 0.1}


def test_optimizers_are_known_by_the_names_that_updates_carry() -> None:
    assert {"adam": Adam, "sgd": Sgd, "lion": Lion, "muon": Muon, "clipup": ClipUp, "cma": Cma} == OPTIMIZERS


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        ("adam", Adam(0.5, 0.75, 0.25)),
        ("auto", Adam(0.5, 0.75, 0.25)),
        ("sgd", Sgd(0.5, 0.75)),
        ("lion", Lion(0.5, 0.75, 0.25)),
        ("muon", Muon(0.5, 3.0, vector_rate=0.5)),
        ("clipup", ClipUp(0.5, 0.75)),
        ("cma", Cma(0.5, 0.75)),
    ],
)
def test_an_optimizer_takes_its_own_settings(name: str, optimizer: Optimizer) -> None:
    assert optimizer_of({**SETTINGS, "optimizer": name}) == optimizer


def test_settings_are_those_that_optimizers_declare() -> None:
    declared = {key: hyperparameter.default for key, hyperparameter in HYPERPARAMETERS.items()}
    assert declared == {"beta1": 0.9, "beta2": 0.999, "matrix_rate": 1.5, "vector_rate": 1.0, "path_share": 0.0}


def test_snapshots_have_room_for_all_slots_the_start_and_the_best() -> None:
    assert MOST_SLOTS == 2
    assert MOST_SLOTS + len((START, BEST)) <= MAX_SLOTS


def test_only_its_own_file_and_the_registry_name_an_optimizer() -> None:
    sources = [path for folder in ("fedlearn", "es_core") for path in (REPOSITORY / folder).rglob("*.*")]
    code = (path for path in sources if path.suffix in (".py", ".pyi", ".cpp", ".h", ".js", ".html"))
    named = {path.name for path in code if re.search(r"(?i)\blion\b", path.read_text(encoding="utf-8"))}
    assert named == {"lion.py", "registry.py"}
