"""`fedlearn sample`: text that a run's weights write, by chance or by beam search, or a film of a policy."""

import argparse
import sys

import msgspec
import numpy as np

from fedlearn.commands.arguments import add_run, add_step, add_task
from fedlearn.commands.look.evaluate import replica_at
from fedlearn.commands.look.film import film_command
from fedlearn.commands.output import add_output, bars_of
from fedlearn.runs.run import Run, find, kind_of, lacks_code, needing_task
from fedlearn.tasks.kind import TextExaminer
from fedlearn.text.beam_search import Search
from fedlearn.text.sampling import Manner
from fedlearn.text.writing import CIRCLE_CHARACTERS, up_to_a_word, written

MAX_BEAMS = 4096

LENGTH = 200
"""Tokens that are written unless `--length` says otherwise."""

_CONTROL_CHARACTERS = {
    code: "\N{REPLACEMENT CHARACTER}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"
}
"""What a terminal would obey: a model that read such characters writes them too."""


def add_sample(parser: argparse.ArgumentParser) -> None:
    """How text is written."""
    add_run(parser)
    add_step(parser)
    add_task(parser, "whose model writes, or whose policy is drawn")
    parser.add_argument(
        "--prompt",
        default="",
        metavar="TEXT",
        help="text to go on from (default: a new line, or the held-out prompts of a task with a reward)",
    )
    _add(parser, "length", int, f"tokens to write; a word begun last is left out (default: {LENGTH})")
    _add(
        parser,
        "no_repeat_ngram",
        int,
        "write no N tokens in a row twice; 0 = no such rule "
        f"(default: 0, with --beams as many as {CIRCLE_CHARACTERS} characters take)",
    )
    sampling = parser.add_argument_group("sampling")
    _add(
        sampling,
        "temperature",
        float,
        f"below 1 is safer, 0 always takes the likeliest (default: {Manner().temperature})",
    )
    _add(sampling, "top_k", int, "choose among the N likeliest; 0 = all (default: 0)")
    _add(sampling, "top_p", float, "choose among the likeliest whose probabilities add up to this (default: 1)")
    _add(
        sampling,
        "repetition_penalty",
        float,
        "above 1: tokens that are in the text already become less likely (default: 1)",
    )
    _add(sampling, "seed", int, "seed of the random choices (default: another each time)")
    search = parser.add_argument_group("beam search, in place of sampling")
    _add(search, "beams", int, "write the likeliest text that a search with N beams finds")
    _add(
        search,
        "length_penalty",
        float,
        "1 compares texts by mean log-probability, 0 by the sum, which favours short ones (default: 1)",
    )
    film = parser.add_argument_group("video, of a policy in an environment, in place of text")
    film.add_argument("--video", metavar="FILE", help="draw an episode of the policy, as FILE.mp4 or FILE.gif")
    add_output(parser)


def _add(group: argparse._ActionsContainer, name: str, kind: type[int] | type[float], help_text: str) -> None:
    """A flag that is None where it is not given."""
    metavar = "N" if kind is int else "NUMBER"
    group.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=metavar, help=help_text)


def sample_command(options: argparse.Namespace) -> int:
    """`fedlearn sample RUN`: prints the prompt and what the model makes of it; the step goes to stderr."""
    if options.video is not None:
        return film_command(options)
    check_flags(options)
    chosen = find(options.runs, options.run, task=options.task)
    examiner = chosen.prepared.examiner
    if not isinstance(examiner, TextExaminer):
        return _write_texts(chosen, options)
    bars = bars_of(options)
    replica = replica_at(chosen, options.step, bars)
    print(f"run {chosen.folder.path.name}, step {replica.step}", file=sys.stderr)
    tokenizer = examiner.tokenizer
    prompt = tokenizer.encode(options.prompt)
    if unknown := np.count_nonzero(prompt == tokenizer.unknown_token):
        print(f"--prompt: {unknown} of {len(prompt)} characters are unknown to the run's tokenizer", file=sys.stderr)
    length = LENGTH if options.length is None else options.length
    with bars.bar("writing", "tokens", total=length) as bar:
        for text in written(
            examiner.language_model(replica.weights),
            prompt,
            length=length,
            n_beams=options.beams,
            given=vars(options),
            characters_per_token=examiner.characters_per_token,
            generator=np.random.default_rng(options.seed),
        ):
            bar.reach(len(text.tokens))
    said = tokenizer.decode(text.tokens)
    print((options.prompt + (said if text.is_stopped else up_to_a_word(said))).translate(_CONTROL_CHARACTERS))
    return 0


def _write_texts(chosen: Run, options: argparse.Namespace) -> int:
    """Prints what the model of a task writes after its held-out prompts, or after the one that is given.

    Raises:
        ValueError: it writes none, or not as the flags say.
    """
    name, kind = chosen.folder.path.name, kind_of(chosen.folder)
    if not kind.may_write_texts:
        raise ValueError(
            f"run {name}: expected a model that writes text, got a task of kind {kind.name}; try eval, or --video"
        )
    if lacks_code(chosen):
        raise needing_task(chosen.folder, chosen.config, "writing", options.given)
    for flag in sorted({*Search.__struct_fields__, *Manner.__struct_fields__, "seed", "length"}):
        if getattr(options, flag) is not None:
            raise ValueError(
                f"--{flag.replace('_', '-')}: expected none, since the run's task says how it writes; leave it out"
            )
    replica = replica_at(chosen, options.step, bars_of(options))
    print(f"run {name}, step {replica.step}", file=sys.stderr)
    prompts = [options.prompt] if options.prompt else []
    for prompt, text in chosen.prepared.examiner.texts(replica.weights, prompts):
        print((prompt + text).translate(_CONTROL_CHARACTERS))
    return 0


def check_flags(options: argparse.Namespace) -> None:
    """Checks the flags.

    Raises:
        ValueError: a flag is out of its range, or has no meaning beside the others.
    """
    if options.seed is not None and options.seed < 0:
        raise ValueError(f"--seed: expected 0 or more, got {options.seed}")
    if options.length is not None and options.length < 0:
        raise ValueError(f"--length: expected 0 or more, got {options.length}")
    if options.beams is not None and not 1 <= options.beams <= MAX_BEAMS:
        raise ValueError(f"--beams: expected 1 to {MAX_BEAMS}, got {options.beams}")
    searches, samples = {*Search.__struct_fields__}, {*Manner.__struct_fields__, "seed"}
    idle = searches - samples if options.beams is None else samples - searches
    for name in sorted(idle):
        if getattr(options, name) is not None:
            way = "sampling, without --beams" if options.beams is None else "beam search"
            raise ValueError(f"--{name.replace('_', '-')}: expected none for {way}; leave it out")
    settings = {name: value for name, value in vars(options).items() if value is not None}
    msgspec.convert(settings, Manner if options.beams is None else Search)
