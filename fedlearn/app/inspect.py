"""Commands that look at runs: sample, eval, runs, replay."""

import argparse
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np

from fedlearn.app import history, run
from fedlearn.app.terminal import format_duration
from fedlearn.es.replica import Replica
from fedlearn.storage.checkpoint import latest_checkpoint, load_checkpoint
from fedlearn.storage.datasets import load_text
from fedlearn.storage.durable import StorageError
from fedlearn.storage.metrics import StepMetrics, read_last_metrics
from fedlearn.storage.runs import RunFolder, list_runs
from fedlearn.text.beam_search import beam_search
from fedlearn.text.documents import encode_documents
from fedlearn.text.sampling import sample

MAX_BEAMS = 4096

_CONTROL_CHARACTERS = {
    code: "\N{REPLACEMENT CHARACTER}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"
}
"""What a terminal would obey: a model that read such characters writes them too."""


def sample_command(options: argparse.Namespace) -> int:
    """`fedlearn sample RUN`: prints the prompt and what the model makes of it; the step goes to stderr."""
    if options.seed is not None and options.seed < 0:
        raise ValueError(f"--seed: expected 0 or more, got {options.seed}")
    if options.beams is not None and not 1 <= options.beams <= MAX_BEAMS:
        raise ValueError(f"--beams: expected 1 to {MAX_BEAMS}, got {options.beams}")
    chosen = run.find(options.runs, options.run)
    replica = _newest(chosen)
    print(f"run {chosen.folder.path.name}, step {replica.step}", file=sys.stderr)
    tokenizer = chosen.dataset.tokenizer
    model = chosen.objective.language_model(replica.weights, tokenizer.stop_token)
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
    """`fedlearn eval RUN`: prints bits per character."""
    chosen = run.find(options.runs, options.run)
    replica = _newest(chosen)
    dataset = chosen.dataset
    text = dataset.validation
    if options.data is not None:
        text = encode_documents(load_text(options.data), dataset.tokenizer, dataset.documents)
    loss = chosen.objective.text_loss(replica.weights, text.tokens, threads=0)
    source = options.data or "the validation split"
    print(
        f"run {chosen.folder.path.name}, step {replica.step}: {text.bits_per_character(loss):.4f} bits/character "
        f"on {source} ({text.n_characters} characters)"
    )
    return 0


def runs_command(options: argparse.Namespace) -> int:
    """`fedlearn runs`: a line a run."""
    folders = list_runs(Path(options.runs))
    if not folders:
        print(f"no runs in {options.runs}; start one with: python server.py")
        return 0
    print(f"{'run':>4}  {'steps':>8}  {'bits/char':>9}  {'validation':>10}  {'age':>8}  configuration")
    for folder in folders:
        print(_describe(folder))
    return 0


def _describe(folder: RunFolder) -> str:
    try:
        config = run.load_run_config(folder)
    except ValueError as error:
        return f"{folder.path.name:>4}  unreadable: {error}"
    # Validation is measured every now and then: the last thousands of lines hold one.
    lines = read_last_metrics(folder.metrics, 10_000)
    last: StepMetrics | None = lines[-1] if lines else None
    validations = [line.validation_bits_per_character for line in lines if line.validation_bits_per_character]
    steps = config.step_num if last is None else last.step + 1
    loss = f"{last.bits_per_character:.3f}" if last is not None and last.bits_per_character is not None else "-"
    validation = f"{validations[-1]:.3f}" if validations else "-"
    return (
        f"{folder.path.name:>4}  {steps:>8}  {loss:>9}  {validation:>10}  "
        f"{format_duration(run.age_of(folder)):>8}  {config.data}, {config.tokenizer}, hidden {config.hidden_size} x "
        f"{config.n_layers}, population {config.population_limit}, {config.optimizer} {config.learning_rate:g}, "
        f"sigma {config.sigma:g}"
    )


def replay_command(options: argparse.Namespace) -> int:
    """`fedlearn replay RUN`: 0 when the rebuilt digest equals the recorded one, 1 when it differs.

    Without a step it looks at the whole run, and compares the last digest that was recorded; files that can't be used
    give 1 too.
    """
    chosen = run.find(options.runs, options.run)
    begun = load_checkpoint(chosen.folder.genesis).step
    if options.step is not None and options.step < begun:
        raise ValueError(f"--step: expected {begun} or more, where the run begins, got {options.step}")
    # Read before the replay: a running server saves newer ones meanwhile.
    newest, problems = latest_checkpoint(chosen.folder)
    recorded_step = _last_recorded_step(chosen, begun, newest.step) if options.step is None else options.step
    replica, _ = history.replay(chosen, until=recorded_step)
    if options.step not in (None, replica.step):
        raise ValueError(f"--step: expected at most {replica.step}, where the journal ends, got {options.step}")
    if options.step is None and newest.step > replica.step:
        problems.append(f"{chosen.folder.journal}: it ends at step {replica.step}, before checkpoint {newest.step}")
    for problem in problems:
        print(f"passed over: {problem}")
    print(f"run {chosen.folder.path.name}, step {replica.step}: digest {replica.digest.hex()} from genesis and journal")
    recorded, source = _recorded_digest(chosen, replica.step)
    if recorded is None:
        print("nothing to compare it with: no checkpoint and no line of metrics is of this step")
        return 1
    is_equal = recorded == replica.digest
    print(f"{'equal to' if is_equal else 'DIFFERENT from'} {recorded.hex()} in {source}")
    if options.step is None:
        compared_step = replica.step
        history.follow_journal(chosen, replica)
        if replica.step > compared_step:
            print(f"the journal goes on to step {replica.step}, whose digest was not recorded when this replay began")
    return 0 if is_equal and (options.step is not None or not problems) else 1


def _last_recorded_step(chosen: run.Run, begun: int, checkpoint_step: int) -> int | None:
    """Where the digest that was recorded last belongs; None where there is none but that of genesis.

    The journal may go on: a server that was killed, or is at work, has journalled a step before it knows its digest.
    """
    lines = read_last_metrics(chosen.folder.metrics)
    step = max([checkpoint_step, *(line.step + 1 for line in lines)])
    return step if step > begun else None


def _recorded_digest(chosen: run.Run, step: int) -> tuple[bytes | None, str]:
    checkpoints = [path for path in chosen.folder.checkpoints.glob("*.safetensors") if int(path.stem) == step]
    for path in [*checkpoints, chosen.folder.genesis]:
        with suppress(StorageError):
            snapshot = load_checkpoint(path)
            if snapshot.step == step:
                return snapshot.digest, path.name
    for line in reversed(read_last_metrics(chosen.folder.metrics, 1_000_000)):
        if line.step + 1 == step:
            return bytes.fromhex(line.digest), chosen.folder.metrics.name
    return None, ""


def _newest(chosen: run.Run) -> Replica:
    """The replica as the journal has it by now: up to a checkpoint's time newer than the newest checkpoint."""
    snapshot, problems = latest_checkpoint(chosen.folder)
    for problem in problems:
        print(f"passed over: {problem}", file=sys.stderr)
    replica, _ = history.follow_journal(chosen, chosen.new_replica(snapshot))
    return replica
