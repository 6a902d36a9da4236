"""A server and its volunteers in one process, with the real protocol, arithmetic and files, and a scripted clock."""

from collections.abc import Callable, Iterator
from typing import Any, Self, final

import msgspec
import numpy as np
import pytest

from fedlearn.app import history
from fedlearn.app import run as runs
from fedlearn.app.run import Run
from fedlearn.app.swarm import Member, Swarm
from fedlearn.app.trainer import Trainer
from fedlearn.config import RunConfig
from fedlearn.coordination.effects import Apply, Compute, Evaluate
from fedlearn.coordination.worker import SLICE_S
from fedlearn.objectives.base import TrialResults
from fedlearn.storage.checkpoint import latest_checkpoint, load_checkpoint
from fedlearn.storage.journal import Journal, read_journal
from fedlearn.wire.codec import encode


@final
class Clock:
    """Time that passes only when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@final
class Stage:
    """A swarm on a run, and the digest of each replica at each step that it was seen at."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.trainer, self.notices = Trainer.open(run)
        self.clock = Clock()
        self.swarm = Swarm(self.trainer, self.clock)
        self.members: list[Member] = []
        self._seen: dict[tuple[int, int], bytes] = {}

    def join(self, *, threads: int = 1) -> Member:
        self.members.append(self.swarm.join(f"volunteer {len(self.members)}", threads=threads))
        return self.members[-1]

    def advance(self) -> bool:
        moved = self.swarm.advance()
        for number, member in enumerate(self.members):
            if (replica := member.volunteer.replica) is not None:
                self._seen[number, replica.step] = replica.digest
        return moved

    def go_to(self, step: int) -> None:
        """Until the server's replica is at this step."""
        while self.trainer.replica.step < step:
            assert self.advance(), f"nothing moves at step {self.trainer.replica.step}"

    def settle(self) -> None:
        """Until nothing happens without time passing."""
        while self.advance():
            pass

    def train(self, *, volunteers: int = 1) -> Self:
        """To the end of the run."""
        for _ in range(volunteers):
            self.join()
        self.settle()
        assert self.swarm.ended is not None
        assert self.swarm.ended.endswith(("steps are done", "s of training are over"))
        self.close()
        return self

    def close(self) -> None:
        """The process ends, however it does."""
        self.trainer.close()

    def followed(self, member: Member) -> list[int]:
        """Steps at which the member's replica was equal to the server's."""
        digests = {metrics.step + 1: bytes.fromhex(metrics.digest) for metrics in self.swarm.metrics}
        seen = {step: digest for (number, step), digest in self._seen.items() if self.members[number] is member}
        return sorted(step for step, digest in seen.items() if digests.get(step) == digest)

    def drifted(self) -> list[tuple[int, int]]:
        """Number of the member and step, wherever a replica was not equal to the server's."""
        digests = {metrics.step + 1: bytes.fromhex(metrics.digest) for metrics in self.swarm.metrics}
        return [key for key, digest in self._seen.items() if digests.get(key[1], digest) != digest]


StageOf = Callable[[Run], Stage]


@pytest.fixture
def stage_of() -> Iterator[StageOf]:
    """Stages that are closed in the end."""
    stages = []

    def opened(run: Run) -> Stage:
        stages.append(Stage(run))
        return stages[-1]

    yield opened
    for stage in stages:
        stage.close()


def resumed(run: Run, **changes: Any) -> Run:  # noqa: ANN401 (values of RunConfig)
    """The run as another process finds it."""
    found = runs.load(run.folder)
    return msgspec.structs.replace(found, config=msgspec.structs.replace(found.config, **changes))


def created(config: RunConfig, **changes: Any) -> Run:  # noqa: ANN401 (values of RunConfig)
    return runs.create(msgspec.structs.replace(config, **changes))


def journal_of(run: Run) -> list[bytes]:
    return [encode(update) for update in read_journal(run.folder.journal)]


# ---- learning


def test_swarm_learns(config: RunConfig, stage_of: StageOf) -> None:
    stage = stage_of(created(config, steps=60, population_limit=256)).train()
    losses = [metrics.loss for metrics in stage.swarm.metrics]
    assert len(losses) == 60
    first, last = (np.mean([loss for loss in part if loss is not None]) for part in (losses[:5], losses[-5:]))
    assert last < 0.8 * first


