"""How much a recipe learns for a budget of trial-tokens or seconds, beside peers on the same model and split.

Bits per character on validation and on the test part, which no setting is chosen on; tinyshakespeare
(https://github.com/karpathy/char-rnn, data/tinyshakespeare/input.txt) unless told otherwise. Each budget is a run of
its own, since schedules end with it. Time spent on validation does not count. A run of one thread is timed by the
processor, so that it learns as much on a machine that does other work.

Peers are for the one stream that the text is by default: with `--documents` they carry their state on behind the end of
a document, where ours begins anew, and are no peers.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from benchmarks.measure import SETTINGS, Stopwatch, describe_machine, use_processors
from benchmarks.text.learner import Budget, SeedRun, conclude, learn
from benchmarks.text.recipes import AUTOMATIC, NAMES, PEERS, ending_at, open_learner, settings_of, why_absent
from benchmarks.text.results import Report, Result, Text, table
from benchmarks.text.rnn_run import SCHEMA, Settings, config_of, create_run, flat
from benchmarks.text.through_server import learn_through_server
from fedlearn.config import ConfigError, RunConfig, add_config_flags
from fedlearn.data.folder import RunData
from fedlearn.data.sources import open_source
from fedlearn.tasks.rnn.dataset import Dataset
from fedlearn.tasks.rnn.options import RnnOptions, options_of
from fedlearn.tasks.rnn.tokenizing import build_dataset
from fedlearn.text.documents import EncodedText
from fedlearn.text.ngrams import NAMES as NGRAMS
from fedlearn.text.ngrams import ngram_loss

TINYSHAKESPEARE = Path(__file__).parents[3] / "shared" / "data" / "tinyshakespeare.txt"


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    options = _parser().parse_args()
    notices = []
    if "data" not in options and TINYSHAKESPEARE.exists():
        options.data = str(TINYSHAKESPEARE)
    elif "data" not in options:
        notices.append(f"tinyshakespeare is absent, expected at {TINYSHAKESPEARE}; python-docs took its place")
    try:
        if options.through_server and options.tokens:
            raise ValueError("--through-server: expected budgets in --seconds, got --tokens; leave one of them out")
        if AUTOMATIC in options.recipes and options.tokens:
            raise ValueError(f"{AUTOMATIC}: expected budgets in --seconds, by which a run chooses, got --tokens")
        use_processors(config_of(vars(options)).volunteers.threads)
        report = measure(options, notices)
    except (ConfigError, ValueError, RuntimeError, ImportError) as error:
        print(f"learning.py: {error}", file=sys.stderr)
        return 1
    print(msgspec.json.encode(report).decode() if options.json else table(report))
    if not report.results:
        print("learning.py: expected a recipe that can be had here, got none", file=sys.stderr)
    return 0 if report.results else 1


def measure(options: argparse.Namespace, notices: list[str]) -> Report:
    """All recipes with all budgets."""
    reasons = {recipe: why_absent(recipe) for recipe in options.recipes}
    if options.through_server:
        reasons |= {name: f"{name} is a peer: it has no server" for name in options.recipes if name in PEERS}
    recipes = [recipe for recipe in options.recipes if reasons[recipe] is None]
    notices += [reason for reason in reasons.values() if reason]
    results = [measure_recipe(recipe, budget, options) for recipe in recipes for budget in budgets_of(options)]
    return Report("learning", describe_text(options), results, notices)


def measure_recipe(recipe: str, budget: Budget, options: argparse.Namespace) -> Result:
    """One run a seed, each in a folder of its own that goes with it."""
    settings = settings_of(recipe, budget)
    flags = {**({} if recipe == AUTOMATIC else SETTINGS), **settings, **vars(options)}
    runs: list[SeedRun] = []
    seeds = options.seeds or [vars(options).get("seed", 1)]
    for seed in seeds:
        with tempfile.TemporaryDirectory(dir=vars(options).get("runs")) as folder:
            config = ending_at(config_of({**flags, "seed": seed, "runs": folder}), budget)
            if options.through_server:
                runs.append(learn_through_server(_for_server(config, budget), budget.amount))
            else:
                seed_run, settings, config = learn_in_process(recipe, config, budget, dict(options.peer))
                runs.append(seed_run)
        if not options.json:
            _tell(f"{recipe}, {budget}", runs[-1])
    described = flat(config) | {"data": ", ".join(Path(name).name for name in options_of(config).data), "runs": ""}
    return Result(
        recipe=recipe,
        budget=budget,
        through_server=options.through_server,
        machine=describe_machine(),
        threads=config.volunteers.threads,
        settings=settings,
        config=described,
        runs=runs,
    )


def learn_in_process(
    recipe: str, config: RunConfig, budget: Budget, peer_settings: dict[str, str]
) -> tuple[SeedRun, Settings, RunConfig]:
    """One run of a recipe, its settings, and the configuration with what the run chose."""
    run = create_run(config)
    watch = Stopwatch(time.process_time if config.volunteers.threads == 1 else time.perf_counter)
    with open_learner(recipe, budget, run, watch.seconds, peer_settings) as (learner, settings):
        looks = learn(learner, run, budget, watch)
        return conclude(run, learner.weights(), looks), settings, run.config


def budgets_of(options: argparse.Namespace) -> list[Budget]:
    """Those given, or a minute."""
    seconds = options.seconds or ([] if options.tokens else [60.0])
    return [
        *(Budget("trial-tokens", amount) for amount in options.tokens),
        *(Budget("seconds", amount) for amount in seconds),
    ]


def describe_text(options: argparse.Namespace) -> Text:
    """The text of all runs, with what n-gram models make of it."""
    settings = options_of(config_of(vars(options)))
    with tempfile.TemporaryDirectory() as folder:
        dataset = build_dataset(
            open_source(settings.data, settings.encoding),
            RunData(Path(folder)),
            tokenizer=settings.tokenizer,
            vocab_size=settings.vocab_size,
            documents=settings.documents,
        )
        return _described(dataset, settings)


def _described(dataset: Dataset, settings: RnnOptions) -> Text:
    return Text(
        name=", ".join(Path(name).name for name in settings.data),
        train_characters=dataset.train.n_characters,
        validation_characters=dataset.validation.n_characters,
        test_characters=dataset.test.n_characters,
        baselines_bits_per_character={
            name: (_ngram_bits(dataset, n, dataset.validation), _ngram_bits(dataset, n, dataset.test))
            for n, name in NGRAMS.items()
        },
    )


def _ngram_bits(dataset: Dataset, n: int, text: EncodedText) -> float:
    loss = ngram_loss(dataset.train.tokens, text.tokens, n, vocab_size=dataset.tokenizer.vocab_size)
    return text.bits_per_character(loss)


def _tell(what: str, end: SeedRun) -> None:
    """One run's end and what it writes by then, while others go on."""
    bits, text = end.validation_bits_per_character, " ".join(end.sample.split())
    print(f"{what}, seed {end.seed}: {bits:.3f} bits/character; it writes: {text}", file=sys.stderr, flush=True)


