import pytest

from tests.coordination.coordinator.scene import HALF, Scene


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def pair() -> Scene:
    """Volunteers 1 and 2, each with half the members of step 1 as its lease."""
    scene = Scene()
    scene.join(1)
    scene.join(2)
    scene.now += 1.0
    scene.report(1)
    scene.applied()
    leases = {peer: (lease.step, lease.first_member, lease.quota) for peer, lease in scene.assignments.items()}
    assert leases == {1: (1, 0, HALF), 2: (1, HALF, HALF)}
    return scene
