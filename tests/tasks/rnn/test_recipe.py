from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlearn.config import MAX_MEMBERS, RunConfig, Schema
from fedlearn.es.optimizers import OPTIMIZERS
from fedlearn.tasks.rnn.layout import rnn_layout
from fedlearn.tasks.rnn.options import RnnOptions
from fedlearn.tasks.rnn.recipe import choose_optimizer, choose_precision, settle

SCHEMA = Schema(RnnOptions)
AUTOMATIC_KEYS = ("hidden_size", "group_size", "sigma", "population_limit", "learning_rate", "time_per_step")
"""In the order in which they are chosen."""

N_TOKENS = 10**9
VOCAB_SIZE = 65
CHOSEN: dict[str, Any] = {"perturb": "weights", "head": "perturbed", "precision": "float32"}
"""What is chosen before."""

CHAIN: dict[str, Any] = {"perturb": "activations"}
ACTIVATIONS: dict[str, Any] = {**CHAIN, "control_variates": False}


def settled(throughput: float = 1e7, *, n_training_tokens: int = N_TOKENS, **given: Any) -> RunConfig:  # noqa: ANN401 (values of any key)
    config = SCHEMA.build(CHOSEN | given)
    return settle(config, throughput=throughput, n_training_tokens=n_training_tokens, vocab_size=VOCAB_SIZE)[0]


def n_parameters(hidden_size: int) -> int:
    return rnn_layout(VOCAB_SIZE, hidden_size, 1, 10.0).size


@pytest.mark.parametrize(
    ("given", "trial_tokens", "expected"),
    [
        ({}, 1e6, 64),
        ({}, 2e10, 64),
        ({}, 2.01e10, 128),
        (ACTIVATIONS, 0.99e8, 64),
        (ACTIVATIONS, 1e8, 128),
        (ACTIVATIONS, 3e9, 128),
        (ACTIVATIONS, 3.01e9, 256),
        (CHAIN, 1.0, 128),
        (CHAIN, 3e8, 128),
        (CHAIN, 3.01e8, 256),
        (CHAIN | {"head": "closed-form"}, 1.0, 128),
        (CHAIN | {"head": "closed-form"}, 6e7, 128),
        (CHAIN | {"head": "closed-form"}, 6.1e7, 256),
        (CHAIN | {"head": "closed-form", "correction": 1.0}, 1.01e8, 128),
    ],
)
def test_more_trials_are_worth_more_units(given: dict[str, Any], trial_tokens: float, expected: int) -> None:
    assert settled(trial_tokens / 100.0, duration=100.0, **given).get("hidden_size") == expected
    assert settled(trial_tokens / 600.0, **given).get("hidden_size") == expected
    assert settled(trial_tokens / 600.0, steps=7, **given).get("hidden_size") == expected


@pytest.mark.parametrize(
    ("local", "expected", "machines"), [(1, 0, 1), (1, 3, 4), (2, 3, 4), (0, 3, 3), (0, 0, 1)], ids=str
)
def test_expected_volunteers_are_worth_more_units(local: int, expected: int, machines: int) -> None:
    given = {**ACTIVATIONS, "volunteers": local, "expected_volunteers": expected, "duration": 100.0}
    assert settled(1e8 / 100.0 / machines, **given).get("hidden_size") == 128
    assert settled(0.99e8 / 100.0 / machines, **given).get("hidden_size") == 64


def test_the_reason_for_a_size_names_the_volunteers_that_are_expected() -> None:
    _, reasons = settle(
        SCHEMA.build({"expected_volunteers": 9, **ACTIVATIONS}),
        throughput=1e6,
        n_training_tokens=N_TOKENS,
        vocab_size=VOCAB_SIZE,
    )
    expected = "for 6,000 million trial-tokens in 600 s, with 9 volunteers that are expected"
    assert str(reasons[0]) == f"hidden_size = 256: {expected}"


