import pytest

from fedlearn.config import ConfigError, RunConfig, Schema, load_config
from fedlearn.tasks.rnn.options import RnnOptions, check_abilities, options_of
from fedlearn.tasks.user.task_options import TaskOptions

SCHEMA = Schema(RnnOptions)


def config_from(text: str) -> RunConfig:
    return load_config(SCHEMA, ("run.toml", text), {}, {})


def options_from(text: str) -> RnnOptions:
    return options_of(config_from(text))


def test_options_stand_in_the_configuration() -> None:
    assert options_from("hidden_size = 8\ndata = 'a.txt'") == RnnOptions(hidden_size=8, data=("a.txt",))


def test_options_of_another_kind_are_a_defect() -> None:
    with pytest.raises(AssertionError, match="expected RnnOptions, got TaskOptions"):
        options_of(Schema(TaskOptions).build({}))


def test_one_unit_is_not_enough() -> None:
    with pytest.raises(ConfigError, match="hidden_size: expected 2 or more, or 0"):
        options_from("hidden_size = 1")


def test_block_smaller_than_a_window_is_refused_when_blocks_change() -> None:
    options_from("block_tokens = 48")
    options_from("block_tokens = 49\nnew_tokens_interval = 1")
    with pytest.raises(ConfigError, match=r"\+ 1 = 49\), got 48"):
        options_from("block_tokens = 48\nnew_tokens_interval = 1")


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("perturb = 'activations'", "perturb: expected weights with cell = {cell}, got activations; take cell = tanh"),
        ("head = 'closed-form'", "head: expected perturbed with cell = {cell}, got closed-form"),
        ("precision = 'int8'", "precision: expected float32 with cell = {cell}, got int8"),
    ],
)
def test_a_cell_is_refused_what_it_has_no_kernel_for(cell: str, given: str, complaint: str) -> None:
    check_abilities(config_from(given))
    check_abilities(config_from(f"cell = '{cell}'"))
    with pytest.raises(ConfigError, match=complaint.format(cell=cell)):
        check_abilities(config_from(f"cell = '{cell}'\n{given}"))


def test_size_and_precision_of_the_network_are_choices_of_the_runs_own() -> None:
    own = [key for key in SCHEMA.automatic if SCHEMA.group_of[key] == "options"]
    assert own == ["hidden_size", "precision"]
    assert not [key for key in SCHEMA.resumable if SCHEMA.group_of[key] == "options"]