# ---- equal replicas


@pytest.mark.parametrize("volunteers", [1, 2, 3])
def test_all_replicas_are_equal_after_every_step(config: RunConfig, stage_of: StageOf, volunteers: int) -> None:
    stage = stage_of(created(config, steps=8)).train(volunteers=volunteers)
    assert stage.drifted() == []
    for member in stage.members:
        assert stage.followed(member) == list(range(1, 9))


def test_second_volunteer_does_not_change_the_bits(config: RunConfig, stage_of: StageOf) -> None:
    one, two = (created(config, steps=8) for _ in range(2))
    stage_of(one).train(volunteers=1)
    stage = stage_of(two).train(volunteers=2)
    assert {metrics.volunteers for metrics in stage.swarm.metrics[1:]} == {2}
    assert journal_of(one) == journal_of(two)
    assert latest_checkpoint(one.folder)[0].digest == latest_checkpoint(two.folder)[0].digest


def test_volunteer_with_all_processors_gives_the_same_bits(config: RunConfig, stage_of: StageOf) -> None:
    one, two = (created(config, steps=5) for _ in range(2))
    stage_of(one).train()
    stage = stage_of(two)
    stage.join(threads=0)
    stage.settle()
    assert stage.drifted() == []
    assert journal_of(one) == journal_of(two)


def test_stalled_volunteer_is_cut_at_the_deadline_and_follows_again(config: RunConfig, stage_of: StageOf) -> None:
    stage = stage_of(created(config, steps=12))
    steady, stalled = stage.join(), stage.join()
    stage.go_to(5)
    stalled.is_stalled = True
    stage.settle()
    step = stage.trainer.replica.step
    stage.clock.now += config.time_per_step
    stage.go_to(step + 1)
    metrics = stage.swarm.metrics[-1]
    assert (metrics.volunteers, metrics.step) == (1, step)
    assert 0 < metrics.members < config.population_limit
    stalled.is_stalled = False
    stage.settle()
    stage.close()
    assert stage.swarm.metrics[-1].volunteers == 2
    assert stage.drifted() == []
    assert stage.followed(stalled) == stage.followed(steady) == list(range(1, 13))