@pytest.mark.parametrize(("fits", "expected"), [(256, 256), (128, 128), (64, 64), (32, 32), (16, 16), (8, 16)])
def test_a_small_text_gets_a_small_model(fits: int, expected: int) -> None:
    for n_training_tokens in (2 * n_parameters(fits), 4 * n_parameters(fits) - 1):
        assert settled(1e9, n_training_tokens=n_training_tokens, **ACTIVATIONS).get("hidden_size") == expected


def test_one_token_less_than_two_a_parameter_is_too_few() -> None:
    assert settled(1e9, n_training_tokens=2 * n_parameters(128) - 1).get("hidden_size") == 64


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (64, 0.01, 0.006)),
        ({"steps": 9}, (64, 0.01, 0.01)),
        ({"duration": 100.0}, (64, 0.01, 0.01)),
        ({"duration": 101.0}, (64, 0.01, 0.003)),
        ({"duration": 101.0, "steps": 9}, (64, 0.01, 0.003)),
        ({"hidden_size": 256}, (64, 0.01, 0.0015)),
        ({"hidden_size": 128, "steps": 9}, (64, 0.01, 0.005)),
        (ACTIVATIONS, (16, 0.05, 0.00125)),
        (ACTIVATIONS | {"duration": 300.0}, (16, 0.05, 0.0025)),
        (ACTIVATIONS | {"hidden_size": 32}, (16, 0.05, 0.01)),
        (ACTIVATIONS | {"duration": 10.0}, (16, 0.05, 0.0025)),
        (ACTIVATIONS | {"duration": 9.9}, (16, 0.05, 0.005)),
        (ACTIVATIONS | {"duration": 2.0}, (16, 0.05, 0.005)),
        (ACTIVATIONS | {"duration": 1.9}, (16, 0.05, 0.01)),
        (CHAIN | {"duration": 1.0}, (4, 0.05, 0.00699)),
        (CHAIN | {"head": "closed-form", "duration": 1.0}, (4, 0.05, 0.00699)),
        (CHAIN | {"head": "closed-form", "correction": 1.0, "duration": 2.0}, (16, 0.05, 0.005)),
        (ACTIVATIONS | {"head": "closed-form", "control_variates": False, "duration": 2.0}, (16, 0.05, 0.005)),
    ],
    ids=str,
)
def test_groups_noise_and_learning_rate_go_with_what_is_perturbed(
    given: dict[str, Any], expected: tuple[int, float, float]
) -> None:
    config = settled(1e7, population_limit=320, **given)
    assert (config.strategy.group_size, config.strategy.sigma) == expected[:2]
    assert config.optimizer.learning_rate == pytest.approx(expected[2])
    assert config.optimizer.max_learning_rate == 0.0


