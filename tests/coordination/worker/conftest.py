import pytest

from tests.coordination.worker.scene import DATA, WELCOME, Scene, snapshot


@pytest.fixture
def stranger() -> Scene:
    return Scene()


@pytest.fixture
def scene() -> Scene:
    """A worker that holds the weights of step 4."""
    scene = Scene()
    scene.hear(WELCOME, DATA, snapshot(4))
    scene.compute_all()
    return scene
