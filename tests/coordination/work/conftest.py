import pytest

from tests.coordination.work.scene import DATA, WELCOME, Scene, snapshot
from tests.identities import CHALLENGE


@pytest.fixture
def stranger() -> Scene:
    """One that is challenged, and answers."""
    scene = Scene()
    scene.hear(CHALLENGE)
    return scene


@pytest.fixture
def scene() -> Scene:
    """A worker that holds the weights of step 4."""
    scene = Scene()
    scene.hear(CHALLENGE, WELCOME, DATA, snapshot(4))
    scene.compute_all()
    return scene