@pytest.mark.parametrize(
    ("given", "reference", "rate", "largest"),
    [
        ({"steps": 9}, n_parameters(64), 0.01, 4 * n_parameters(64)),
        (ACTIVATIONS | {"hidden_size": 64, "duration": 100.0}, 64 * 16, 0.005, 4096 * 16),
        (CHAIN | {"hidden_size": 64, "duration": 5.0}, 64 * 4, 0.0125, 1024 * 4),
        (ACTIVATIONS | {"hidden_size": 64}, 256 * 16, 0.005, 4096 * 16),
    ],
    ids=str,
)
def test_learning_rate_follows_the_population(given: dict[str, Any], reference: int, rate: float, largest: int) -> None:
    for population, times in ((reference // 2, 1.0), (reference, 1.0), (4 * reference, 2.0), (10 * largest, 0.0)):
        expected = rate * times or rate * (largest / reference) ** 0.5
        assert settled(1e7, population_limit=population, **given).optimizer.learning_rate == pytest.approx(
            expected, rel=0.005
        )


def test_learning_rate_is_that_of_the_members_who_are_in_time() -> None:
    many = {"population_limit": 10**6, "hidden_size": 64, "duration": 600.0, **ACTIVATIONS}
    for time_per_step, members in ((0.04, 10_000), (0.16, 40_000), (9.0, 65_536)):
        optimizer = settled(4e6, time_per_step=time_per_step, **many).optimizer
        assert optimizer.learning_rate == pytest.approx(0.005 * (members / 1024) ** 0.5, rel=0.005)


def test_learning_rate_grows_with_a_population_that_was_chosen() -> None:
    config = settled(4e6, **ACTIVATIONS, hidden_size=64, duration=600.0)
    assert config.strategy.population_limit == 4992
    assert config.optimizer.learning_rate == pytest.approx(0.005 * (4992 / 1024) ** 0.5, rel=0.005)
    assert config.optimizer.max_learning_rate == pytest.approx(0.04)
    largest = settled(1e9, **ACTIVATIONS, hidden_size=64).optimizer
    assert largest.learning_rate == pytest.approx(largest.max_learning_rate) == pytest.approx(0.02)


def test_learning_rate_keeps_to_the_largest_one_that_was_given() -> None:
    for population in (0, 10**6):
        optimizer = settled(1e7, max_learning_rate=0.004, population_limit=population).optimizer
        assert (optimizer.learning_rate, optimizer.max_learning_rate) == (0.004, 0.004)
    assert settled(1e7, max_learning_rate=0.5).optimizer.max_learning_rate == 0.5


@pytest.mark.parametrize(("given", "most"), [({}, 7.0), (ACTIVATIONS, 2.0)], ids=["weights", "activations"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_each_optimizer_has_its_own_share_of_the_rate(optimizer: str, given: dict[str, Any], most: float) -> None:
    ratio = min(OPTIMIZERS[optimizer].rate_to_adam, most)
    usual, own = settled(1e7, **given).optimizer, settled(1e7, optimizer=optimizer, **given).optimizer
    assert own.learning_rate == pytest.approx(ratio * usual.learning_rate, rel=0.005)
    assert own.max_learning_rate == pytest.approx(ratio * usual.max_learning_rate, rel=0.005)


@pytest.mark.parametrize(
    ("given", "decay"),
    [
        (CHAIN | {"optimizer": "muon"}, 0.1),
        (CHAIN | {"optimizer": "muon", "weight_decay": 0.2}, 0.2),
        (CHAIN | {"optimizer": "muon", "learning_rate": 0.01}, 0.0),
        (CHAIN | {"optimizer": "adam"}, 0.0),
        ({"optimizer": "muon"}, 0.0),
    ],
    ids=str,
)
def test_matrices_decay_where_muon_has_a_rate_that_was_chosen(given: dict[str, Any], decay: float) -> None:
    config = SCHEMA.build(CHOSEN | given)
    config, reasons = settle(config, throughput=1e7, n_training_tokens=N_TOKENS, vocab_size=VOCAB_SIZE)
    assert config.optimizer.weight_decay == decay
    assert any("; matrices decay by 0.1" in reason.why for reason in reasons) == (decay == 0.1)


def test_a_learning_rate_that_was_given_does_not_grow() -> None:
    assert settled(1e5, learning_rate=0.1).optimizer.max_learning_rate == 0.0


@pytest.mark.parametrize(
    ("given", "throughput", "expected"),
    [
        # Half the 12,609 parameters, what 0.4 s are good for, all parameters, what 20 ms are good for; in groups of 64.
        ({}, 2.5e5, 6272),
        ({}, 4e5, 9984),
        ({}, 9e6, 12_608),
        ({}, 2e7, 24_960),
        ({"duration": 60.0}, 9e6, 12_608),
        # A second is enough, however many parameters there are.
        ({"hidden_size": 1024}, 1e7, 4608),
        ({"hidden_size": 1024}, 1.0, 64),
        ({"group_size": 50_000}, 1e7, 50_000),
        ({"max_population": 7000}, 3e7, 6976),
        ({"max_population": 40}, 3e7, 32),
        # A member of three sequences of twice the length costs six times as much.
        ({"hidden_size": 64, "batch_size": 3, "sequence_length": 32}, 6 * 4e5, 9984),
        (ACTIVATIONS | {"duration": 1.0}, 1e5, 1024),
        (ACTIVATIONS | {"hidden_size": 64, "duration": 6000.0}, 2e4, 1024),
        (ACTIVATIONS | {"hidden_size": 64}, 5e6, 6240),
        (ACTIVATIONS | {"hidden_size": 128}, 5e6, 2080),
        (ACTIVATIONS | {"hidden_size": 64}, 1e9, 65536),
        # More than 3e9 trial-tokens: more groups a step.
        (ACTIVATIONS | {"hidden_size": 1024, "duration": 30000.0}, 1e5, 1024),
        (ACTIVATIONS | {"hidden_size": 1024, "duration": 30001.0}, 1e5, 4096),
    ],
    ids=str,
)
def test_a_step_is_long_enough_for_its_fixed_costs(given: dict[str, Any], throughput: float, expected: int) -> None:
    assert settled(throughput, **given).strategy.population_limit == expected


def test_a_population_that_was_chosen_grows_on_where_lines_are_slow() -> None:
    assert settled().strategy.max_population == 2 * 16 * n_parameters(64) // 64 * 64
    gru = rnn_layout(VOCAB_SIZE, 64, 1, 10.0, "gru").size
    assert settled(cell="gru").strategy.max_population == 2 * 16 * gru // 64 * 64
    assert settled(**ACTIVATIONS).strategy.max_population == 16 * 4096 * 16
    assert settled(**CHAIN).strategy.max_population == 4 * 1024 * 4
    assert settled(max_population=7000).strategy.max_population == 7000
    assert settled(hidden_size=65536, rank=8).strategy.max_population == MAX_MEMBERS // 8 // 64 * 64


def test_a_population_that_was_given_stays() -> None:
    config = settled(population_limit=100).strategy
    assert (config.population_limit, config.max_population) == (100, 0)


@pytest.mark.parametrize(("population", "expected"), [(2, 2), (63, 32), (64, 64), (640, 64)])
def test_groups_go_into_the_population_that_was_given(population: int, expected: int) -> None:
    assert settled(population_limit=population).strategy.group_size == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"population_limit": 640}, 5.0),
        ({"population_limit": 200_000}, 5.0),
        ({"population_limit": 1_600_000}, 11.0),
        ({"population_limit": 400_000, "hidden_size": 128}, 8.0),
        ({"population_limit": 600_000, "n_layers": 3}, 5.0),
        ({"population_limit": 200_000, "hidden_size": 128, "n_layers": 3}, 5.0),
        ({"population_limit": 200_000, "hidden_size": 128, "cell": "gru"}, 5.0),
        ({"population_limit": 16_000_000}, 60.0),
    ],
    ids=str,
)
def test_the_deadline_leaves_four_times_the_expected_time(given: dict[str, Any], expected: float) -> None:
    assert settled(1e7, **given).strategy.time_per_step == expected


