from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest

from fedlearn.config import ConfigError, RunConfig
from fedlearn.runs import creation
from fedlearn.runs.creation import create
from fedlearn.runs.forecast import forecast
from fedlearn.runs.run import KIND_FILE, find, kind_named
from fedlearn.storage.checkpoint import load_metadata, read_checkpoint
from fedlearn.storage.durable import StorageError
from fedlearn.tasks.limits import MAX_PARAMETERS
from fedlearn.tasks.reason import Reason, Reasons
from fedlearn.tasks.rnn import kind as rnn
from fedlearn.tasks.rnn.kind import KIND as RNN
from fedlearn.tasks.rnn.objective import RnnObjective
from fedlearn.tasks.rnn.recipe import members_per_s, settle
from fedlearn.tasks.strategy import strategy_of
from fedlearn.tasks.user.named_task import NamedTask
from fedlearn.tasks.user.task_kind import FUNCTION
from tests.run_folders import created, fit_task, reopened, task_config
from tests.tasks.followed import Followed

OPEN = dict.fromkeys(
    ("hidden_size", "group_size", "sigma", "learning_rate", "population_limit", "max_population", "time_per_step"), 0
)


def test_runs_are_numbered(config: RunConfig) -> None:
    assert [created(config).folder.path.name for _ in range(2)] == ["1", "2"]


def test_genesis_follows_from_the_seed(config: RunConfig) -> None:
    digests = [read_checkpoint(created(config, seed=seed).folder.genesis).snapshot.digest for seed in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]


def test_genesis_has_the_digest_of_its_content_and_the_step_asked_for(config: RunConfig) -> None:
    run = created(config, step_num=30)
    genesis = read_checkpoint(run.folder.genesis).snapshot
    assert genesis.step == 30
    assert run.holding().load(genesis) == genesis.digest


def test_start_is_kept_where_weights_are_pulled_towards_it(config: RunConfig) -> None:
    begun = {
        towards: read_checkpoint(created(config, weight_decay_towards=towards).folder.genesis).snapshot
        for towards in ("zero", "start")
    }
    assert {towards: (snapshot.slots, snapshot.is_start) for towards, snapshot in begun.items()} == {
        "zero": ({}, False),
        "start": ({}, True),
    }


def test_folder_of_a_run_has_its_kind_and_what_the_kind_reads_again(config: RunConfig, tmp_path: Path) -> None:
    folder = created(config).folder
    assert (folder.data / KIND_FILE).read_text() == "rnn\n"
    assert {path.name for path in folder.data.iterdir()} > {"train.npy", "tokenizer.json", KIND_FILE}
    folder = created(task_config(tmp_path), fit_task()).folder
    assert (folder.data / KIND_FILE).read_text() == "function\n"
    assert {path.name for path in folder.data.iterdir()} == {"task.json", KIND_FILE}


def test_nothing_is_a_run_until_all_of_it_is_written(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creation, "write_checkpoint", Mock(side_effect=StorageError("the disk is full")))
    with pytest.raises(StorageError, match="disk is full"):
        created(config)
    with pytest.raises(StorageError, match=r"runs in .*: none"):
        find(config.run.runs, "latest")
    assert list(Path(config.run.runs).iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, OSError])
