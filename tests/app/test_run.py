import os
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest

from fedlearn.app import history
from fedlearn.app import run as runs
from fedlearn.app.run import Run, strategy_of
from fedlearn.app.snapshots import snapshot_of
from fedlearn.config import AUTOMATIC_KEYS, ConfigError, RunConfig
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.schedules import Schedule
from fedlearn.es.update import Update
from fedlearn.objectives.rnn import RnnObjective
from fedlearn.objectives.rnn_layout import rnn_layout
from fedlearn.recipe import settle
from fedlearn.storage.checkpoint import load_checkpoint, load_checkpoint_config
from fedlearn.storage.durable import StorageError


@pytest.fixture
def run(config: RunConfig) -> Run:
    return runs.create(config)


def update_of(run: Run, step: int) -> Update:
    (block,) = run.blocks
    utilities = np.arange(-8, 8, dtype=np.int8)
    return Update(step, block, ((0, 16),), utilities, 1, 8, -0.1, "adam", 0.01, 0.9, 0.999, 1e-8, False, 0.0, 0.0, 1.0)


def test_run_that_was_created_is_found_as_it_was(run: Run, config: RunConfig) -> None:
    found = runs.find(config.runs, "latest")
    assert found.folder == run.folder
    assert (found.config, found.model) == (config, run.model)
    assert list(found.blocks) == list(run.blocks)
    assert found.objective.layout == run.objective.layout
    assert np.array_equal(found.dataset.validation.tokens, run.dataset.validation.tokens)
    assert found.dataset.tokenizer.to_json() == run.dataset.tokenizer.to_json()


def test_runs_are_numbered(config: RunConfig) -> None:
    assert [runs.create(config).folder.path.name for _ in range(2)] == ["1", "2"]


def test_genesis_follows_from_the_seed(config: RunConfig) -> None:
    digests = [
        load_checkpoint(runs.create(msgspec.structs.replace(config, seed=seed)).folder.genesis).digest
        for seed in (1, 1, 2)
    ]
    assert digests[0] == digests[1] != digests[2]


def test_genesis_has_the_digest_of_its_content_and_the_step_asked_for(config: RunConfig) -> None:
    run = runs.create(msgspec.structs.replace(config, step_num=30))
    genesis = load_checkpoint(run.folder.genesis)
    assert genesis.step == 30
    assert run.new_replica(genesis).digest == genesis.digest


def test_run_whose_text_is_gone_is_still_complete(run: Run, config: RunConfig) -> None:
    Path(config.data).unlink()
    assert list(runs.load(run.folder).blocks) == list(run.blocks)


def test_nothing_is_a_run_until_all_of_it_is_written(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "write_checkpoint", Mock(side_effect=StorageError("the disk is full")))
    with pytest.raises(StorageError, match="disk is full"):
        runs.create(config)
    with pytest.raises(StorageError, match=r"runs in .*: none"):
        runs.find(config.runs, "latest")
    assert list(Path(config.runs).iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, OSError])