def test_each_choice_has_its_reason_in_a_sentence() -> None:
    config, reasons = settle(
        SCHEMA.build(CHOSEN | {"sigma": 0.5}), throughput=1e7, n_training_tokens=N_TOKENS, vocab_size=VOCAB_SIZE
    )
    chosen = [key for key in AUTOMATIC_KEYS if key != "sigma"]
    assert [reason.key for reason in reasons] == chosen
    for key, reason in zip(chosen, reasons, strict=True):
        assert float(reason.value) == config.get(key)
        assert len(reason.why) > 10
    assert str(reasons[0]) == "hidden_size = 64: for 6,000 million trial-tokens in 600 s"


@pytest.mark.parametrize(
    ("given", "noise"),
    [(ACTIVATIONS, "perturbed activations"), (CHAIN, "perturbed activations and control variates")],
    ids=["trials", "chain"],
)
def test_reasons_say_whether_control_variates_make_the_step(given: dict[str, Any], noise: str) -> None:
    _, reasons = settle(
        SCHEMA.build({**CHOSEN, **given, "population_limit": 64, "hidden_size": 64}),
        throughput=1e7,
        n_training_tokens=N_TOKENS,
        vocab_size=VOCAB_SIZE,
    )
    why = {reason.key: reason.why for reason in reasons}
    assert why["group_size"] == f"learned most with {noise}"
    assert why["learning_rate"].endswith(f"/ 64 units with {noise}")


