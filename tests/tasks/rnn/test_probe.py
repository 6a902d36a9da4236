from fedlearn.config import Schema
from fedlearn.tasks.rnn.options import RnnOptions, options_of
from fedlearn.tasks.rnn.recipe import probe_of


def test_trials_that_are_measured_are_small_whatever_the_run_is() -> None:
    sizes = dict.fromkeys(("hidden_size", "batch_size", "context", "sequence_length", "group_size"), 65536)
    others = {"n_layers": 2, "population_limit": 70000, "max_population": 70000, "precision": "int8"}
    probe = probe_of(Schema(RnnOptions).build({**sizes, **others}))
    options = options_of(probe)
    assert (options.hidden_size, options.batch_size, options.context, options.sequence_length) == (64, 1, 64, 64)
    assert probe.strategy.group_size == 64
    assert (options.n_layers, options.precision) == (2, "int8")


def test_smaller_trials_are_measured_as_they_are() -> None:
    options = options_of(probe_of(Schema(RnnOptions).build({})))
    assert (options.context, options.sequence_length) == (32, 16)
