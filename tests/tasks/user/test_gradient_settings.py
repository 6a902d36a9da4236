"""Settings of runs that measure gradients."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

from fedlearn.config import ConfigError, RunConfig
from fedlearn.es.layout import Float32Array
from fedlearn.tasks.reason import Reasons
from fedlearn.tasks.strategy import GRADIENTS, strategy_of
from fedlearn.tasks.task import Batch, LossGradients
from fedlearn.tasks.user.recommendation import settle
from fedlearn.tasks.user.task_objective import TaskObjective
from tests.tasks.counting import CountingTask
from tests.tasks.user.sloping import DATA, SCHEMA, Sloping, settled

ONE_HIDDEN: Mapping[str, int] = {"x": 1}


def settled_deep(
    n_hidden: Mapping[str, int],
    shapes: Mapping[str, tuple[int, ...]],
    **given: Any,  # noqa: ANN401 (values of any key)
) -> tuple[RunConfig, Reasons]:
    """What is settled for tensors of these shapes, which hold so many hidden matrices."""

    class Deep(Sloping):
        hidden = n_hidden

    return settled_shapes(Deep, shapes, **given)


def settled_shapes(
    task: type[Sloping],
    shapes: Mapping[str, tuple[int, ...]],
    **given: Any,  # noqa: ANN401 (values of any key)
) -> tuple[RunConfig, Reasons]:
    tensors = {name: np.ones(shape, dtype=np.float32) for name, shape in shapes.items()}
    objective = TaskObjective(task(tensors, DATA, batch_size=5), seed=1)
    return settle(SCHEMA.build(given), objective, DATA, lambda *_: 1000.0)


def test_gradients_are_measured_where_the_loss_has_one() -> None:
    config, reasons = settled(Sloping)
    assert config.strategy.measure == "gradients"
    assert config.is_settled
    assert strategy_of(config).perturbation == GRADIENTS
    assert [*map(str, reasons)] == [
        "measure = gradients: PyTorch differentiates the loss by all that it depends on",
        "measured: gradients of 5e+03 beans/s",
        "population_limit = 4: 0.004 s of gradients",
        "time_per_step = 120: four times the 0.004 s that this machine needs, and no less for slow lines",
        "restarts = 1: a third of the rate is tried where the loss stands still",
        "learning_rate = 0.006: it suits most networks; with more volunteers it follows the root of the gradients in "
        "a step",
    ]
    assert (config.strategy.group_size, config.strategy.max_population) == (1, 256)
    assert config.optimizer.max_learning_rate == 0.02


@pytest.mark.parametrize(
    ("n_hidden", "given", "chosen", "rate"),
    [
        (2, {}, "muon", 0.04),
        (1, {}, "muon", 0.04),
        (-1, {}, "muon", 0.04),
        (2, {"optimizer": "adam"}, "adam", 0.006),
        (0, {}, "auto", 0.006),
    ],
)
def test_models_with_hidden_matrices_take_steps_by_muon(
    n_hidden: int, given: dict[str, str], chosen: str, rate: float
) -> None:
    config, reasons = settled_deep({"x": n_hidden}, {"x": (4, 3)}, **given)
    assert config.optimizer.optimizer == chosen
    assert config.optimizer.learning_rate == pytest.approx(rate)
    assert config.optimizer.max_learning_rate == (0.04 if chosen == "muon" else 0.02)
    assert config.optimizer.weight_decay == (0.1 if chosen == "muon" else 0.0)
    told = "the model has " + ("a hidden matrix" if abs(n_hidden) == 1 else "2 hidden matrices")
    assert (f"optimizer = muon: {told}" in [*map(str, reasons)]) == (chosen == "muon")


@pytest.mark.parametrize(
    ("shape", "n_hidden", "given", "rate", "matrix_rate"),
    [
        ((64, 64), 1, {}, 0.04, 1.5),
        ((128, 200), 1, {}, 0.02, 3.0),
        ((384, 200), 3, {}, 0.02, 3.0),
        ((200, 384), -3, {}, 0.02, 3.0),
        ((384, 16), 1, {}, 0.04, 1.5),
        ((128, 200), 0, {}, 0.006, 1.5),
        ((128, 200), 1, {"optimizer": "adam"}, 0.006, 1.5),
        ((128, 200), 1, {"matrix_rate": 2.0}, 0.04, 2.0),
        ((128, 200), 1, {"learning_rate": 0.5}, 0.5, 1.5),
    ],
)
def test_all_but_hidden_matrices_step_less_the_wider_these_are(
    shape: tuple[int, int], n_hidden: int, given: dict[str, str | float], rate: float, matrix_rate: float
) -> None:
    config, reasons = settled_deep({"x": n_hidden} if n_hidden else {}, {"x": shape}, **given)
    assert config.optimizer.learning_rate == pytest.approx(rate)
    assert config.get("matrix_rate") == matrix_rate
    if not given:
        assert config.optimizer.max_learning_rate == pytest.approx((0.06 if n_hidden else 0.03) / matrix_rate)
    told = "matrix_rate = 3: other tensors step less where a model, here 128, is wide, and in long runs"
    assert (told in [*map(str, reasons)]) == (matrix_rate == 3.0)


@pytest.mark.parametrize(
    ("shape", "matrix_rate"),
    [((10, 64), 1.5), ((10, 1280), 30.0), ((1280, 10), 1.5), ((10, 10**6), 96.0), ((10, 16, 80), 1.5), ((1280,), 1.5)],
)
def test_a_model_is_as_wide_as_the_inputs_of_its_head(shape: tuple[int, ...], matrix_rate: float) -> None:
    config, _ = settled_deep({"x": 1}, {"x": (64, 64), "head": shape}, measure="gradients")
    assert config.get("matrix_rate") == matrix_rate


@pytest.mark.parametrize(
    ("given", "rate"),
    [
        ({}, 0.3),
        ({"vector_rate": 0.5}, 0.5),
        ({"learning_rate": 0.03}, 1.0),
        ({"optimizer": "adam"}, 1.0),
    ],
)
def test_vectors_step_less_where_nobody_says_how(given: dict[str, str | float], rate: float) -> None:
    config, reasons = settled_deep({"x": 1}, {"x": (4, 3)}, **given)
    assert config.get("vector_rate") == rate
    told = "vector_rate = 0.3: a step of a bias moves all rows alike"
    assert (told in [*map(str, reasons)]) == (not given)


@pytest.mark.parametrize(
    ("given", "restarts"), [({}, 1), ({"restarts": 3}, 3), ({"learning_rate": 0.03}, 0), ({"measure": "losses"}, 0)]
)
def test_another_rate_is_tried_where_nobody_says_which(given: dict[str, str | float], restarts: int) -> None:
    assert settled(Sloping, **given)[0].strategy.restarts == restarts


@pytest.mark.parametrize(("given", "decay"), [({}, 0.1), ({"weight_decay": 0.2}, 0.2), ({"learning_rate": 0.03}, 0.0)])
def test_hidden_matrices_decay_where_nobody_says_how_they_step(given: dict[str, float], decay: float) -> None:
    config, reasons = settled_deep({"x": 1}, {"x": (4, 3)}, **given)
    assert config.optimizer.weight_decay == decay
    told = "weight_decay = 0.1: hidden matrices would wander where little is left to learn"
    assert (told in [*map(str, reasons)]) == (not given)


@pytest.mark.parametrize(("steps", "rate", "matrix_rate"), [(125, 0.04, 1.5), (1000, 0.04, 1.5), (8000, 0.02, 3.0)])
@pytest.mark.parametrize("width", [64, 128])
def test_hidden_matrices_step_as_far_in_runs_of_any_length(
    width: int, steps: int, rate: float, matrix_rate: float
) -> None:
    config, _ = settled_deep({"x": 1}, {"x": (width, width)}, steps=steps, measure="gradients")
    assert config.optimizer.learning_rate == pytest.approx(rate * 64 / width)
    assert config.get("matrix_rate") == pytest.approx(matrix_rate * width / 64)


def test_the_width_is_that_of_the_matrix_in_the_middle() -> None:
    shapes = {"x": (64, 64), "y": (128, 128), "z": (512, 512)}
    config, _ = settled_deep(dict.fromkeys(shapes, 1), shapes, measure="gradients")
    assert config.get("matrix_rate") == 3.0


class Far(Sloping):
    """Its loss is least where all weights are -1."""

    n_groups: ClassVar[list[int]] = []
    """The groups of each call."""

    def loss_gradients(self, weights: Float32Array, batch: Batch) -> LossGradients:
        self.n_groups.append(len(batch.seeds))
        found = super().loss_gradients(weights, batch)
        return LossGradients(((weights + 1.0) ** 2).sum() * np.ones_like(found.losses), found.total)


class Deep(Sloping):
    """It has a hidden matrix."""

    hidden = ONE_HIDDEN


class FarAndDeep(Far):
    """It has a hidden matrix."""

    hidden = ONE_HIDDEN


def test_steps_are_longer_where_the_loss_is_least_far_away() -> None:
    Far.n_groups.clear()
    (usual, _), (far, reasons) = settled(Sloping, steps=1000), settled(Far, steps=1000)
    assert far.optimizer.learning_rate == pytest.approx(usual.optimizer.learning_rate * 100)
    assert far.optimizer.max_learning_rate == pytest.approx(usual.optimizer.max_learning_rate * 100)
    assert str(reasons[-1]) == (
        "learning_rate = 0.6: 100 times what suits most networks: the loss is least after 300 such steps at once"
    )
    assert Far.n_groups[-1] == far.strategy.population_limit


@pytest.mark.parametrize(("near", "far", "factor"), [(Sloping, Far, 100.0), (Deep, FarAndDeep, 10**3.5)])
@pytest.mark.parametrize("steps", [125, 1000, 8000])
def test_steps_are_as_much_longer_in_runs_of_any_length(
    steps: int, near: type[Sloping], far: type[Sloping], factor: float
) -> None:
    usual, longer = (settled_shapes(task, {"x": (512, 512)}, steps=steps)[0].optimizer for task in (near, far))
    assert longer.learning_rate == pytest.approx(usual.learning_rate * factor)


def test_matrices_decay_less_where_steps_are_longer() -> None:
    usual, _ = settled_deep({"x": 1}, {"x": (4, 3)}, steps=1000)
    far, _ = settled_shapes(FarAndDeep, {"x": (4, 3)}, steps=1000)
    factor = far.optimizer.learning_rate / usual.optimizer.learning_rate
    assert factor >= 3.0
    assert far.optimizer.weight_decay == pytest.approx(0.1 / factor**0.5)


class Tuned(Far):
    """A task that begins with good weights."""

    hidden = ONE_HIDDEN
    is_tuned = True


@pytest.mark.parametrize(("width", "rate", "most"), [(8, 0.0003, 0.001), (64, 0.0003, 0.001), (256, 7.5e-5, 2.5e-4)])
def test_good_weights_are_tuned_by_small_steps_of_adam(width: int, rate: float, most: float) -> None:
    Tuned.n_groups.clear()
    config, reasons = settled_shapes(Tuned, {"x": (width, 512)}, steps=125)
    assert strategy_of(config).optimizer.slots == ("first_moment", "second_moment")
    assert config.optimizer.learning_rate == pytest.approx(rate)
    assert config.optimizer.max_learning_rate == pytest.approx(most)
    assert config.strategy.restarts == 0
    why = "good weights are tuned by small steps, the smaller the wider a model is"
    assert str(reasons[-1]) == f"learning_rate = {rate:.3g}: {why}"
    assert Tuned.n_groups == [1]  # no longer step is tried


def test_no_step_is_tried_where_the_rate_is_given() -> None:
    Far.n_groups.clear()
    settled(Far, measure="gradients", learning_rate=0.1)
    assert Far.n_groups == [1]


def test_what_is_given_stays() -> None:
    config, _ = settled(Sloping, population_limit=9, learning_rate=0.5, time_per_step=3.0)
    assert (config.strategy.population_limit, config.strategy.max_population) == (9, 0)
    assert (config.optimizer.learning_rate, config.optimizer.max_learning_rate) == (0.5, 0.0)
    assert config.strategy.time_per_step == 3.0


def test_a_group_of_gradients_is_one_member() -> None:
    assert SCHEMA.build({"measure": "gradients", "group_size": 1, "population_limit": 1}).strategy.group_size == 1
    with pytest.raises(ConfigError, match="group_size: expected 2 or more"):
        SCHEMA.build({"group_size": 1})


@pytest.mark.parametrize(("ends", "schedule"), [({"steps": 9}, "late-linear"), ({}, "inverse-sqrt")])
def test_the_rate_of_gradients_falls_in_the_second_half_of_a_run(ends: Mapping[str, int], schedule: str) -> None:
    assert strategy_of(settled(Sloping, **ends)[0]).schedule.learning_rate == schedule


@pytest.mark.parametrize(
    ("given", "n_steps", "rate", "most"),
    [
        ({"steps": 125}, 125, 0.012, 0.02),
        ({"steps": 1000}, 1000, 0.006, 0.02),
        ({"steps": 8000}, 8000, 0.003, 0.01),
        ({"steps": 125, "population_limit": 400}, 125, 0.02, 0.02),
        ({"steps": 8000, "population_limit": 400}, 8000, 0.01, 0.01),
        ({"duration": 4.0}, 1000, 0.006, 0.02),
        ({"duration": 4.0, "steps": 125}, 125, 0.012, 0.02),
        ({"duration": 4.0, "steps": 500, "local_steps": 4}, 1000, 0.006, 0.02),
        ({"steps": 2000, "local_steps": 4}, 8000, 0.003, 0.01),
        ({"steps": 25, "local_steps": 5, "audit": 0.0, "population_limit": 4, "time_per_step": 9.0}, 125, 0.012, 0.02),
        ({"duration": 4.0, "population_limit": 4, "time_per_step": 9.0}, 0, 0.006, 0.02),
    ],
)
def test_the_rate_falls_with_the_cube_root_of_the_steps_of_a_run(
    given: Mapping[str, Any], n_steps: int, rate: float, most: float
) -> None:
    config, reasons = settled(Sloping, **given)
    assert config.optimizer.learning_rate == pytest.approx(rate)
    assert config.optimizer.max_learning_rate == pytest.approx(most)
    assert (f"it suits most networks in runs of about {n_steps:,} steps;" in str(reasons[-1])) == (n_steps > 0)


@pytest.mark.parametrize(("local_steps", "deadline_s"), [(1, 40.0), (3, 120.0), (0, 120.0)])
def test_local_steps_change_nothing_but_how_long_a_step_may_take(local_steps: int, deadline_s: float) -> None:
    config, reasons = settled(Sloping, local_steps=local_steps, population_limit=10_000)
    assert config.strategy.time_per_step == deadline_s
    plain = settled(Sloping, population_limit=10_000, local_steps=1)[0]
    assert config.replace({"local_steps": 1, "time_per_step": 40.0}) == plain
    assert strategy_of(config).local_steps == local_steps
    assert strategy_of(config).perturbation == GRADIENTS
    assert "local_steps" not in [reason.key for reason in reasons]


@pytest.mark.parametrize("wanted", [{"seats": 2}, {"shards": 2}], ids=str)
def test_the_seats_of_a_crew_take_each_step_together(wanted: Mapping[str, int]) -> None:
    config, reasons = settled(Sloping, **wanted)
    assert config.strategy.local_steps == 1
    assert "local_steps = 1: the seats of a crew take each step together" in map(str, reasons)


def test_whoever_wants_local_steps_is_told_why_losses_have_none() -> None:
    with pytest.raises(ConfigError, match=r"local_steps: expected 0 or 1 with measure = losses.*got 2; leave it out"):
        settled(CountingTask, local_steps=2)


def test_where_results_are_audited_there_are_few_local_steps() -> None:
    audited, trusted = (settled(Sloping, audit=audit)[0] for audit in (0.02, 0.0))
    assert strategy_of(audited).most_local_steps == 4
    assert strategy_of(trusted).most_local_steps == 128
    assert settled(Sloping, local_steps=4)[0].strategy.local_steps == 4
    refusal = r"local_steps: expected at most 4 where results are audited \(audit = 0.02\)"
    with pytest.raises(ConfigError, match=refusal):
        settled(Sloping, local_steps=5)
    assert settled(Sloping, local_steps=5, audit=0.0)[0].strategy.local_steps == 5


def test_plain_gradient_descent_takes_more_local_steps_where_results_are_audited() -> None:
    config, _ = settled(Sloping, local_steps=16, optimizer="sgd", beta1=0.0)
    assert (config.strategy.local_steps, strategy_of(config).most_local_steps) == (16, 16)
    for n_local, beta1, most in ((17, 0.0, 16), (5, 0.9, 4)):
        with pytest.raises(ConfigError, match=f"expected at most {most} where results are audited .*got {n_local}"):
            settled(Sloping, local_steps=n_local, optimizer="sgd", beta1=beta1)
