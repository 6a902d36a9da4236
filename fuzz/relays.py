"""Random mutations of what a relay hears, from the volunteers below and from the server above: changed, late, twice.
Nothing but the conversation of whoever said it ends; with a new line to its server the relay takes steps on.

python fuzz/relays.py --cases 2000 --seed 1
"""

import sys
import tempfile
from collections import deque
from pathlib import Path
from random import Random

import msgspec
import numpy as np
from seeds import chosen_options, seeds_of

sys.path.insert(0, str(Path(__file__).parents[1]))

from fedlearn.es.layout import Float32Array
from fedlearn.wire.errors import LocalProtocolError, RemoteProtocolError
from fedlearn.wire.messages import Assignment, Message, Ready, Result
from fedlearn.wire.states import next_state
from tests.coordination.crews.crews.test_changed_messages import changed
from tests.relay.branch import Branch, add_to, branch_of
from tests.run_folders import created, fit_task, task_config
from tests.simulation.swarm.stage import Stage

KEPT = 20
"""Messages that may be said once more, later."""
DONE_STEPS = 3
"""Steps that the run takes after all that was said."""
MANY = 1000
"""Rounds in which a run takes these steps, if it takes any."""


def say_below(choices: Random, relay: Branch, said_before: deque[Message]) -> None:
    """A volunteer of the relay says something."""
    peer = choices.choice(list(relay.participants))
    participant, replica = relay.participants[peer], relay.volunteer.replica
    assert replica is not None
    step, digest = replica.step, replica.digest
    losses: Float32Array = np.full(8, choices.choice([0.5, np.nan, 1e30]), np.float32)
    first = relay.assigned[-1].first_member if relay.assigned else 0
    honest: list[Message] = [
        Ready(step, digest),
        Result(step, first + 8 * choices.randrange(8), losses, digest),
        Result(max(step - 1, 0), first, losses, digest),
        *said_before,
    ]
    said = choices.choice(honest)
    if choices.random() < 0.7:
        said = changed(choices, said) or said
    said_before.append(said)
    try:
        participant.link.client.send(said)
        relay._receive(peer, participant)
        if isinstance(said, Ready):
            relay.kill(participant)  # its own one would be the second
    except LocalProtocolError:
        pass  # an honest connection does not even send it
    except RemoteProtocolError:
        relay.kill(participant)


def say_above(choices: Random, relay: Branch) -> bool:
    """The server says what it said before, changed or late; whether the conversation goes on."""
    leased = choices.choice(relay.assigned)
    said: Message = leased
    if choices.random() < 0.7:
        said = changed(choices, said) or said
    if isinstance(said, Assignment):  # the server would not take more, and a case's clock stands still meanwhile
        said = msgspec.structs.replace(said, quota=min(said.quota, leased.quota))
    if next_state(relay.link.client.state, type(said)) is None:
        return False  # the connection refuses it before the relay hears of it
    try:
        relay.performer.perform(relay.relay.received(said, relay.now()))
    except RemoteProtocolError:
        return False
    return relay.left_by is None


def connect_anew(stage: Stage, relay: Branch) -> None:
    """The line to the server breaks, and there is another."""
    participants = stage.swarm.participants
    participants_of = [each for each in participants.values() if each.link is relay.link]
    for each in participants_of:
        stage.swarm.kill(each)
    relay.cut()
    relay.connect()
    add_to(stage.swarm, relay)


def try_one(seed: int, folder: Path) -> int:
    """One run with a relay that hears anything; gives the number of messages."""
    choices = Random(seed)
    stage = Stage(created(task_config(folder, steps=100_000), fit_task()), fit_task())
    relay = branch_of(stage.swarm, "relay", stage.clock, task=fit_task())
    while relay.coordinator is None:
        assert stage.advance()
    for number in range(choices.randint(1, 4)):
        relay.join(f"volunteer {number}")
    stage.go_to(2)
    said_before: deque[Message] = deque(maxlen=KEPT)
    n_said = 0
    for _ in range(choices.randint(1, 20)):
        if not relay.participants:
            break
        n_said += 1
        if choices.random() < 0.7:
            say_below(choices, relay, said_before)
        elif not say_above(choices, relay):
            connect_anew(stage, relay)
        for _ in range(choices.randrange(4)):
            stage.advance()
    connect_anew(stage, relay)
    relay.join("honest")
    step = stage.trainer.replica.step
    for _ in range(MANY):
        if not stage.advance():
            stage.clock.now += 5.0
        if stage.trainer.replica.step >= step + DONE_STEPS:
            break
    stage.close()
    assert stage.trainer.replica.step >= step + DONE_STEPS, f"seed {seed}: the relay stands still"
    return n_said


def main() -> int:
    """Tries so many cases; gives the exit code."""
    options = chosen_options("Random mutations of what a relay hears.", cases=2000)
    n_cases, n_said = 0, 0
    for seed in seeds_of(options):
        with tempfile.TemporaryDirectory() as folder:
            n_said += try_one(seed, Path(folder))
        n_cases += 1
    print(f"{n_cases} cases from seed {options.seed}, {n_said} messages: the relays went on")
    return 0


if __name__ == "__main__":
    sys.exit(main())
