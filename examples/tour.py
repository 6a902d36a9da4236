"""A tour: a whole training step, from leases to the Update, in one process that prints every message.

Run it with `python examples/tour.py`, and change it: another loss, another group size, a volunteer that lies.
"""

import tempfile
from pathlib import Path

import fedlearn
from fedlearn.library.training import configured
from fedlearn.runs.creation import create
from fedlearn.server.training.trainer import Trainer
from fedlearn.simulation.swarm import Participant, Swarm
from fedlearn.wire.messages import Assignment, Message, Result, Update

STEPS = 3


def loss(arrays):
    """What is learned: a point whose coordinates are 1, 2 and 3. No gradient of it is ever taken."""
    return float(((arrays["x"] - [1.0, 2.0, 3.0]) ** 2).sum())


def in_words(message: Message) -> str:
    """What a message says, as far as the tour needs it."""
    match message:
        case Assignment():
            last = message.first_member + message.quota - 1
            return f"measure members {message.first_member} to {last} of step {message.step}"
        case Result():
            return f"their losses are {[round(float(loss), 2) for loss in message.losses]}"
        case Update():
            return f"utilities {message.utilities.tolist()}; everybody takes the same step now"
    return type(message).__doc__.splitlines()[0].partition(": ")[2]


def overheard(participant: Participant, name: str) -> None:
    """Prints what goes over the line between a volunteer and the server, in both directions."""
    for side, said in (
        (participant.link.client, f"{name:>6} -> server"),
        (participant.link.server, f"server -> {name}"),
    ):
        send = side.send

        def send_aloud(message, *parcel, send=send, said=said):
            print(f"{said:<17} {type(message).__name__:<10} {in_words(message)}")
            send(message, *parcel)

        side.send = send_aloud


def main() -> None:
    """Ada and Bob train for a few steps, each with a replica of its own, beside the server's."""
    task = fedlearn.function(loss, {"x": [0.0, 0.0, 0.0]}, covariance=False)
    with tempfile.TemporaryDirectory() as folder:
        # A run is a folder: its settings, its first weights, and from now on its journal.
        settings = {"runs": folder, "steps": STEPS, "sigma": 0.1, "learning_rate": 0.3, "audit": 0.0}
        steps = {"population_limit": 8, "group_size": 4, "time_per_step": 10.0}
        kind, named, config = configured(task, {**settings, **steps}, always={})
        run = create(kind, config, named, trust="all of it is in this process")

        # The trainer has the server's replica and the journal; the swarm has the pure machines: a coordinator, and a
        # worker for each volunteer. Time stands still: whatever waits for it would wait for ever.
        trainer, _ = Trainer.open(run)
        swarm = Swarm(trainer, clock=lambda: 0.0, task=named)
        volunteers = {name: swarm.join(name) for name in ("Ada", "Bob")}
        for name, participant in volunteers.items():
            overheard(participant, name)

        # A round performs the effects of each machine once: messages arrive, losses are computed, answers leave.
        while swarm.reason is None:
            swarm.advance()
        print(f"\n{swarm.reason}; the weights are {[round(float(each), 2) for each in trainer.replica.weights]}")

        # The server sent utilities, not weights. Replicas are equal to the bit nevertheless.
        replicas = {name: one.volunteer.holding.replica for name, one in volunteers.items()}
        for name, replica in {"server": trainer.replica, **replicas}.items():
            print(f"{name:>6} is before step {replica.step}, with digest {replica.digest.hex()}")
        trainer.close()
        print("on the disk:", *sorted(path.name for path in Path(run.folder.path).iterdir()))


if __name__ == "__main__":
    main()
