"""Verbs that look at one run: sample and eval."""

import argparse
import sys
from pathlib import Path

import numpy as np

from fedlearn.commands.arguments import add_run
from fedlearn.commands.progress import replay_progress
from fedlearn.es.replica import Replica
from fedlearn.server import history
from fedlearn.server.run import Run, find
from fedlearn.tasks.kind import ReadsText, WritesText
from fedlearn.tasks.rnn.dataset import load_text
from fedlearn.terminal import format_figures, printable
from fedlearn.text.beam_search import beam_search
from fedlearn.text.sampling import sample

MAX_BEAMS = 4096

_CONTROL_CHARACTERS = {
    code: "\N{REPLACEMENT CHARACTER}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"
}
"""What a terminal would obey: a model that read such characters writes them too."""


def add_sample(parser: argparse.ArgumentParser) -> None:
    """How text is written."""
    add_run(parser)
    parser.add_argument("--prompt", default="", metavar="TEXT", help="text to go on from (default: a new document)")
    parser.add_argument("--length", type=int, default=200, metavar="N", help="tokens to write (default: 200)")
    parser.add_argument("--beams", type=int, metavar="N", help="beam search with N beams, in place of sampling")
    parser.add_argument(
        "--length-normalised", action="store_true", help="beam search by mean log-probability, in place of the total"
    )
    parser.add_argument(
        "--temperature", type=float, default=0.8, metavar="NUMBER", help="below 1 safer, 0 greedy (default: 0.8)"
    )
    parser.add_argument(
        "--top-k", type=int, default=0, metavar="N", help="choose among the N likeliest; 0 = all (default: 0)"
    )
    parser.add_argument(
        "--top-p",
        type=float,
        default=1.0,
        metavar="NUMBER",
        help="choose among the likeliest of this sum (default: 1)",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="of the random choices (default: another each time)")


def add_eval(parser: argparse.ArgumentParser) -> None:
    """What is measured on."""
    add_run(parser)
    parser.add_argument("--data", metavar="FILE", help="text to measure on (default: what the run holds out)")


def sample_command(options: argparse.Namespace) -> int:
    """`fedlearn sample RUN`: prints the prompt and what the model makes of it; the step goes to stderr."""
    if options.seed is not None and options.seed < 0:
        raise ValueError(f"--seed: expected 0 or more, got {options.seed}")
    if options.beams is not None and not 1 <= options.beams <= MAX_BEAMS:
        raise ValueError(f"--beams: expected 1 to {MAX_BEAMS}, got {options.beams}")
    chosen = find(options.runs, options.run, with_task=True)
    examiner = chosen.prepared.examiner
    if not isinstance(examiner, WritesText):
        raise ValueError(f"run {chosen.folder.path.name}: expected a model that writes text, got another; try eval")
    replica = newest(chosen)
    print(f"run {chosen.folder.path.name}, step {replica.step}", file=sys.stderr)
    tokenizer = examiner.tokenizer
    model = examiner.language_model(replica.weights)
    prompt = tokenizer.encode(options.prompt)
    if options.beams is not None:
        written = beam_search(
            model,
            prompt,
            n_beams=options.beams,
            length=options.length,
            length_normalised=options.length_normalised,
        )
    else:
        written = sample(
            model,
            prompt,
            length=options.length,
            generator=np.random.default_rng(options.seed),
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
        )
    print((options.prompt + tokenizer.decode(written.tokens)).translate(_CONTROL_CHARACTERS))
    return 0


def eval_command(options: argparse.Namespace) -> int:
    """`fedlearn eval RUN`: prints the figures of unperturbed weights on held-out data."""
    chosen = find(options.runs, options.run, with_task=True)
    examiner, weights = chosen.prepared.examiner, newest(chosen)
    if options.data is None:
        figures, source = examiner.validate(weights.weights, threads=0), "what the run holds out"
    elif isinstance(examiner, ReadsText):
        text = load_text(options.data, lambda path: Path(path).read_bytes())
        figures, source = examiner.validate_on(weights.weights, text, threads=0), options.data
    else:
        raise ValueError("--data: expected a run that trains on text, got another; leave it out")
    if not figures:
        raise ValueError(f"run {chosen.folder.path.name}: expected a task with metrics, got one without")
    print(f"run {chosen.folder.path.name}, step {weights.step}: {format_figures(figures)} on {source}")
    return 0


def newest(chosen: Run) -> Replica:
    """The replica as the journal has it by now: up to a checkpoint's time newer than the newest checkpoint."""
    rebuilt = history.newest(chosen, progress=replay_progress())
    for line in (*chosen.prepared.reasons, *rebuilt.problems):
        print(printable(line), file=sys.stderr)
    return rebuilt.holding.replica
