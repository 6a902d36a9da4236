import msgspec
import numpy as np
import pytest

from fedlearn.tasks.invitation import Invitation
from fedlearn.tasks.user.invitations import invitation_of, joined
from fedlearn.tasks.user.named_task import NamedTask
from tests.tasks.counting import CountingTask


def named(fill: float = 1.0) -> NamedTask:
    tensors = {"matrix": np.full((4, 3), fill, dtype=np.float32)}
    return NamedTask(CountingTask(tensors, {"x": np.arange(10.0)}, batch_size=3), "/here/count.py:task", bytes(16))


def invitation(batch_size: int = 5) -> Invitation:
    return invitation_of("counting", seed=7, batch_size=batch_size, identity=named().identity, attachment=b"more")


def test_whoever_joins_is_told_how_many_rows_a_group_has() -> None:
    sent = invitation()
    assert sent == Invitation("counting", 7, {"batch_size": 5}, named().identity, b"more")
    objective = joined(named(), sent, device="cpu")
    assert (objective.batch_size, objective.work_per_member, objective.task.batch_size) == (5, 5, 3)


def test_a_copy_of_the_task_must_be_the_servers() -> None:
    other = msgspec.structs.replace(named(), source=b"x" * 16)
    with pytest.raises(ValueError, match="task: expected the server's source, got other ones"):
        joined(other, invitation(), device="cpu")


@pytest.mark.parametrize("options", [{}, {"batch_size": 0}, {"batch_size": 2**31}, {"batch_size": 5, "more": 1}])
def test_options_of_another_version_are_refused(options: dict[str, int]) -> None:
    sent = msgspec.structs.replace(invitation(), options=options)
    with pytest.raises(ValueError, match=r"options: .*; is this version of fedlearn older than the server's\?"):
        joined(named(), sent, device="cpu")
