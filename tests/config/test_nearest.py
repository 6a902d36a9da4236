"""An unknown name is answered with the nearest known one."""

from fedlearn.config.nearest import did_you_mean


def test_a_misspelt_word_is_answered_with_the_nearest_one() -> None:
    assert did_you_mean("learning_rat", ["sigma", "learning_rate", "learning_rates"]) == "did you mean learning_rate?"


def test_a_word_that_is_near_none_is_answered_with_nothing() -> None:
    assert did_you_mean("banana", ["sigma", "learning_rate"]) == ""
