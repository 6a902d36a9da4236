import asyncio
import sys
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest

from fedlearn.board import inference, models
from fedlearn.board.generation import GenerationRequest, Request, TextDelta
from fedlearn.board.inference import LoadedModel, Scribe
from fedlearn.board.models import BusyError, Models
from fedlearn.runs.run import Run
from fedlearn.server.training.trainer import Trainer
from fedlearn.storage.aside import Aside
from fedlearn.storage.journal.cutting import cut_lines
from tests.board.folders import made_anew, write_steps
from tests.run_folders import created, fit_task, task_config, update_of

ECHO = """
import sys, time
for number, line in enumerate(sys.stdin):
    print('{"add":"%d"}' % number, flush=True)
    if "slow" in line:
        time.sleep(60)
    if "die" in line:
        sys.exit(1)
    print('{"done":true}', flush=True)
"""
COMMAND = (sys.executable, "-c", ECHO)


def request(prompt: str = "") -> Request:
    return Request("write", "1", GenerationRequest(prompt=prompt))


async def asked(process: Models, prompt: str = "") -> list[TextDelta]:
    return [answer async for answer in process.ask(request(prompt))]


async def test_requests_are_answered_in_turn_by_one_process() -> None:
    process = Models(COMMAND)
    found = await asyncio.gather(asked(process), asked(process))
    assert [[answer.add for answer in answers] for answers in found] == [["0", ""], ["1", ""]]
    assert all(answers[-1].done for answers in found)
    await process.close()


@pytest.mark.parametrize("prompt", ["slow", "die"])
async def test_process_that_hangs_or_dies_is_told_and_replaced(monkeypatch: pytest.MonkeyPatch, prompt: str) -> None:
    monkeypatch.setattr(models, "LINE_S", 2.0)
    process = Models(COMMAND)
    found = await asked(process, prompt)
    assert "took too long, or the model failed" in found[-1].error
    assert found[-1].done
    assert [answer.add for answer in await asked(process)] == ["0", ""]
    await process.close()


async def test_reader_that_leaves_does_not_leave_its_text_to_the_next() -> None:
    process = Models(COMMAND)
    async with aclosing(process.ask(request("slow"))) as answers:
        assert (await anext(answers)).add == "0"
    assert [answer.add for answer in await asked(process)] == ["0", ""]
    await process.close()


async def test_those_who_wait_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "MAX_WAITING", 1)
    process = Models(COMMAND)
    first = process.ask(request("slow"))
    await anext(first)
    second = asyncio.create_task(asked(process))
    await asyncio.sleep(0)
    with pytest.raises(BusyError):
        await asked(process)
    await first.aclose()
    assert len(await second) == 2
    await process.close()


def test_model_follows_its_run(config: object, run: Run) -> None:
    del config
    model = LoadedModel(str(run.folder.path))
    trainer, _ = Trainer.open(run)
    try:
        for step in range(3):
            update = update_of(run, step)
            trainer.append(update)
            trainer.apply(update)
            replica = model.followed().replica
            assert (replica.step, replica.digest) == (step + 1, trainer.replica.digest)
        trainer.save_checkpoint()
        assert LoadedModel(str(run.folder.path)).followed().replica.step == 3
    finally:
        trainer.close()


def test_following_takes_no_longer_than_it_may(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, _ = Trainer.open(run)
    for step in range(3):
        update = update_of(run, step)
        trainer.append(update)
        trainer.apply(update)
    trainer.close()
    monkeypatch.setattr(inference, "FOLLOW_S", -1.0)
    model = LoadedModel(str(run.folder.path))
    assert [model.followed().replica.step for _ in range(4)] == [1, 2, 3, 3]


def test_models_that_write_nothing_say_so(tmp_path: Path) -> None:
    run = created(task_config(tmp_path), fit_task())
    scribe, folder = Scribe(), str(run.folder.path)
    (abilities,) = scribe.answers(Request("abilities", folder))
    assert abilities.abilities is not None
    assert (abilities.abilities.writes, abilities.abilities.baselines) == (False, {})
    (answer,) = scribe.answers(Request("write", folder))
    assert answer.error == "this run's model does not write text"


def test_visitors_run_no_code_that_a_folder_names(tmp_path: Path) -> None:
    file, mark = tmp_path / "fit.py", tmp_path / "was-run"
    file.write_text(f"open({str(mark)!r}, 'w')\n")
    run = created(task_config(tmp_path, task=f"{file}:task"), fit_task())
    (abilities,) = Scribe().answers(Request("abilities", str(run.folder.path)))
    assert abilities.abilities is not None
    assert not abilities.abilities.writes
    assert not mark.exists()


def test_characters_that_a_model_does_not_know_are_counted(run: Run) -> None:
    answers = [
        *Scribe().answers(Request("write", str(run.folder.path), GenerationRequest(prompt="the 汉字", length=3)))
    ]
    assert answers[0].note == "2 of the prompt's characters are unknown to this model"
    assert msgspec.json.decode(msgspec.json.encode(answers[-1])) == {"keep": 3, "done": True}


def test_model_that_fails_is_forgotten_and_said_on_the_terminal(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scribe = Scribe()

    def fail(*_: object) -> np.ndarray:
        raise RuntimeError("odd")

    monkeypatch.setattr(LoadedModel, "followed", fail)
    (answer,) = scribe.answers(Request("write", str(run.folder.path)))
    assert (answer.done, "odd" in answer.error) == (True, False)
    assert "board: run 1: RuntimeError: odd" in capsys.readouterr().err
    assert scribe._model is None


async def test_process_has_ended_for_everybody_who_ends_it() -> None:
    process = Models(COMMAND)
    await asked(process)
    started = process._process
    assert started is not None
    first = asyncio.create_task(process.close())
    await asyncio.sleep(0)
    await process.close()
    assert started.returncode is not None
    await first
    assert process._process is None


def test_model_of_a_run_that_was_made_anew_or_taken_back_is_loaded_again(run: Run) -> None:
    scribe = Scribe()

    def loaded() -> LoadedModel | None:
        [*scribe.answers(Request("abilities", str(run.folder.path)))]
        return scribe._model

    write_steps(run.folder, range(3))
    seen = [loaded(), loaded()]
    taken_back(run)
    seen.append(loaded())
    made_anew(run)
    seen.append(loaded())
    assert [one is other for one, other in pairwise(seen)] == [True, False, False]


def taken_back(run: Run) -> None:
    """As `rollback` leaves the metrics."""
    cut_lines(run.folder.metrics, 1, Aside(run.folder.path))
