"""A kind of task: how runs of it are prepared on a server, and joined on a volunteer's machine."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, BinaryIO, Protocol, runtime_checkable

import msgspec
from numpy.typing import NDArray

from fedlearn.config import RunConfig
from fedlearn.es.layout import Float32Array
from fedlearn.es.strategy import Strategy
from fedlearn.tasks.blocks import Columns, NamedBlocks, block_name
from fedlearn.tasks.invitation import Invitation
from fedlearn.tasks.limits import UNBOUNDED
from fedlearn.tasks.objective import Objective, PartObjective
from fedlearn.tasks.reason import Reasons
from fedlearn.tasks.task import Device
from fedlearn.tasks.user.named_task import NamedTask
from fedlearn.text.language_model import LanguageModel
from fedlearn.text.source import Progress, Source, Texts
from fedlearn.text.tokenizers.tokenizer import Tokenizer


class DataFolder(Protocol):
    """Where a kind keeps what it reads again when the run goes on, and what its user's data come from.

    Raises:
        OSError: a file can't be read or written.
        ValueError: a file holds no array.
    """

    @property
    def free_bytes(self) -> int:
        """Bytes that still fit into the folder."""

    def read(self, name: str) -> bytes:
        """The content of a file."""

    def view(self, name: str) -> NDArray[Any]:
        """The array in a `.npy` file, memory-mapped: only the parts that are read take memory."""

    def create(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A file to write, which is on the disk at the end."""

    def source(self, names: Sequence[str], encoding: str, progress: Progress) -> Source:
        """The texts that a user names.

        Raises:
            ValueError: a name stands for no text, or Python has no such encoding.
        """


Measure = Callable[[Objective, Strategy, Columns], float]
"""Gives members per second of this machine."""


class Examiner(Protocol):
    """Looks at a run for people: none of it changes a weight."""

    def show(self, loss: float) -> tuple[str, float]:
        """The mean loss of members in its usual unit: its name and its value."""

    def validate(self, weights: Float32Array, *, threads: int) -> dict[str, float]:
        """Named figures of unperturbed weights on held-out data; empty where there are none."""


@runtime_checkable
class WritesText(Protocol):
    """An examiner of models that write."""

    tokenizer: Tokenizer
    characters_per_token: float
    """Mean characters per token of the training text."""
    opening: str
    """A few words of the held-out text, to be gone on from."""

    def language_model(self, weights: Float32Array) -> LanguageModel:
        """The model with these weights, to be sampled and searched."""


@runtime_checkable
class ReadsText(Protocol):
    """An examiner of models that can be tried on another text."""

    def validate_on(self, weights: Float32Array, texts: Texts, *, threads: int) -> tuple[dict[str, float], str]:
        """Named figures of unperturbed weights on texts, and a note about the texts, if there is one.

        Raises:
            ValueError: the texts are too short.
        """


@runtime_checkable
class CountsText(Protocol):
    """An examiner that knows the losses of n-gram models on the data."""

    def baselines(self) -> dict[str, float]:
        """The losses of n-gram models on held-out data, by their names, in the unit of `show`."""


@runtime_checkable
class Exports(Protocol):
    """An examiner of models that can be exported for other programs. `about` is written into the files as metadata."""

    def state_dict(self, weights: Float32Array, about: Mapping[str, str]) -> bytes:
        """The `state_dict` of the PyTorch module, as safetensors."""

    def onnx(self, weights: Float32Array, about: Mapping[str, str]) -> bytes:
        """One step of the model as ONNX.

        Raises:
            ValueError: the model has no such form.
        """


class Prepared(msgspec.Struct, frozen=True, eq=False):
    """A run's task, ready to be trained."""

    config: RunConfig
    """The configuration, with a value for each key."""
    objective: Objective
    examiner: Examiner
    invitation: Invitation
    blocks: Sequence[Columns] = ()
    """The data in the order in which they are used; none for a task without data."""
    block_names: tuple[bytes, ...] = ()
    """Names of the blocks, if they are known without reading all data."""
    steps_per_block: int = 0
    """Steps between blocks; 0: only the first block is used."""
    entry: str = ""
    """FILE.py:NAME of the task, where the user brought one."""
    needs_task: bool = False
    """Whether volunteers have to name the task too, since its code does not travel."""
    is_start_shared: bool = False
    """Whether volunteers can make the weights that the run begins with."""
    files: Mapping[str, bytes] = MappingProxyType({})
    """For a new run: the files that `reopen` will read."""
    reasons: Reasons = ()
    """For a new run: the reason for each automatic choice."""
    members_per_s: float = 0.0
    """For a new run: the speed of all local volunteers together; 0 where it was not measured."""

    @property
    def named_blocks(self) -> Mapping[bytes, Columns]:
        """The blocks by name; without data one that is empty."""
        blocks = self.blocks or ({},)
        return NamedBlocks(self.block_names or tuple(map(block_name, blocks)), blocks)


@runtime_checkable
class PerturbsActivations(Protocol):
    """A kind whose trials may have their noise on activations in place of weights."""

    def wants_weights(self, config: RunConfig) -> str:
        """What in the configuration goes with noise on weights alone; empty where nothing does."""


@runtime_checkable
class Divides(Protocol):
    """A kind whose replicas several machines may hold between them."""

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
        """A part of the objective, of a model that is cut behind the pieces of these numbers.

        Its vocabulary is in so many `shards` before.

        Raises:
            ValueError: the model can't be cut there, or the part is too large.
        """


class Kind(Protocol):
    """A kind of task, as fedlearn uses it; registered by its name under the entry points `fedlearn.tasks`."""

    @property
    def name(self) -> str:
        """The name in Invitations, and in configurations if the kind needs no task of a user's."""

    @property
    def options(self) -> type[msgspec.Struct]:
        """The kind's own settings; their annotations hold ranges and help."""

    def start(
        self,
        config: RunConfig,
        task: NamedTask | None,
        *,
        folder: DataFolder,
        measure: Measure,
        progress: Progress,
    ) -> Prepared:
        """A new run's task, with a value for each setting that the configuration leaves open.

        `task` is what the user brought, None where the configuration names a kind alone. `measure` is called only
        where a choice depends on speed. What is too large for `Prepared.files` is written into the folder;
        `progress` is told how far that is.

        Raises:
            ConfigError: the task can't be trained with these settings.
        """

    def reopen(self, config: RunConfig, task: NamedTask | None, *, folder: DataFolder) -> Prepared:
        """The task of a run that was prepared before, in whose folder is what `Prepared.files` held.

        Without a task that needs one there is just enough to replay the run.

        Raises:
            ValueError: a file is damaged.
        """

    def join(
        self, invitation: Invitation, task: NamedTask | None, *, device: Device, max_bytes: int = UNBOUNDED
    ) -> Objective:
        """The objective on a volunteer's machine, which has `max_bytes` for all that the server names.

        Raises:
            GraphTooLargeError: this machine lacks the memory; it may hold a part.
            ValueError: something differs from the server's, or is too large; the message names it.
        """
