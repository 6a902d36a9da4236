"""The kind `graph`, for models that arrive as data, so that a volunteer needs no file of the task."""

from collections.abc import Sequence
from typing import final

from fedlearn.config import RunConfig
from fedlearn.tasks.invitation import Invitation
from fedlearn.tasks.kind import DataFolder, Kind, Measure, Prepared
from fedlearn.tasks.limits import UNBOUNDED
from fedlearn.tasks.objective import Objective
from fedlearn.tasks.parts.objective import PartObjective
from fedlearn.tasks.task import Device
from fedlearn.tasks.torch_graph.sharing import received
from fedlearn.tasks.user.named_task import NamedTask, check_identity
from fedlearn.tasks.user.task_objective import TaskObjective
from fedlearn.tasks.user.task_options import TaskOptions
from fedlearn.text.source import Progress


@final
class GraphKind(Kind):
    """A kind that can only be joined; its runs begin as those of another kind."""

    name = "graph"
    options = TaskOptions

    def start(
        self,
        config: RunConfig,
        task: NamedTask | None,
        *,
        folder: DataFolder,
        measure: Measure,
        progress: Progress,
    ) -> Prepared:
        del config, task, folder, measure, progress
        raise ValueError("task: expected a task, got graph, which is only the form in which a task travels")

    def reopen(self, config: RunConfig, task: NamedTask | None, *, folder: DataFolder) -> Prepared:
        del config, task, folder
        raise ValueError("task: expected a kind of task, got graph, which is only the form in which a task travels")

    def join(
        self, invitation: Invitation, task: NamedTask | None, *, device: Device, max_bytes: int = UNBOUNDED
    ) -> Objective:
        if task is not None:  # it is run as a graph all the same, as by all others
            task.task.draw_weights(invitation.seed)
            check_identity(task.identity, invitation.identity)
        try:
            return TaskObjective(received(invitation.attachment, max_bytes), seed=invitation.seed, device=device)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ValueError(
                "task: expected PyTorch, since this run's model travels as a graph; pip install 'fedlearn[torch]'"
            ) from error

    def part(
        self,
        invitation: Invitation,
        cuts: Sequence[int],
        place: int,
        *,
        shards: int = 1,
        device: Device,
        max_bytes: int = UNBOUNDED,
    ) -> PartObjective:
        from fedlearn.tasks.torch_graph.part import GraphPart

        seed, attachment = invitation.seed, invitation.attachment
        return GraphPart(attachment, cuts, place, shards=shards, seed=seed, device=device, max_bytes=max_bytes)


KIND = GraphKind()
