from typing import Any

import numpy as np
import pytest

from fedlearn.config import ConfigError, RunConfig, Schema
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.strategy import Strategy
from fedlearn.es.trials import Trials
from fedlearn.tasks.blocks import Columns, block_name
from fedlearn.tasks.kind import Kind, Prepared
from fedlearn.tasks.objective import Objective
from fedlearn.tasks.rnn import kind as kind_module
from fedlearn.tasks.rnn import text_blocks
from fedlearn.tasks.rnn.examiner import RnnExaminer
from fedlearn.tasks.rnn.kind import KIND
from fedlearn.tasks.rnn.objective import RnnObjective
from fedlearn.text.source import NoProgress
from tests.run_folders import STRATEGY, fit_task
from tests.tasks.memory_folder import MemoryFolder, TextSource

TEXT = "\n\n".join(f"Paragraph {number} says hello." for number in range(100))


def config_of(**settings: Any) -> RunConfig:  # noqa: ANN401 (values of any setting)
    shape = {"hidden_size": 8, "context": 4, "sequence_length": 8, "precision": "float32"}
    return Schema(KIND.options).build({**STRATEGY, **shape, "data": ("text.txt",), **settings})


def folder_of(text: str = TEXT) -> MemoryFolder:
    return MemoryFolder({}, TextSource(text))


def never(*_: object) -> float:
    raise AssertionError("nothing is left to choose")


def started(**settings: Any) -> Prepared:  # noqa: ANN401
    return started_in(folder_of(), **settings)


def started_in(folder: MemoryFolder, **settings: Any) -> Prepared:  # noqa: ANN401
    """In a folder that has all files of the run."""
    prepared = KIND.start(config_of(**settings), None, folder=folder, measure=never, progress=NoProgress())
    folder.files |= prepared.files
    return prepared


def test_it_is_a_kind_whose_volunteers_need_no_file() -> None:
    kind: Kind = KIND
    prepared = started()
    assert kind.name == prepared.invitation.kind == "rnn"
    assert (prepared.needs_task, prepared.entry, prepared.reasons) == (False, "", ())
    assert not prepared.is_start_shared  # only the server knows how often each token occurs


def test_an_invitation_is_the_seed_and_what_the_objective_is_built_from() -> None:
    invitation = started(seed=7, n_layers=2, batch_size=3).invitation
    assert (invitation.seed, invitation.identity, invitation.attachment) == (7, {}, b"")
    vocab_size = invitation.options["vocab_size"]
    assert invitation.options == {
        "vocab_size": vocab_size,
        "hidden_size": 8,
        "n_layers": 2,
        "context": 4,
        "sequence_length": 8,
        "batch_size": 3,
        "embedding_scale": 10.0,
        "precision": "float32",
        "cell": "tanh",
    }


def test_a_run_begins_at_the_frequencies_of_its_tokens() -> None:
    prepared = started()
    (block,) = prepared.blocks
    layout = prepared.objective.layout
    bias = layout.split(prepared.objective.initial_weights())["head.bias"]
    counts = np.maximum(np.bincount(block["tokens"], minlength=bias.size), 1)
    np.testing.assert_allclose(np.exp(bias), counts / counts.sum(), rtol=1e-5)


@pytest.mark.parametrize(("head", "residuals"), [("perturbed", "readout"), ("closed-form", "head")])
def test_control_matrices_go_with_perturbed_activations(head: str, residuals: str) -> None:
    options = started(perturb="activations", head=head).invitation.options
    assert (options["control_variates"], options["control_residuals"]) == (True, residuals)
    assert "control_variates" not in started(head=head).invitation.options


def test_volunteers_are_told_which_token_ends_a_document() -> None:
    prepared = started(documents="blank-lines")
    examiner = prepared.examiner
    assert isinstance(examiner, RnnExaminer)
    assert prepared.invitation.options["reset_token"] == examiner.tokenizer.stop_token
    assert "reset_token" not in started().invitation.options


@pytest.mark.parametrize("documents", ["stream", "blank-lines"])
def test_a_volunteer_builds_the_servers_objective(documents: str) -> None:
    prepared = started(seed=7, perturb="activations", documents=documents)
    joined = KIND.join(prepared.invitation, None, device="cpu")
    assert isinstance(joined, RnnObjective)
    assert (joined.reset_token >= 0) == (documents != "stream")
    assert joined.layout == prepared.objective.layout
    trials = Trials(3, Perturbation(0.02, 1), group_size=8, first_member=16, n_members=16)
    weights, (block,) = prepared.objective.initial_weights(), prepared.blocks
    server, volunteer = (
        objective.evaluate(weights, block, trials, threads=1) for objective in (prepared.objective, joined)
    )
    np.testing.assert_array_equal(volunteer, server)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_cell_is_what_volunteers_are_told_of(cell: str) -> None:
    prepared = started(cell=cell)
    joined = KIND.join(prepared.invitation, None, device="cpu")
    assert joined.layout == prepared.objective.layout != started().objective.layout
    with pytest.raises(ConfigError, match=f"precision: expected float32 with cell = {cell}"):
        started(cell=cell, precision="int8")


def test_a_task_is_refused_since_no_users_code_takes_part() -> None:
    with pytest.raises(
        ValueError, match=r"expected none, since this server trains a recurrent network, got fit\.py:task"
    ):
        KIND.join(started().invitation, fit_task(), device="cpu")