def test_nothing_stays_of_a_run_that_could_not_be_created(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    monkeypatch.setattr(creation, "write_durably", Mock(side_effect=error))
    with pytest.raises(ConfigError if error is MemoryError else error):
        created(config)
    assert list(Path(config.run.runs).iterdir()) == []


def test_model_that_is_too_large_is_refused(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    complaint = f"hidden_size, n_layers: .* at most {MAX_PARAMETERS} parameters, got 65536 and 16; lower them"
    with pytest.raises(ConfigError, match=complaint):
        created(config, hidden_size=65536, n_layers=16)
    monkeypatch.setattr(RnnObjective, "initial_weights", Mock(side_effect=MemoryError))
    with pytest.raises(ConfigError, match=r"task: .* fits in memory, got \d+ parameters; choose a smaller one"):
        created(config)


def test_task_that_is_too_large_for_any_message_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creation, "MAX_PARAMETERS", 5)
    with pytest.raises(ConfigError, match="task: expected a model of 1 to 5 parameters, got 6"):
        created(task_config(tmp_path), fit_task())
    monkeypatch.setattr(creation, "MAX_PARAMETERS", 6)
    assert created(task_config(tmp_path), fit_task()).folder.path.name == "1"


@pytest.mark.parametrize(
    ("covariance", "changes", "message"),
    [
        (True, {"optimizer": "adam"}, "optimizer: expected cma, by which .*, got adam; covariance=False of"),
        (False, {"optimizer": "cma"}, "optimizer: expected another one, got cma; covariance=True of"),
        (True, {"learning_rate": 1e-4}, "learning_rate: expected that of the noise, 0.02, .* got 0.0001; leave it out"),
        (True, {"rank": 1}, "rank: expected 0 with the optimizer cma, got 1; leave it out"),
        (True, {"weight_decay": 0.1}, "weight_decay: expected 0.0 with the optimizer cma, got 0.1; leave it out"),
        (
            True,
            {"sigma_schedule": "linear", "steps": 9},
            "sigma_schedule: expected constant with the optimizer cma, got linear",
        ),
    ],
)
def test_an_optimizer_that_searches_needs_a_factor_and_a_factor_needs_it(
    tmp_path: Path, covariance: bool, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        created(task_config(tmp_path), fit_task(covariance=covariance), **{"optimizer": "cma", "rank": 0, **changes})


def test_control_matrices_that_are_too_large_are_named_before_anything_is_measured(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rnn, "MAX_SUMMED_PARAMETERS", 2000)
    perturbed = config.replace({"perturb": "activations", "hidden_size": 0})
    measure = Mock(return_value=1e6)
    with pytest.raises(
        ConfigError, match=r"control_variates: .* at most 2000 .* control matrices; set control_variates"
    ):
        create(RNN, perturbed, measure=measure)
    measure.assert_not_called()
    assert create(RNN, perturbed.replace({"control_variates": False}), measure=measure).config.get("hidden_size")


@pytest.mark.parametrize("wanted", [{"seats": 2}, {"shards": 2}])
def test_seats_that_a_model_can_not_fill_leave_no_run(tmp_path: Path, wanted: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="seats, shards: expected a task of a PyTorch module that travels as a graph"):
        created(task_config(tmp_path, **wanted), fit_task())
    assert list((tmp_path / "runs").iterdir()) == []


def test_text_is_one_block_unless_it_is_renewed(config: RunConfig) -> None:
    whole = created(config, block_tokens=500)
    pieces = created(config, new_tokens_interval=3, block_tokens=500)
    (tokens,) = (block["tokens"] for block in whole.prepared.blocks)
    assert (whole.prepared.steps_per_block, pieces.prepared.steps_per_block) == (0, 3)
    assert len(pieces.prepared.blocks) == len(tokens) // 500
    assert np.array_equal(np.concatenate([block["tokens"] for block in pieces.prepared.blocks]), tokens)


def test_what_is_left_open_is_chosen_by_the_measured_throughput(config: RunConfig) -> None:
    measure = Mock(return_value=1e8 / 8)  # members, of 8 tokens each
    open_config = config.replace({**OPEN, "duration": 300.0, "threads": 1})
    followed = Followed()
    run = create(RNN, open_config, measure=measure, progress=followed)
    assert followed.pieces == [
        "reading the data",
        "learning the tokenizer",
        "writing the tokens",
        "cutting blocks",
        "measuring this machine",
        "hashing the files of the run",
    ]
    (block,) = run.prepared.blocks
    (objective, strategy, data), options = measure.call_args
    vocab_size, _, _ = objective.shape
    chosen, reasons = settle(open_config, throughput=1e8, n_training_tokens=len(block["tokens"]), vocab_size=vocab_size)
    assert run.config == chosen.replace({"optimizer": "adam"})
    *said, traffic = run.prepared.reasons
    assert said == [Reason("measured: 100 million trial-tokens/s at hidden_size 64"), *reasons]
    assert run.prepared.members_per_s == members_per_s(chosen, throughput=1e8, vocab_size=vocab_size)
    layout, speed = run.prepared.objective.layout, run.prepared.members_per_s
    assert traffic == forecast(strategy_of(chosen), layout, n_volunteers=1, members_per_s=speed).reason()
    assert msgspec.json.decode(run.folder.reasons.read_bytes(), type=Reasons) == run.prepared.reasons
    assert (objective.shape, objective.window.batch_size) == ((vocab_size, 64, 1), 1)
    assert (strategy.group_size, strategy.perturbation.sigma) == (64, 0.01)
    assert np.array_equal(data["tokens"], block["tokens"])
    assert options == {}


def test_what_was_chosen_is_written_down_and_not_chosen_again(config: RunConfig) -> None:
    run = create(RNN, config.replace({"learning_rate": 0.0, "population_limit": 0}), measure=lambda *_: 1e6)
    assert run.config.is_settled
    found = reopened(run)
    assert (found.config, found.prepared.reasons) == (run.config, ())
    assert run.config.strategy.population_limit > 4 * run.prepared.objective.layout.size
    rate = 2 * 0.048  # the most that it grows with the population
    assert run.config.optimizer.learning_rate == pytest.approx(rate, rel=0.005)
    assert f'"learning_rate": {run.config.optimizer.learning_rate}' in load_metadata(run.folder.genesis, "config")


def test_nothing_is_measured_where_everything_was_given(config: RunConfig, tmp_path: Path) -> None:
    measure = Mock()
    (traffic,) = create(RNN, config, measure=measure).prepared.reasons
    assert str(traffic).startswith("in a step a volunteer receives 354 B")
    create(FUNCTION, task_config(tmp_path), fit_task(), measure=measure)
    measure.assert_not_called()


def test_what_volunteers_receive_counts_all_that_the_server_starts(config: RunConfig) -> None:
    (alone,), (three,) = (created(config, volunteers=volunteers).prepared.reasons for volunteers in (0, 3))
    assert (str(alone), str(three)) == (
        "in a step a volunteer receives 354 B and sends 344 B; the journal grows by 237 B",
        "in a step a volunteer receives 354 B and sends 184 B; the journal grows by 237 B",
    )


def test_nothing_is_said_of_crews_whose_cuts_are_not_known(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="only a graph is cut")
    from tests.tasks.torch_graph.shared import task

    named_task = NamedTask(task(), "fit.py:task", bytes(16))
    (tmp_path / "crews").mkdir()
    for folder, n_said, settings in ((tmp_path, 1, {}), (tmp_path / "crews", 0, {"seats": 2})):
        config = task_config(folder, **settings)
        run = create(kind_named("fit.py:task", named_task), config, named_task, measure=lambda *_: 1.0)
        assert sum("a volunteer receives" in str(reason) for reason in run.prepared.reasons) == n_said


def test_run_of_a_task_keeps_what_replays_it(tmp_path: Path) -> None:
    task = fit_task()
    run = created(task_config(tmp_path), task)
    assert run.prepared.invitation.identity == task.identity
    assert reopened(run).prepared.invitation.identity == task.identity