def test_nothing_stays_of_a_run_that_could_not_be_created(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    monkeypatch.setattr(runs, "save_dataset", Mock(side_effect=error))
    with pytest.raises(ConfigError if error is MemoryError else error):
        runs.create(config)
    assert list(Path(config.runs).iterdir()) == []


def test_model_that_is_too_large_is_refused(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"hidden_size, n_layers: .* at most 268\d+ parameters, got 65536 and 16;"):
        runs.create(msgspec.structs.replace(config, hidden_size=65536, n_layers=16))
    monkeypatch.setattr(RnnObjective, "initial_weights", Mock(side_effect=MemoryError))
    with pytest.raises(ConfigError, match=r"hidden_size, n_layers: .* fits in memory, got 8 and 1; lower them"):
        runs.create(config)


def test_control_matrices_that_are_too_large_are_named_before_anything_is_measured(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MAX_SUMMED_PARAMETERS", 2000)
    perturbed = msgspec.structs.replace(config, perturb="activations", hidden_size=0)
    measure = Mock(return_value=1e6)
    with pytest.raises(
        ConfigError, match=r"control_variates: .* at most 2000 .* control matrices; set control_variates"
    ):
        runs.create(perturbed, measure=measure)
    measure.assert_not_called()
    assert runs.create(msgspec.structs.replace(perturbed, control_variates=0), measure=measure).config.hidden_size


def test_damaged_configuration_is_named(run: Run) -> None:
    run.folder.config.write_text("{")
    with pytest.raises(ConfigError, match=r"config\.json"):
        runs.load(run.folder)


def test_text_is_one_block_unless_it_is_renewed(config: RunConfig) -> None:
    whole = runs.create(msgspec.structs.replace(config, block_tokens=500))
    pieces = runs.create(msgspec.structs.replace(config, new_tokens_interval=3, block_tokens=500))
    tokens = whole.dataset.train.tokens
    assert [len(block) for block in whole.blocks.values()] == [len(tokens)]
    assert len(pieces.blocks) == len(tokens) // 500
    assert np.array_equal(np.concatenate(list(pieces.blocks.values())), tokens)


def test_unknown_block_is_named(run: Run) -> None:
    with pytest.raises(ValueError, match="00ff"):
        run.block(b"\x00\xff")


def test_snapshot_does_not_change_with_the_replica(run: Run) -> None:
    replica, _ = history.replay(run)
    snapshot = snapshot_of(replica)
    replica.apply(update_of(run, 0))
    assert run.new_replica(snapshot).digest == snapshot.digest != replica.digest


def test_bits_per_character_count_characters_not_tokens(config: RunConfig) -> None:
    run = runs.create(msgspec.structs.replace(config, tokenizer="bytes"))
    assert run.bits_per_character(np.log(2)) == pytest.approx(1.0)
    replica, _ = history.replay(run)
    uniform = run.validation_bits_per_character(np.zeros_like(replica.weights), threads=1)
    assert uniform == pytest.approx(np.log2(run.dataset.tokenizer.vocab_size), rel=1e-4)


def test_age_is_since_the_last_file_was_written(run: Run) -> None:
    run.folder.metrics.touch()
    for file, age in ((run.folder.config, 3000), (run.folder.metrics, 2000)):
        os.utime(file, (time.time() - age,) * 2)
    assert runs.age_of(run.folder) == pytest.approx(2000, abs=60)


def test_what_is_left_open_is_chosen_by_the_measured_throughput(config: RunConfig) -> None:
    measure = Mock(return_value=1e8)
    open_config = msgspec.structs.replace(config, **dict.fromkeys(AUTOMATIC_KEYS, 0), duration=300.0, threads=1)
    run = runs.create(open_config, measure=measure)
    tokens = run.dataset.train.tokens
    chosen, reasons = settle(
        open_config, throughput=1e8, n_training_tokens=len(tokens), vocab_size=run.dataset.tokenizer.vocab_size
    )
    assert run.config == chosen
    assert run.reasons == (
        "measured: 100 million trial-tokens/s at hidden_size 64, 1 thread of the local volunteers",
        *reasons,
    )
    (objective, strategy, dataset), options = measure.call_args
    assert objective.initial_weights(dataset.unigram_counts).size == objective.layout.size
    assert objective.layout == rnn_layout(dataset.tokenizer.vocab_size, 64, 1, 10.0)
    assert (strategy.group_size, strategy.perturbation.sigma) == (64, 0.01)
    assert np.array_equal(dataset.train.tokens, tokens)
    assert options == {"threads": 1}


def test_what_was_chosen_is_written_down_and_not_chosen_again(config: RunConfig) -> None:
    open_config = msgspec.structs.replace(config, learning_rate=0.0, population_limit=0)
    run = runs.create(open_config, measure=lambda *_, **__: 1e7)
    assert run.config.is_settled
    found = runs.find(config.runs, "latest")
    assert (found.config, found.reasons) == (run.config, ())
    history.check_origin(found)
    assert '"learning_rate": 0.048' in load_checkpoint_config(run.folder.genesis)


def test_a_run_without_local_volunteers_says_what_was_measured(config: RunConfig) -> None:
    open_config = msgspec.structs.replace(config, sigma=0.0, volunteers=0, threads=4)
    measure = Mock(return_value=2.5e6)
    run = runs.create(open_config, measure=measure)
    assert run.reasons[0] == (
        "measured: 2.5 million trial-tokens/s at hidden_size 64, 1 thread as no volunteer is local"
    )
    assert measure.call_args.kwargs == {"threads": 1}


def test_nothing_is_measured_where_everything_was_given(config: RunConfig) -> None:
    measure = Mock()
    assert runs.create(config, measure=measure).reasons == ()
    measure.assert_not_called()


def test_a_run_whose_values_were_taken_away_is_refused(run: Run) -> None:
    text = run.folder.config.read_text()
    run.folder.config.write_text(text.replace('"hidden_size": 8', '"hidden_size": 0').replace('"sigma": 0.02,', ""))
    with pytest.raises(ConfigError, match=r"^hidden_size, sigma: expected the values of the run, got 0 from .*json"):
        runs.load(run.folder)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "inverse-sqrt"),
        ({"steps": 5}, "linear"),
        ({"duration": 5.0}, "linear"),
        ({"steps": 5, "learning_rate_schedule": "inverse-sqrt"}, "inverse-sqrt"),
        ({"learning_rate_schedule": "constant"}, "constant"),
    ],
    ids=str,
)
def test_a_run_without_an_end_gets_a_schedule_that_needs_none(changes: dict[str, Any], expected: str) -> None:
    schedule = strategy_of(RunConfig(**changes)).schedule
    assert schedule.learning_rate == expected
    assert (schedule.steps, schedule.duration_s) == (changes.get("steps", 0), changes.get("duration", 0.0))


def test_the_strategy_takes_every_choice_from_the_configuration() -> None:
    schedule = {"learning_rate": "cosine", "sigma": "linear", "warmup_steps": 3, "steps": 9, "duration_s": 4.5}
    choices = {
        "group_size": 6,
        "population_limit": 600,
        "max_population": 900,
        "learning_rate": 0.25,
        "optimizer": "sgd",
        "beta1": 0.75,
        "beta2": 0.5,
        "fitness_shaping": "sign",
        "weight_decay": 0.125,
    }
    noise = {"sigma": 0.5, "rank": 3, "head": "perturbed", "logit_sigma": 0.25, "discount": 0.75, "antithetic": True}
    config = RunConfig(
        **choices,  # type: ignore[arg-type]
        **noise,  # type: ignore[arg-type]
        learning_rate_schedule="cosine",
        sigma_schedule="linear",
        warmup_steps=3,
        steps=9,
        duration=4.5,
    )
    assert msgspec.structs.asdict(strategy_of(config)) == {
        **choices,
        "perturbation": Perturbation(space="weights", **noise),  # type: ignore[arg-type]
        "schedule": Schedule(**schedule),  # type: ignore[arg-type]
    }
