"""A run to look at, and the options that verbs are given."""

import argparse
from collections.abc import Collection
from typing import Any

from fedlearn.config import RunConfig
from fedlearn.coordination.steps.report import StepReport
from fedlearn.runs.run import Run
from fedlearn.server.training.trainer import Trainer
from fedlearn.storage.logs.metrics import StepTraffic
from tests.run_folders import created, update_of


def recorded_run(config: RunConfig, *, begin: int = 1, end: int = 5, checkpoints: Collection[int] = (3,)) -> Run:
    """A run with checkpoints of these steps, whose journal and metrics end at step `end`."""
    run = created(config, step_num=begin)
    trainer, _ = Trainer.open(run)
    for step in range(begin, end):
        update = update_of(run, step)
        trainer.append(update)
        trainer.apply(update)
        report = StepReport(step=step, loss=1.0, members=16, duration_s=0.1, volunteers=1)
        trainer.record(report, StepTraffic())
        if trainer.replica.step in checkpoints:
            trainer.save_checkpoint()
    trainer.close()
    return run


def options_of(run: Run, **options: Any) -> argparse.Namespace:  # noqa: ANN401 (values of any flag)
    """What a verb that looks at the run is given."""
    flags = ("temperature", "top_k", "top_p", "repetition_penalty", "no_repeat_ngram", "beams", "length_penalty")
    others = {
        "prompt": "the ",
        "length": 20,
        "seed": None,
        "data": None,
        "encoding": "utf-8",
        "step": None,
        "json": False,
        "video": None,
        "task": None,
        "given": ("sample", "1"),
    } | dict.fromkeys(flags)
    return argparse.Namespace(**({"run": "1", "runs": run.config.run.runs} | others | options))


def damage_checkpoint(run: Run) -> str:
    """Takes a byte off the run's checkpoint; gives its name."""
    (path,) = run.folder.checkpoints.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    return path.name
