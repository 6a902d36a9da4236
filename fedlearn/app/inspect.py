"""Commands that look at runs: sample, eval, runs, replay."""

import argparse
from pathlib import Path

import numpy as np

from fedlearn.app import run
from fedlearn.app.terminal import format_duration
from fedlearn.storage.checkpoint import load_checkpoint
from fedlearn.storage.datasets import load_text
from fedlearn.storage.durable import StorageError
from fedlearn.storage.metrics import StepMetrics, read_last_metrics
from fedlearn.storage.runs import RunFolder, list_runs
from fedlearn.text.beam_search import beam_search
from fedlearn.text.documents import encode_documents
from fedlearn.text.sampling import sample
from fedlearn.wire.messages import Snapshot


def sample_command(options: argparse.Namespace) -> int:
    """`fedlearn sample RUN`: prints the prompt and what the model makes of it."""
    chosen = run.find(options.runs, options.run)
    snapshot = _newest(chosen)
    tokenizer = chosen.dataset.tokenizer
    model = chosen.objective.language_model(snapshot.weights, tokenizer.stop_token)
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
    print(options.prompt + tokenizer.decode(written.tokens))
    return 0


def eval_command(options: argparse.Namespace) -> int:
    """`fedlearn eval RUN`: prints bits per character."""
    chosen = run.find(options.runs, options.run)
    snapshot = _newest(chosen)
    dataset = chosen.dataset
    text = dataset.validation
    if options.data is not None:
        text = encode_documents(load_text(options.data), dataset.tokenizer, dataset.documents)
    loss = chosen.objective.text_loss(snapshot.weights, text.tokens, threads=0)
    source = options.data or "the validation split"
    print(
        f"run {chosen.folder.path.name}, step {snapshot.step}: {text.bits_per_character(loss):.4f} bits/character "
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
    """`fedlearn replay RUN`: 0 when the rebuilt digest equals the recorded one, 1 when it differs."""
    chosen = run.find(options.runs, options.run)
    until = options.step if options.step is not None else _newest(chosen).step
    replica, _ = run.replay(chosen, until=until)
    if replica.step != until:
        raise StorageError(f"--step: expected a step up to {replica.step}, where the journal ends, got {until}")
    print(f"run {chosen.folder.path.name}, step {until}: digest {replica.digest.hex()} from genesis and journal")
    recorded, source = _recorded_digest(chosen, until)
    if recorded is None:
        print("nothing to compare it with: no checkpoint and no line of metrics is of this step")
        return 1
    is_equal = recorded == replica.digest
    print(f"{'equal to' if is_equal else 'DIFFERENT from'} {recorded.hex()} in {source}")
    return 0 if is_equal else 1


def _recorded_digest(chosen: run.Run, step: int) -> tuple[bytes | None, str]:
    for path in [*sorted(chosen.folder.checkpoints.glob("*.safetensors")), chosen.folder.genesis]:
        try:
            snapshot = load_checkpoint(path)
        except StorageError as error:
            print(error)
            continue
        if snapshot.step == step:
            return snapshot.digest, path.name
    for line in reversed(read_last_metrics(chosen.folder.metrics, 1_000_000)):
        if line.step + 1 == step:
            return bytes.fromhex(line.digest), chosen.folder.metrics.name
    return None, ""


def _newest(chosen: run.Run) -> Snapshot:
    snapshot, problems = run.newest_snapshot(chosen)
    for problem in problems:
        print(f"passed over: {problem}")
    return snapshot