def _for_server(config: RunConfig, budget: Budget) -> RunConfig:
    """The configuration with a port of its own, and some twenty looks along the way."""
    return config.replace(
        {
            "port": 0,
            "volunteers": 1,
            "sample_time": min(budget.amount / 20, 30.0),
            "data": tuple(str(Path(name).absolute()) for name in options_of(config).data),
        }
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="What a recipe learns for a budget of trial-tokens or seconds.")
    parser.add_argument("--recipes", nargs="+", choices=NAMES, default=["weights"], metavar="NAME", help=_recipe_help())
    parser.add_argument("--tokens", type=_amount, nargs="+", default=[], metavar="N", help="budgets in trial-tokens")
    parser.add_argument(
        "--seconds", type=_amount, nargs="+", default=[], metavar="S", help="budgets in s (default: 60, if no --tokens)"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[], metavar="N", help="a run each (default: 1)")
    parser.add_argument(
        "--through-server", action="store_true", help="time budgets of real processes: server.py, its local volunteer"
    )
    parser.add_argument(
        "--peer",
        type=_setting,
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="settings of the peers in place of their own, e.g. population=512",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_config_flags(parser, SCHEMA)
    return parser


def _recipe_help() -> str:
    return f"of {', '.join(NAMES)} (default: weights)"


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"expected NAME=VALUE, got {text}")
    return name, value


def _amount(text: str) -> float:
    amount = float(text)
    if not 0 < amount < float("inf"):
        raise ValueError(f"expected a number above 0, got {text}")
    return amount


if __name__ == "__main__":
    sys.exit(main())