def test_a_run_is_opened_again_from_its_files_alone() -> None:
    folder = folder_of()
    prepared = started_in(folder, new_tokens_interval=5, block_tokens=300)
    again = KIND.reopen(prepared.config, None, folder=folder)
    assert (again.config, again.invitation, again.steps_per_block) == (prepared.config, prepared.invitation, 5)
    assert list(again.named_blocks) == list(prepared.named_blocks)
    np.testing.assert_array_equal(again.objective.initial_weights(), prepared.objective.initial_weights())
    assert (again.reasons, again.files) == ((), {})


def test_the_text_is_one_block_or_comes_in_turns() -> None:
    (whole,), pieces = started(block_tokens=300).blocks, started(new_tokens_interval=5, block_tokens=300).blocks
    assert started().steps_per_block == 0
    assert len(pieces) == len(whole["tokens"]) // 300
    np.testing.assert_array_equal(np.concatenate([piece["tokens"] for piece in pieces]), whole["tokens"])


def test_text_that_is_too_large_for_a_block_comes_in_turns_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = started().blocks
    monkeypatch.setattr(text_blocks, "MAX_BLOCK_TOKENS", len(whole["tokens"]))
    assert started(block_tokens=300).steps_per_block == 0
    monkeypatch.setattr(text_blocks, "MAX_BLOCK_TOKENS", len(whole["tokens"]) - 1)
    folder = folder_of()
    prepared = started_in(folder, block_tokens=300)
    assert prepared.steps_per_block == text_blocks.STEPS_PER_BLOCK
    np.testing.assert_array_equal(np.concatenate([block["tokens"] for block in prepared.blocks]), whole["tokens"])
    assert prepared.reasons[0].why.endswith(
        "300 at a time, others every 100 steps (new_tokens_interval sets another number)"
    )
    again = KIND.reopen(prepared.config, None, folder=folder)
    assert (again.steps_per_block, [*again.named_blocks]) == (100, [*prepared.named_blocks])
    assert started(new_tokens_interval=7, block_tokens=300).steps_per_block == 7


def test_blocks_are_named_by_their_content_and_looked_up_when_they_are_asked_for() -> None:
    folder = folder_of()
    prepared = started_in(folder, new_tokens_interval=5, block_tokens=300)
    for name, block in prepared.named_blocks.items():
        assert block_name(block) == name
    assert [len(block["tokens"]) for block in prepared.blocks[:2]] == [332, 333]
    del folder.files["train.npy"]
    with pytest.raises(FileNotFoundError):
        _ = prepared.blocks[1]


@pytest.mark.parametrize("damage", [None, b"", b"[]", b'["00"]', b'["zz"]', b"[" * 100_000])
def test_names_of_blocks_that_are_damaged_are_refused(damage: bytes | None) -> None:
    folder = folder_of()
    prepared = started_in(folder, new_tokens_interval=5, block_tokens=300)
    del folder.files["blocks.json"]
    folder.files |= {} if damage is None else {"blocks.json": damage}
    with pytest.raises(ValueError, match=r"blocks\.json: expected"):
        KIND.reopen(prepared.config, None, folder=folder)


def test_packed_documents_are_told_with_their_fill_rate() -> None:
    note = str(started(documents="blank-lines").reasons[0])
    assert note.startswith("documents: 100 are packed one after another, 24.9 tokens each on average; fill rate 100 %")
    assert note.endswith(": no position is padding, 4.02% are <stop>; the state is reset at <stop>")


def test_source_is_what_the_user_named() -> None:
    folder = folder_of()
    started_in(folder, data=("a", "b"), encoding="latin-1")
    assert folder.asked == (("a", "b"), "latin-1")


@pytest.mark.parametrize(
    ("perturb", "limit"), [("weights", "MAX_PARAMETERS"), ("activations", "MAX_SUMMED_PARAMETERS")]
)
def test_a_model_that_messages_cannot_hold_is_refused(
    monkeypatch: pytest.MonkeyPatch, perturb: str, limit: str
) -> None:
    given: dict[str, Any] = {"perturb": perturb, "head": "closed-form" if perturb == "activations" else "perturbed"}
    size = started(**given, control_variates=False).objective.layout.size
    monkeypatch.setattr(kind_module, limit, size)
    started(**given, control_variates=False)
    monkeypatch.setattr(kind_module, limit, size - 1)
    with pytest.raises(ConfigError, match=rf"hidden_size, n_layers: .* at most {size - 1} parameters, got 8 and 1"):
        started(**given, control_variates=False)


def test_what_is_left_open_is_chosen_from_one_measurement_at_the_reference_size() -> None:
    measured: list[tuple[Objective, Strategy, Columns]] = []

    def measure(objective: Objective, strategy: Strategy, data: Columns) -> float:
        measured.append((objective, strategy, data))
        return 1000.0

    open_keys = dict.fromkeys(("hidden_size", "sigma", "learning_rate", "time_per_step"), 0)
    prepared = KIND.start(config_of(**open_keys), None, folder=folder_of(), measure=measure, progress=NoProgress())
    ((objective, strategy, data),) = measured
    assert isinstance(objective, RnnObjective)
    assert objective.shape[1] == 64
    assert strategy.group_size == 8
    assert data["tokens"].size == prepared.blocks[0]["tokens"].size
    assert prepared.config.is_settled
    assert prepared.reasons[0].why == "measured: 0.008 million trial-tokens/s at hidden_size 64"
    assert [reason.key for reason in prepared.reasons[1:]] == list(open_keys)
