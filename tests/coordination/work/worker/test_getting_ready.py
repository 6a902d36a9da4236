from fedlearn.coordination.effects import Apply, Begin, Build, Load, Reply, StoreBlock
from fedlearn.coordination.people.roster import Held
from fedlearn.coordination.work.worker import Worker
from fedlearn.wire.messages import Proof, Ready, Resync
from tests.coordination.work.scene import DATA, WELCOME, Scene, digest_of, replies, snapshot, start, update
from tests.identities import ADA, CHALLENGE, NONCE, hello_of, proof_of


def test_conversation_begins_with_hello(stranger: Scene) -> None:
    assert stranger.greeting == [Reply(hello_of(threads=2))]


def test_computations_are_done_in_the_order_of_the_messages(stranger: Scene) -> None:
    stranger.hear(WELCOME, DATA, snapshot(4), update(4), update(5))
    kinds = []
    while stranger.under_way is not None:
        kinds.append(type(stranger.under_way))
        stranger.compute()
    assert kinds == [Build, StoreBlock, Load, Apply, Apply]


def test_loaded_snapshot_is_answered_with_the_digest_of_what_was_loaded(stranger: Scene) -> None:
    stranger.hear(WELCOME, DATA, snapshot(4), update(4))
    stranger.compute()
    stranger.compute()
    assert replies(Ready, stranger.compute()) == [Ready(4, digest_of(4))]


def test_steps_taken_are_counted(stranger: Scene) -> None:
    stranger.hear(WELCOME, DATA, snapshot(4), update(4), update(5))
    for _ in range(5):
        stranger.compute()
    assert stranger.worker.n_steps == 2


def test_start_is_followed_by_the_updates_and_answered_where_they_end(stranger: Scene) -> None:
    stranger.hear(WELCOME, start(4, 6), update(4), update(5), update(6))
    story: list[object] = []
    while stranger.under_way is not None:
        story.append(type(stranger.under_way))
        story += replies(Ready, stranger.compute())
    assert story == [Build, Begin, Apply, Apply, Ready(6, digest_of(6)), Apply]
    assert stranger.worker.n_steps == 3


def test_start_of_a_run_that_begins_is_answered_at_once(stranger: Scene) -> None:
    stranger.hear(WELCOME, start(0, 0))
    stranger.compute()
    assert replies(Ready, stranger.compute()) == [Ready(0, digest_of(0))]


def test_weights_are_answered_once(stranger: Scene) -> None:
    stranger.hear(WELCOME, start(0, 2), update(0), update(1))
    assert len(replies(Ready, stranger.compute_all())) == 1
    stranger.hear(update(2), Resync("it drifted"), snapshot(3), update(3))
    assert replies(Ready, stranger.compute_all()) == [Ready(3, digest_of(3))]


def test_what_is_still_held_is_said_with_the_proof() -> None:
    held = Held(6, digest_of(6))
    worker = Worker(name="Ada", threads=1, credentials=ADA)
    worker.start(nonce=NONCE, held=held)
    (proof,) = replies(Proof, worker.received(CHALLENGE, 0.0))
    assert (proof.held_step, proof.held_digest) == (held.step, held.digest)
    stranger = Worker(name="Ada", threads=1, credentials=ADA)
    stranger.start(nonce=NONCE)
    assert replies(Proof, stranger.received(CHALLENGE, 0.0)) == [proof_of()]
