"""Conversations over real sockets with a server that says what a test wants."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from fedlearn.coordination.effects import Leave
from fedlearn.es.digest import DIGEST_BYTES
from fedlearn.es.layout import Float32Array
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.snapshot import Snapshot
from fedlearn.runs.run import Run
from fedlearn.tasks.blocks import NO_BLOCK
from fedlearn.tasks.invitation import Invitation
from fedlearn.wire.messages import (
    Assignment,
    Credit,
    Farewell,
    Goodbye,
    Hello,
    Message,
    Proof,
    Ready,
    Result,
    Start,
    Welcome,
)
from fedlearn.wire.proof import NONCE_BYTES, is_signed
from tests.client.scene import Held, Scene
from tests.identities import CHALLENGE, hello_of
from tests.patience import LIMIT_S
from tests.run_folders import created, fit_task, task_config, update_of

ENDED = Farewell("run_ended", "all steps are done")


def assignment(quota: int) -> Assignment:
    return Assignment(0, NO_BLOCK, Perturbation(0.1, 1), 8, 0, quota, time_left_s=60.0)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return created(task_config(tmp_path), fit_task())


def welcome(run: Run) -> list[Message]:
    """What leads to Ready at step 0."""
    holding = run.holding()
    digest = holding.begin(0, keeps_start=False)
    return [Welcome("1", run.prepared.invitation), Start(digest, 0, 0, keeps_start=False)]


async def test_conversation_begins_with_hello_and_ends_with_the_farewell() -> None:
    scene = Scene()
    scene.answers[Hello] = lambda: [Farewell("refused", "protocol version: expected 10")]
    async with scene.converse() as conversing:
        assert await conversing == Leave("protocol version: expected 10", is_welcome_back=False, is_refusal=True)
    (hello,) = scene.heard
    assert isinstance(hello, Hello)
    assert hello == msgspec.structs.replace(hello_of(threads=2), nonce=hello.nonce)
    assert len(hello.nonce) == NONCE_BYTES
    assert len(set(hello.nonce)) > 1
    assert scene.conversation.summary == "this machine took 0 steps"


async def test_machine_takes_part_from_start_to_end(run: Run) -> None:
    scene = Scene(fit_task())
    scene.answers[Proof] = lambda: welcome(run)
    scene.answers[Ready] = lambda: [assignment(8)]
    scene.answers[Result] = lambda: [update_of(run, 0), ENDED]
    async with scene.converse() as conversing:
        assert await conversing == Leave("all steps are done", is_welcome_back=False, is_refusal=False)
    (_, _, ready, result) = scene.heard
    assert isinstance(ready, Ready)
    assert isinstance(result, Result)
    assert (result.losses.size, result.digest) == (8, ready.digest)
    # The step that came before the farewell was taken.
    holding = run.holding()
    holding.begin(0, keeps_start=False)
    digest = holding.apply(update_of(run, 0)).hex()
    assert scene.conversation.n_steps == 1
    assert scene.conversation.summary == f"this machine took 1 steps, to step 1 with digest {digest}"
    assert "joined run 1 at step 0: 6 parameters\n" in scene.screen.getvalue()


async def test_what_the_identity_has_earned_is_said_at_the_end(run: Run) -> None:
    scene = Scene(fit_task())
    scene.answers[Proof] = lambda: welcome(run)
    scene.answers[Ready] = lambda: [assignment(8)]
    credits = Credit(1, 1, 1, 0, 0), Credit(12300, 98400, 90, 4, 1)
    scene.answers[Result] = lambda: [credits[0], update_of(run, 0), credits[1], ENDED]
    async with scene.converse() as conversing:
        await conversing
    assert scene.conversation.summary.endswith(
        "; its identity is credited with 12.3k members, 98.4k trial-examples and 90 s in all; "
        "groups checked and right: 4; results checked and false: 1"
    )


@pytest.mark.parametrize("is_welcomed", [False, True])
async def test_line_that_breaks_is_a_reason_to_come_back(run: Run, is_welcomed: bool) -> None:
    scene = Scene(fit_task())
    scene.answers[Proof] = lambda: welcome(run) if is_welcomed else []
    async with scene.converse() as conversing:
        await scene.has_heard(Ready if is_welcomed else Proof)
        scene.hang_up()
        leave = await conversing
    assert (leave.is_welcome_back, leave.is_refusal) == (True, False)
    assert leave.reason == "the connection was closed"


async def test_server_that_can_not_be_read_is_told_so_and_counts_as_a_refusal(run: Run) -> None:
    scene = Scene(fit_task())
    unreadable: Any = [0.5]
    snapshot = Snapshot(0, bytes(DIGEST_BYTES), unreadable, {}, {})
    scene.answers[Proof] = lambda: [welcome(run)[0], snapshot]
    async with scene.converse() as conversing:
        leave = await conversing
        await scene.has_heard(Goodbye)
    assert (leave.is_welcome_back, leave.is_refusal) == (True, True)
    assert leave.reason.startswith("Snapshot: weights: Expected `array`")
    assert scene.heard[2:] == [Goodbye(leave.reason)]


async def test_server_that_speaks_another_protocol_is_left() -> None:
    scene = Scene()
    async with scene.converse() as conversing:
        await scene.has_heard(Hello)
        scene._writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 4)
        leave = await conversing
    assert leave.is_welcome_back
    assert "expected" in leave.reason


@pytest.mark.parametrize("kind", ["function", "transformer"])
async def test_server_is_told_why_this_machine_can_not_take_part(kind: str) -> None:
    scene = Scene()
    scene.answers[Proof] = lambda: [Welcome("1", Invitation(kind, 1, {}, {}))]
    async with scene.converse() as conversing:
        leave = await conversing
        await scene.has_heard(Goodbye)
    assert leave.is_refusal
    assert leave.reason.startswith("task: expected ")
    assert scene.heard[2:] == [Goodbye(leave.reason)]


async def test_server_whose_orders_contradict_one_another_is_told_so(run: Run) -> None:
    scene = Scene(fit_task())
    scene.answers[Proof] = lambda: welcome(run)
    scene.answers[Ready] = lambda: [update_of(run, 5)]
    async with scene.converse() as conversing:
        leave = await conversing
        await scene.has_heard(Goodbye)
    assert (leave.is_refusal, leave.is_welcome_back) == (True, False)
    assert leave.reason == "step: expected 0, got 5; the replica must resync"


async def test_server_whose_weights_are_not_what_it_says_is_told_so(run: Run) -> None:
    scene = Scene(fit_task())
    damaged = Snapshot(0, bytes(8), np.zeros(6, dtype=np.float32), {}, {})
    scene.answers[Proof] = lambda: [welcome(run)[0], damaged]
    async with scene.converse() as conversing:
        leave = await conversing
        await scene.has_heard(Goodbye)
    assert leave.is_refusal
    assert leave.reason.startswith(f"weights: expected digest {bytes(8).hex()}")


def raises_key_error() -> float:
    raise KeyError("no such array")


@pytest.mark.parametrize(
    ("fails", "kind", "text"),
    [(raises_key_error, "KeyError", "no such array"), (lambda: sys.exit(3), "RuntimeError", "sys.exit(3)")],
)
async def test_error_of_the_tasks_own_code_is_told_to_both_sides_in_words(
    run: Run, fails: Callable[[], float], kind: str, text: str
) -> None:
    def loss(_: dict[str, Float32Array]) -> float:
        return fails()

    scene = Scene(fit_task(loss=loss))
    scene.answers[Proof] = lambda: welcome(run)
    scene.answers[Ready] = lambda: [assignment(8)]
    async with scene.converse() as conversing:
        leave = await conversing
        await scene.has_heard(Goodbye)
    assert (leave.is_refusal, leave.is_welcome_back) == (True, False)
    assert leave.reason.startswith(kind)
    assert text in leave.reason
    assert scene.heard[-1] == Goodbye(leave.reason)
    assert ", in loss: return fails()\n" in scene.screen.getvalue()
    assert "Traceback" not in scene.screen.getvalue()


async def test_volunteer_who_leaves_says_goodbye(run: Run) -> None:
    scene = Scene(fit_task())
    scene.answers[Proof] = lambda: welcome(run)
    async with scene.converse() as conversing:
        await scene.has_heard(Ready)
        scene.conversation.stop("Ctrl-C")
        assert await conversing == Leave("Ctrl-C", is_welcome_back=False, is_refusal=False)
        await scene.has_heard(Goodbye)
    assert scene.heard[-1] == Goodbye("Ctrl-C")


async def test_trials_under_way_do_not_hold_up_who_leaves(run: Run) -> None:
    """Their result comes when nobody wants it any more, and is sent nowhere."""
    held = Held()
    scene = Scene(held.task)
    scene.answers[Proof] = lambda: welcome(run)
    scene.answers[Ready] = lambda: [assignment(64)]
    async with scene.converse() as conversing:
        await asyncio.to_thread(held.has_begun.wait, LIMIT_S)
        scene.conversation.stop("Ctrl-C")
        assert (await conversing).reason == "Ctrl-C"
        held.may_end.set()
        await scene.has_heard(Goodbye)
    assert not any(isinstance(message, Result) for message in scene.heard)


async def test_proof_is_of_this_conversation(run: Run) -> None:
    scene = Scene(fit_task())
    scene.answers[Proof] = lambda: [*welcome(run), ENDED]
    async with scene.converse() as conversing:
        await conversing
    hello, proof = scene.heard[:2]
    assert isinstance(hello, Hello)
    assert isinstance(proof, Proof)
    assert is_signed(proof, hello, CHALLENGE, b"")


async def test_volunteer_without_the_token_that_is_asked_for_leaves_with_the_remedy() -> None:
    scene = Scene()
    scene.answers[Hello] = lambda: [msgspec.structs.replace(CHALLENGE, needs_token=True)]
    async with scene.converse() as conversing:
        leave = await conversing
        await scene.has_heard(Goodbye)
    assert (leave.is_refusal, leave.is_welcome_back) == (True, False)
    assert "name the token's file with --token" in leave.reason


async def test_trials_that_end_soon_are_handed_in_before_goodbye(run: Run) -> None:
    held = Held()
    scene = Scene(held.task)
    scene.answers[Proof] = lambda: welcome(run)
    scene.answers[Ready] = lambda: [assignment(64)]
    async with scene.converse() as conversing:
        await asyncio.to_thread(held.has_begun.wait, LIMIT_S)
        scene.conversation.stop("the volunteer left")
        held.may_end.set()
        assert (await conversing).reason == "the volunteer left"
        await scene.has_heard(Goodbye)
    assert [type(message) for message in scene.heard[-2:]] == [Result, Goodbye]


@pytest.mark.parametrize(("meant", "is_refusal"), [("1", False), ("", False), ("2", True)])
async def test_run_is_the_one_of_the_address(run: Run, meant: str, is_refusal: bool) -> None:
    scene = Scene(fit_task())
    scene.meant = meant
    scene.answers[Proof] = lambda: [*welcome(run), ENDED]
    async with scene.converse() as conversing:
        leave = await conversing
    assert leave.is_refusal == is_refusal
    assert leave.reason.startswith("run: expected 2, the server trains 1" if is_refusal else "all steps are done")


async def test_line_that_ends_after_hello_may_have_wanted_encryption() -> None:
    scene = Scene()
    scene.answers.clear()
    async with scene.converse() as conversing:
        await scene.has_heard(Hello)
        scene.hang_up()
        leave = await conversing
    assert leave.is_welcome_back
    assert "if the server wants encryption, join with the line that it prints" in leave.reason
