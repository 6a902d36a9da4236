import msgspec
import pytest

from fedlearn.config import ConfigError, Schema, load_config, notes_on
from fedlearn.config.camel_case import SPELLINGS

USUAL = {"modelType": "rnn", "hiddenSize": 32.0, "newTokensInterval": 1e9, "sigma": 1, "dropout": 0.1, "gpu": "0"}


def file_of(**entries: object) -> tuple[str, str]:
    return "config.json", msgspec.json.encode(USUAL | entries).decode()


def test_a_file_of_that_trainer_is_read_and_tells_what_it_leaves_out(rnn_schema: Schema) -> None:
    config = load_config(rnn_schema, file_of(), {}, {})
    assert [config.get(key) for key in ("hidden_size", "new_tokens_interval", "sigma")] == [32, 10**9, 1.0]
    assert notes_on(rnn_schema, file_of()) == ("config.json: dropout, gpu mean nothing here and are left out",)


def test_chat_is_an_alias_and_the_step_that_its_weights_had_is_left_out(rnn_schema: Schema) -> None:
    file = file_of(modelType="chat", stepNum=7)
    assert load_config(rnn_schema, file, {}, {}).get("step_num") == 0
    first, second, _ = notes_on(rnn_schema, file)
    assert "modelType chat is trained as rnn" in first
    assert "stepNum is left out" in second


def test_another_type_of_model_is_refused(rnn_schema: Schema) -> None:
    with pytest.raises(ConfigError, match="modelType: expected rnn or chat, got 'gpt'"):
        load_config(rnn_schema, file_of(modelType="gpt"), {}, {})


def test_without_its_mark_a_file_is_held_to_our_keys(rnn_schema: Schema) -> None:
    with pytest.raises(ConfigError, match="dropout: expected a known key"):
        load_config(rnn_schema, ("run.json", '{"dropout": 0.1}'), {}, {})
    assert notes_on(rnn_schema, ("run.json", '{"sigma": 0.1}')) == notes_on(rnn_schema, None) == ()


def test_every_spelling_is_of_one_of_our_keys(rnn_schema: Schema) -> None:
    assert set(SPELLINGS.values()) <= set(rnn_schema.fields)


def test_a_number_that_is_not_whole_is_refused_where_one_is_expected(rnn_schema: Schema) -> None:
    with pytest.raises(ConfigError, match="hidden_size: expected a whole number"):
        load_config(rnn_schema, file_of(hiddenSize=32.5), {}, {})
