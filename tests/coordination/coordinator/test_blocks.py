from fedlearn.coordination.effects import Send, SendBlock
from fedlearn.es.update import Update
from fedlearn.tasks.blocks import NO_BLOCK
from fedlearn.wire.messages import Assignment
from tests.coordination.coordinator.scene import BLOCKS, GROUP, WRONG_DIGEST, Scene, of, sent


def test_block_is_sent_before_it_is_needed_and_once_while_it_is_held() -> None:
    scene = Scene(steps_per_block=2)
    scene.join(1)
    for _ in range(8):
        scene.report(1)
        scene.applied()
    story: list[object] = []
    for effect in scene.effects:
        match effect:
            case SendBlock(1, block):
                story.append(block)
            case Send(1, Assignment(step=step, block=block)):
                story.append((step, block))
            case _:
                pass
    a, b, c = BLOCKS
    assert story == [a, (0, a), (1, a), b, (2, b), (3, b), c, (4, c), (5, c), a, (6, a), (7, a), b, (8, b)]


def test_two_blocks_in_turn_are_sent_once_each() -> None:
    scene = Scene(steps_per_block=1, blocks=BLOCKS[:2])
    scene.join(1)
    for _ in range(6):
        scene.report(1)
        scene.applied()
    assert [effect.block for effect in of(SendBlock, scene.effects)] == list(BLOCKS[:2])


def test_joiner_has_the_block_of_every_update_that_follows_its_weights() -> None:
    scene = Scene(steps_per_block=1)
    scene.join(1)
    scene.greet(2)
    for _ in range(5):
        scene.report(1)
        scene.applied()
    # That its block is there with each Update is seen to by Scene.
    assert [update.step for update in sent(Update, scene.effects, peer=2)] == list(range(5))


def test_drifted_volunteer_is_sent_its_block_anew(pair: Scene) -> None:
    effects = pair.report(1, GROUP, digest=WRONG_DIGEST)
    assert of(SendBlock, effects) == [SendBlock(1, BLOCKS[0])]


def test_run_without_data_sends_no_block() -> None:
    scene = Scene(blocks=(NO_BLOCK,), steps_per_block=1)
    scene.join(1)
    scene.greet(2)
    for _ in range(3):
        scene.report(1)
        scene.applied()
    scene.drift(1)
    assert of(SendBlock, scene.effects) == []
    assert {assignment.block for assignment in sent(Assignment, scene.effects)} == {NO_BLOCK}
    assert [update.block for update in scene.journal] == [NO_BLOCK] * 3
    assert [update.step for update in sent(Update, scene.effects, peer=2)] == [0, 1, 2]
