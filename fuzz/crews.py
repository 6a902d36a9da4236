"""Random mutations of what seats of a crew say, to the server and on their direct lines: changed, late, twice. Nothing
but the conversation of whoever said it ends, and the crews take steps on.

python fuzz/crews.py --cases 2000 --seed 1
"""

import sys
from collections import deque
from pathlib import Path
from random import Random

import numpy as np
from seeds import chosen_options, seeds_of

sys.path.insert(0, str(Path(__file__).parents[1]))

from fedlearn.coordination.crews.crew import STALL_S
from fedlearn.coordination.crews.crews import REPLAN_S
from fedlearn.wire.limits import LOADING_LIMIT_S
from fedlearn.wire.messages import Activations, Message, Ready, Result, Taken
from tests.coordination.crews.crews.test_changed_messages import changed, send
from tests.coordination.crews.replica import HONEST, N_SEATS
from tests.coordination.crews.scene import Scene

KEPT = 20
"""Messages that may be said once more, later."""


def try_one(seed: int) -> int:
    """One run of crews with seats that say anything; gives the number of messages that somebody heard."""
    choices = Random(seed)
    scene = Scene(seed=seed, is_direct=choices.random() < 0.5)
    for _ in range(choices.randint(N_SEATS, 2 * N_SEATS)):
        scene.join()
    scene.settle(2)
    said_before: deque[Message] = deque(maxlen=KEPT)
    n_heard = 0
    for _ in range(choices.randint(1, 30)):
        if not scene.machines:
            break
        peer = choices.choice(list(scene.machines))
        step, digest = scene.machines[peer].step, scene.machines[peer]._digest
        first, count = 4 * choices.randrange(4), choices.randint(1, 4)
        honest: list[Message] = [
            Activations(step, first, count, digest, bytes(4 * count)),
            Activations(max(step - 1, 0), first, count, digest, b""),
            Result(step, first, np.full(4, HONEST, np.float32), digest),
            Ready(step, digest),
            Taken(step, count),
            *said_before,
        ]
        said = choices.choice(honest)
        if choices.random() < 0.7:
            said = changed(choices, said) or said
        said_before.append(said)
        n_heard += 1
        send(scene, peer, said)
        if choices.random() < 0.5:
            scene.do_work()
    while len(scene.machines) < 2 * N_SEATS:
        scene.join()
    n_steps = len(scene.trainer.journal)
    scene.settle_for(REPLAN_S, STALL_S, LOADING_LIMIT_S)
    assert len(scene.trainer.journal) >= n_steps + 3, f"seed {seed}: the crews stand still"
    return n_heard


def main() -> int:
    """Tries so many cases; gives the exit code."""
    options = chosen_options("Random mutations of what seats say.", cases=2000)
    n_cases, n_heard = 0, 0
    for seed in seeds_of(options):
        n_heard += try_one(seed)
        n_cases += 1
    print(f"{n_cases} cases from seed {options.seed}, {n_heard} messages: the crews went on")
    return 0


if __name__ == "__main__":
    sys.exit(main())