def slow_down(member: Member, clock: Clock, members_per_s: float, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lets the trials of this member take time; gives the sizes of its slices as they come."""
    slices = []
    perform = member.volunteer.perform

    def perform_slowly(compute: Compute) -> bytes | TrialResults | None:
        if isinstance(compute, Evaluate):
            slices.append(compute.trials.n_members)
            clock.now += compute.trials.n_members / members_per_s
        return perform(compute)

    monkeypatch.setattr(member.volunteer, "perform", perform_slowly)
    return slices


def test_trials_are_cut_into_slices_by_the_time_they_take(
    config: RunConfig, stage_of: StageOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stage_of(created(config, steps=3, population_limit=256))
    member = stage.join()
    slices = slow_down(member, stage.clock, 256.0, monkeypatch)
    stage.settle()
    assert sum(slices) == 3 * 256
    assert max(slices) == SLICE_S * 256.0
    assert stage.clock.now == 3.0


def test_what_a_killed_volunteer_sent_counts_and_the_others_go_on(
    config: RunConfig, stage_of: StageOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stage_of(created(config, steps=6, population_limit=256))
    killed, steady = stage.join(), stage.join()
    for member in (steady, killed):
        slow_down(member, stage.clock, 200.0, monkeypatch)
    stage.go_to(3)
    started = stage.clock.now
    while stage.clock.now < started + 2 * SLICE_S:
        stage.advance()
    stage.swarm.kill(killed)
    late = stage.join()
    stage.settle()
    stage.close()
    cut, after = stage.swarm.metrics[3:5]
    assert cut.volunteers == 2
    assert cut.members < 256
    assert after.members == 256
    assert all(min(metrics.bytes_in, metrics.bytes_out) > 0 for metrics in stage.swarm.metrics)
    assert stage.followed(killed) == [1, 2, 3]
    assert stage.followed(steady) == list(range(1, 7))
    assert stage.followed(late)[-1] == 6
    assert stage.clock.now < config.time_per_step


def test_volunteer_that_says_goodbye_is_not_waited_for(config: RunConfig, stage_of: StageOf) -> None:
    stage = stage_of(created(config, steps=6))
    stage.join()
    leaving = stage.join()
    stage.go_to(3)
    leaving.leave("Ctrl-C")
    stage.advance()
    assert leaving not in stage.swarm.members.values()
    stage.settle()
    stage.close()
    assert "volunteer 1 left: Ctrl-C" in stage.swarm.notices
    assert stage.swarm.metrics[-1].members == config.population_limit
    assert stage.clock.now == 0.0


def test_late_joiner_holds_the_same_weights_and_contributes(config: RunConfig, stage_of: StageOf) -> None:
    stage = stage_of(created(config, steps=12))
    stage.join()
    stage.go_to(5)
    late = stage.join()
    stage.settle()
    stage.close()
    assert stage.drifted() == []
    first = stage.followed(late)[0]
    assert 5 <= first <= 7
    assert stage.followed(late) == list(range(first, 13))
    assert stage.swarm.metrics[-1].volunteers == 2


def test_drifted_replica_is_noticed_resynchronised_and_counts_again(config: RunConfig, stage_of: StageOf) -> None:
    stage = stage_of(created(config, steps=16))
    stage.join()
    drifting = stage.join()
    stage.go_to(5)
    replica = drifting.volunteer.replica
    assert replica is not None
    replica.weights[3] += 1e-3
    stage.settle()
    stage.close()
    assert len([notice for notice in stage.swarm.notices if "volunteer 1 drifted" in notice]) == 1
    assert "resynchronises" in drifting.notices[0]
    # Its own trials of the step at hand are a little off, which no digest shows; then it is found out.
    assert {number for number, _ in stage.drifted()} == {1}
    steps = [step for _, step in stage.drifted()]
    assert 1 <= len(steps) <= 2
    assert stage.followed(drifting)[-8:] == list(range(9, 17))
    assert [metrics.volunteers for metrics in stage.swarm.metrics].count(1) <= 4
    assert stage.swarm.metrics[-1].volunteers == 2


def test_volunteer_with_wrong_arithmetic_is_sent_away(
    config: RunConfig, stage_of: StageOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stage_of(created(config, steps=40))
    stage.join()
    wrong = stage.join()
    perform = wrong.volunteer.perform

    def perform_wrongly(compute: Compute) -> bytes | TrialResults | None:
        result = perform(compute)
        if isinstance(compute, Apply):
            assert wrong.volunteer.replica is not None
            wrong.volunteer.replica.weights[0] += 1e-6
            return wrong.volunteer.replica.digest
        return result

    monkeypatch.setattr(wrong.volunteer, "perform", perform_wrongly)
    stage.settle()
    stage.close()
    assert wrong.left is not None
    assert wrong.left.is_refusal
    assert "its arithmetic can't be trusted" in wrong.left.reason
    assert stage.swarm.metrics[-1].members == config.population_limit


@pytest.mark.parametrize(
    "changes",
    [
        {"fitness_shaping": "centered-ranks"},
        {"fitness_shaping": "sign"},
        {"rank": 0},
        {"rank": 2},
        {"optimizer": "sgd", "learning_rate": 1.0},
        {"n_layers": 2},
        {"batch_size": 2},
        {"context": 0},
        {"tokenizer": "bytes"},
        {"documents": "blank-lines"},
        {"group_size": 5},
        {"seed": 2**63 - 1},
    ],
    ids=lambda changes: " ".join(f"{key}={value}" for key, value in changes.items()),
)
def test_every_choice_of_a_run_gives_equal_replicas(
    config: RunConfig, stage_of: StageOf, changes: dict[str, Any]
) -> None:
    run = created(config, steps=5, **changes)
    stage = stage_of(run).train(volunteers=2)
    assert stage.drifted() == []
    for member in stage.members:
        assert stage.followed(member) == [1, 2, 3, 4, 5]
    assert history.replay(run)[0].digest == stage.trainer.replica.digest
    assert stage.trainer.replica.digest != load_checkpoint(run.folder.genesis).digest


# ---- token blocks


def test_replicas_stay_equal_across_token_blocks_with_a_late_joiner(config: RunConfig, stage_of: StageOf) -> None:
    run = created(config, steps=20, new_tokens_interval=2, block_tokens=600)
    assert len(run.blocks) == 6
    stage = stage_of(run)
    stage.join()
    stage.go_to(5)
    late = stage.join()
    late.is_stalled = True  # it is sent the Updates of several blocks before it can load the Snapshot
    stage.go_to(11)
    late.is_stalled = False
    stage.settle()
    stage.close()
    assert stage.drifted() == []
    assert stage.followed(late)[-1] == 20
    assert len({update.block for update in read_journal(run.folder.journal)}) == 6
    assert stage.swarm.metrics[-1].volunteers == 2
    assert history.replay(run)[0].digest == stage.trainer.replica.digest


# ---- what is on the disk


def test_replay_of_genesis_and_journal_equals_the_checkpoint(config: RunConfig, stage_of: StageOf) -> None:
    run = created(config, steps=12)
    stage_of(run).train(volunteers=2)
    snapshot, problems = latest_checkpoint(run.folder)
    replica, last = history.replay(run)
    assert (snapshot.step, problems) == (12, [])
    assert replica.digest == snapshot.digest
    assert last is not None
    assert last.step == 11


def test_resumed_run_ends_where_an_uninterrupted_one_does(config: RunConfig, stage_of: StageOf) -> None:
    config = msgspec.structs.replace(config, learning_rate_schedule="constant")  # which knows of no end
    whole = created(config, steps=40)
    stage_of(whole).train()
    parts = created(config, steps=20)
    stage_of(parts).train()
    stage = stage_of(resumed(parts, steps=40)).train()
    assert stage.notices == []
    assert stage.swarm.metrics[0].step == 20
    assert journal_of(parts) == journal_of(whole)
    assert latest_checkpoint(parts.folder)[0].digest == latest_checkpoint(whole.folder)[0].digest


def test_run_stopped_in_the_midst_goes_on_where_it_stopped(config: RunConfig, stage_of: StageOf) -> None:
    config = msgspec.structs.replace(config, learning_rate_schedule="constant")
    whole = created(config, steps=20)
    stage_of(whole).train()
    stopped = created(config, steps=0)
    stage = stage_of(stopped)
    member = stage.join()
    stage.go_to(7)
    stage.swarm.stop("Ctrl-C")
    stage.close()
    assert stage.swarm.ended == "Ctrl-C"
    assert member.left is not None
    assert (member.left.reason, member.left.is_welcome_back) == ("Ctrl-C", True)
    assert resumed(stopped).config.step_num == stage.trainer.replica.step >= 7
    stage_of(resumed(stopped, steps=20)).train()
    assert journal_of(stopped) == journal_of(whole)


def test_seconds_of_training_go_on_where_a_killed_server_left_them(config: RunConfig, stage_of: StageOf) -> None:
    run = created(config, duration=8.0, learning_rate_schedule="linear", sigma_schedule="linear")
    for end in (3, 1000):
        stage = stage_of(resumed(run))
        stage.join()
        while stage.swarm.ended is None and stage.trainer.replica.step < end:
            stage.clock.now += 0.125
            assert stage.advance()
        stage.close()
    assert stage.swarm.ended == "the 8 s of training are over"
    updates = list(read_journal(run.folder.journal))
    begins = [0.0, *(update.elapsed_s for update in updates)]
    assert begins == sorted(set(begins))
    assert begins[-2] < 8.0 <= begins[-1]
    rates = [0.02 * (1 - begin / 8.0) for begin in begins[:-1]]
    assert [update.learning_rate for update in updates] == pytest.approx(rates)
    assert stage_of(resumed(run)).train().swarm.metrics == []


def test_run_that_is_complete_ends_at_once_when_it_is_resumed(config: RunConfig, stage_of: StageOf) -> None:
    run = created(config, steps=3)
    stage_of(run).train()
    stage = stage_of(resumed(run)).train()
    assert stage.swarm.metrics == []


def crash(stage: Stage, step: int) -> None:
    """The server is killed when its replica is at this step."""
    stage.join()
    stage.go_to(step)
    stage.close()


def test_crash_without_a_checkpoint_loses_no_step_in_the_journal(config: RunConfig, stage_of: StageOf) -> None:
    whole, broken = (created(config, steps=15) for _ in range(2))
    stage_of(whole).train()
    crash(stage_of(broken), 9)
    stage = stage_of(resumed(broken)).train()
    assert stage.swarm.metrics[0].step == 9
    assert journal_of(broken) == journal_of(whole)


def test_torn_end_of_the_journal_is_cut_with_a_notice_and_training_goes_on(
    config: RunConfig, stage_of: StageOf
) -> None:
    whole, broken = (created(config, steps=15) for _ in range(2))
    stage_of(whole).train()
    crash(stage_of(broken), 9)
    content = broken.folder.journal.read_bytes()
    broken.folder.journal.write_bytes(content[:-10])
    stage = stage_of(resumed(broken)).train()
    assert ["torn last record" in notice for notice in stage.notices] == [True]
    assert stage.swarm.metrics[0].step == 8
    assert journal_of(broken) == journal_of(whole)
    assert latest_checkpoint(broken.folder)[0].digest == latest_checkpoint(whole.folder)[0].digest


def test_damaged_checkpoint_is_passed_over_with_a_notice(config: RunConfig, stage_of: StageOf) -> None:
    run = created(config, steps=10)
    digest = stage_of(run).train().trainer.replica.digest
    (path,) = run.folder.checkpoints.iterdir()
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    stage = stage_of(resumed(run))
    stage.close()
    assert ["checkpoint passed over" in notice and path.name in notice for notice in stage.notices] == [True]
    assert (stage.trainer.replica.step, stage.trainer.replica.digest) == (10, digest)


@pytest.mark.parametrize("journal", ["short", "lost"])
def test_checkpoint_ahead_of_the_journal_is_set_aside(config: RunConfig, stage_of: StageOf, journal: str) -> None:
    run = created(config, steps=10, checkpoint_time=1.0)
    stage = stage_of(run)
    stage.join()
    for step in (2, 4, 8):
        stage.go_to(step)
        stage.clock.now += 1.0
    stage.settle()
    stage.close()
    saved = sorted(int(path.stem) for path in run.folder.checkpoints.iterdir())
    if journal == "short":
        cut_journal(run, 7)
    else:
        run.folder.journal.unlink()
    end = 7 if journal == "short" else 0
    again = stage_of(resumed(run, steps=12))
    assert again.trainer.replica.step == end
    assert again.trainer.replica.digest == history.replay(run)[0].digest
    later = [step for step in saved if step > end]
    assert later
    (notice,) = again.notices
    assert f"ends at step {end}, before the newest checkpoint" in notice
    assert all(f"{step:012d}.set-aside" in notice for step in later)
    earlier = [run.folder.checkpoints / f"{step:012d}.safetensors" for step in saved if step <= end]
    assert all(path.exists() for path in earlier)
    assert (journal == "short") == bool(earlier)
    again.join()
    again.settle()
    again.close()
    assert latest_checkpoint(run.folder)[0].digest == history.replay(run)[0].digest
    assert latest_checkpoint(run.folder)[0].step == 12


def cut_journal(run: Run, step: int) -> None:
    """Takes the last Updates away, as a disk may that lied about what it had written."""
    updates = [update for update in read_journal(run.folder.journal) if update.step < step]
    run.folder.journal.unlink()
    with Journal.open(run.folder.journal) as journal:
        for update in updates:
            journal.append(update)


# ---- figures


@pytest.mark.parametrize("population", [64, 256, 4096])
@pytest.mark.parametrize("volunteers", [1, 2])
def test_traffic_of_a_step_is_little_more_than_losses_and_utilities(
    config: RunConfig, stage_of: StageOf, population: int, volunteers: int
) -> None:
    stage = stage_of(created(config, steps=12, population_limit=population)).train(volunteers=volunteers)
    for metrics in stage.swarm.metrics[6:]:
        assert metrics.members == population
        assert metrics.volunteers == volunteers
        traffic = metrics.bytes_in + metrics.bytes_out
        assert 5 * population < traffic
        assert traffic <= 1.2 * (4 * population + volunteers * (population + 250))
