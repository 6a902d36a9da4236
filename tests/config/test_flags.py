import argparse

from fedlearn.config import Schema, add_config_flags, flag_of


def new_parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(formatter_class=lambda prog: argparse.HelpFormatter(prog, width=300))


def test_help_shows_meaning_unit_default_and_choices(rnn_schema: Schema) -> None:
    parser = new_parser()
    add_config_flags(parser, rnn_schema)
    text = parser.format_help()
    assert "--checkpoint-time NUMBER" in text
    assert "s between checkpoints (default: 60.0)" in text
    assert "--optimizer {auto,adam,sgd,lion,muon,clipup,cma}" in text
    assert "--antithetic true|false" in text
    assert "--data TEXT" in text
    assert "--seed N" in text
    assert "without it everybody may (default: none)" in text


def test_groups_are_headed_by_their_first_line_or_a_title_that_is_given(schema: Schema) -> None:
    parser = new_parser()
    add_config_flags(parser, schema, titles={"options": "round things"})
    text = parser.format_help()
    assert "optimizer:\n  How a gradient estimate becomes a step\n" in text
    assert "round things:\n  A kind with three settings\n" in text
    assert "\noptions:\n  A kind" not in text


def test_only_the_groups_that_are_asked_for_get_flags(schema: Schema) -> None:
    parser = new_parser()
    add_config_flags(parser, schema, groups={"options", "server"})
    assert vars(parser.parse_args(["--width", "3", "--port", "1"])) == {"width": "3", "port": "1"}
    assert "--sigma" not in parser.format_help()


def test_a_flag_that_is_there_already_is_left_alone(schema: Schema) -> None:
    parser = new_parser()
    parser.add_argument("--width", type=int, default=9)
    add_config_flags(parser, schema)
    add_config_flags(parser, schema)
    assert parser.parse_args([]).width == 9


def test_a_flag_that_is_not_given_leaves_no_trace(rnn_schema: Schema) -> None:
    parser = new_parser()
    add_config_flags(parser, rnn_schema)
    assert vars(parser.parse_args([])) == {}


def test_a_key_of_several_words_is_a_flag_with_dashes() -> None:
    assert flag_of("time_per_step") == "--time-per-step"