GIVEN = {
    "hidden_size": st.integers(2, 4096),
    "group_size": st.integers(2, 300),
    "sigma": st.floats(1e-6, 10),
    "learning_rate": st.floats(1e-6, 10),
    "population_limit": st.integers(300, 10**6),
    "time_per_step": st.floats(0.01, 1000),
    "perturb": st.sampled_from(["weights", "activations"]),
    "rank": st.integers(0, 8),
    "n_layers": st.integers(1, 4),
    "steps": st.integers(1, 100),
    "duration": st.floats(0.1, 1e6),
    "batch_size": st.integers(1, 100),
}


@given(
    given=st.fixed_dictionaries({}, optional=GIVEN),
    throughput=st.floats(1.0, 1e12),
    n_training_tokens=st.integers(1, 10**10),
)
def test_nothing_that_was_given_changes_and_nothing_stays_open(
    given: dict[str, Any], throughput: float, n_training_tokens: int
) -> None:
    before = SCHEMA.build(CHOSEN | given)
    config, reasons = settle(before, throughput=throughput, n_training_tokens=n_training_tokens, vocab_size=VOCAB_SIZE)
    assert config.is_settled
    grown = {"max_population", "max_learning_rate"}
    changed = {key for key in SCHEMA.fields if config.get(key) != before.get(key)}
    assert changed - {"max_learning_rate"} == set(AUTOMATIC_KEYS) - set(given) | (
        set() if "population_limit" in given else {"max_population"}
    )
    assert ("max_learning_rate" in changed) <= ("learning_rate" in changed)
    assert len(reasons) == len(changed - grown)
    assert settle(config, throughput=1.0, n_training_tokens=1, vocab_size=2) == (config, ())
    if "population_limit" not in given:
        strategy = config.strategy
        assert strategy.population_limit % strategy.group_size == strategy.max_population % strategy.group_size == 0
        assert strategy.population_limit <= strategy.max_population


def test_muon_steps_where_activations_are_perturbed_and_the_head_is_in_closed_form() -> None:
    config, (reason,) = choose_optimizer(SCHEMA.build(CHOSEN | CHAIN | {"head": "closed-form"}))
    assert config.optimizer.optimizer == reason.value == "muon"


@pytest.mark.parametrize(
    "given", [{}, CHAIN, CHAIN | {"head": "closed-form", "optimizer": "adam"}, {"head": "closed-form"}], ids=str
)
def test_no_other_noise_and_no_optimizer_that_was_given_becomes_muon(given: dict[str, Any]) -> None:
    config = SCHEMA.build(CHOSEN | given)
    assert choose_optimizer(config) == (config, ())


@pytest.mark.parametrize(
    ("isa", "expected"),
    [
        ("v4-vnni", "int8"),
        ("v3-vnni", "int8"),
        ("dot", "int8"),
        ("v4", "float32"),
        ("v3", "float32"),
        ("base", "float32"),
    ],
)
def test_bytes_are_taken_where_the_processor_has_their_dot_products(isa: str, expected: str) -> None:
    config, (reason,) = choose_precision(SCHEMA.build(CHOSEN | CHAIN | {"precision": "auto"}), isa)
    assert config.get("precision") == reason.value == expected
    assert f"dot products of bytes ({isa})" in reason.why


def test_a_precision_that_was_given_stays_and_noise_on_weights_has_float32() -> None:
    for precision in ("float32", "int8"):
        given = SCHEMA.build(CHOSEN | CHAIN | {"precision": precision})
        assert choose_precision(given, "v4-vnni") == choose_precision(given, "base") == (given, ())
    config, reasons = choose_precision(SCHEMA.build(CHOSEN | {"precision": "auto"}), "v4-vnni")
    assert (config.get("precision"), reasons) == ("float32", ())
