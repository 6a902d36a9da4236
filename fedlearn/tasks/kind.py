"""A kind of task: how runs of it are prepared on a server, and joined on a volunteer's machine."""

from abc import ABC, abstractmethod
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
from fedlearn.tasks.film import Film
from fedlearn.tasks.invitation import Invitation
from fedlearn.tasks.limits import UNBOUNDED
from fedlearn.tasks.objective import Objective
from fedlearn.tasks.parts.objective import PartObjective
from fedlearn.tasks.reason import Reasons
from fedlearn.tasks.task import Device
from fedlearn.tasks.user.named_task import NamedTask
from fedlearn.text.language_model import LanguageModel
from fedlearn.text.source import Progress, Source, Texts
from fedlearn.text.tokenizers.tokenizer import Tokenizer


class DataFolder(Protocol):
    """The run's folder in which a kind keeps what it reads again on resuming, and the source of the user's data.

    Raises:
        OSError: a file can't be read or written.
        ValueError: a file holds no array.
    """

    @property
    def free_bytes(self) -> int:
        """Free space of the folder, in bytes."""

    def read(self, name: str) -> bytes:
        """The content of a file."""

    def view(self, name: str) -> NDArray[Any]:
        """The array in a `.npy` file, memory-mapped so that only the parts that are read take memory."""

    def create(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A file to write, which is on the disk once the context is left."""

    def source(self, names: Sequence[str], encoding: str, progress: Progress) -> Source:
        """The texts that a user names.

        Raises:
            ValueError: a name stands for no text, or Python has no such encoding.
        """


Measure = Callable[[Objective, Strategy, Columns], float]
"""A function that measures the members per second of this machine."""


class Examiner(ABC):
    """Measures a run for people, and changes no weight."""

    @abstractmethod
    def show(self, loss: float) -> tuple[str, float]:
        """The name and the value of the members' mean loss in its usual unit."""

    @abstractmethod
    def validate(self, weights: Float32Array, *, threads: int) -> dict[str, float]:
        """Named figures of unperturbed weights on held-out data; empty where there are none."""

    @abstractmethod
    def state_dict(self, weights: Float32Array, about: Mapping[str, str]) -> bytes:
        """The `state_dict` of the PyTorch module, as safetensors; `about` is written into the file as metadata."""

    def onnx(self, weights: Float32Array, about: Mapping[str, str]) -> bytes:  # noqa: ARG002
        """One step of the model as ONNX; `about` is written into the file as metadata.

        Raises:
            ValueError: the model can't be expressed in ONNX.
        """
        raise ValueError("onnx: expected the recurrent network, got another model; export safetensors")

    def film(self, weights: Float32Array) -> Film:  # noqa: ARG002
        """An episode of unperturbed weights, drawn.

        Raises:
            ValueError: there is nothing to draw.
        """
        raise ValueError("video: expected a policy, got a model that has no episodes; leave --video out")

    def texts(self, weights: Float32Array, prompts: Sequence[str]) -> list[tuple[str, str]]:  # noqa: ARG002
        """Prompts, held-out ones where none are given, each with what unperturbed weights write after it.

        Raises:
            ValueError: the model writes no texts.
        """
        raise ValueError("expected a model that writes text, got another; try eval, or --video")


class TextExaminer(Examiner):
    """An examiner of a model that reads and writes text."""

    tokenizer: Tokenizer
    characters_per_token: float
    """The mean number of characters per token of the training text."""
    opening: str
    """A few words of the held-out text, which samples continue."""

    @abstractmethod
    def language_model(self, weights: Float32Array) -> LanguageModel:
        """The model with these weights, to be sampled and searched."""

    @abstractmethod
    def validate_on(self, weights: Float32Array, texts: Texts, *, threads: int) -> tuple[dict[str, float], str]:
        """Named figures of unperturbed weights on texts, and a note about the texts, which may be empty.

        Raises:
            ValueError: the texts are too short.
        """

    @abstractmethod
    def baselines(self) -> dict[str, float]:
        """The losses of n-gram models on held-out data, by their names, in the unit of `show`."""


class Prepared(msgspec.Struct, frozen=True, eq=False):
    """A run's task, ready to be trained."""

    config: RunConfig
    """The configuration, which has a value for each key."""
    objective: Objective
    examiner: Examiner
    invitation: Invitation
    blocks: Sequence[Columns] = ()
    """The blocks of data in the order in which they are used; empty for a task without data."""
    block_names: tuple[bytes, ...] = ()
    """Names of the blocks, if they are known without reading all data; else empty."""
    steps_per_block: int = 0
    """Number of steps for which a block is used; 0 means that only the first block is used."""
    entry: str = ""
    """The task as FILE.py:NAME, where the user brought one; else empty."""
    needs_task: bool = False
    """True where volunteers must name the task too, because its code does not travel."""
    is_start_shared: bool = False
    """True where volunteers can make the initial weights by themselves."""
    files: Mapping[str, bytes] = MappingProxyType({})
    """The files that `reopen` will read, by name; only a new run has them."""
    reasons: Reasons = ()
    """The reason for each automatic choice; only a new run has them."""
    members_per_s: float = 0.0
    """Members per second of all local volunteers of a new run together; 0 if they were not measured."""

    @property
    def named_blocks(self) -> Mapping[bytes, Columns]:
        """The blocks by name; without data, one empty block."""
        blocks = self.blocks or ({},)
        return NamedBlocks(self.block_names or tuple(map(block_name, blocks)), blocks)


@runtime_checkable
class Divides(Protocol):
    """A kind whose replicas can be divided among several machines."""

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
        """A part of the objective, for a model that is cut behind the pieces with these numbers.

        The vocabulary is first cut into `shards` shards.

        Raises:
            ValueError: the model can't be cut there, or the part is too large.
        """


class Kind(ABC):
    """A kind of task, registered by its name under the entry points `fedlearn.tasks`."""

    name: str
    """The name of the kind in Invitations, and in configurations if the kind needs no task of a user's."""
    options: type[msgspec.Struct]
    """The struct of the kind's own settings, whose annotations hold ranges and help."""
    perturbs_activations: bool = False
    """Whether its trials may add noise to activations in place of weights."""
    may_write_texts: bool = False
    """Whether the models of some of its tasks write texts, which their examiners then give."""

    def wants_weights(self, config: RunConfig) -> str:  # noqa: ARG002
        """The settings of the configuration that require noise on weights; empty where there are none."""
        return ""

    @abstractmethod
    def start(
        self,
        config: RunConfig,
        task: NamedTask | None,
        *,
        folder: DataFolder,
        measure: Measure,
        progress: Progress,
    ) -> Prepared:
        """Prepares the task of a new run, with a value for each setting that the configuration leaves open.

        `task` is what the user brought, or None where the configuration names only a kind. `measure` is called only
        where a choice depends on speed. Data too large for `Prepared.files` are written into the folder, which is
        reported to `progress`.

        Raises:
            ConfigError: the task can't be trained with these settings.
        """

    @abstractmethod
    def reopen(self, config: RunConfig, task: NamedTask | None, *, folder: DataFolder) -> Prepared:
        """Prepares the task of an existing run, whose folder holds what `Prepared.files` held.

        If the kind needs a task and `task` is None, the result is just enough to replay the run.

        Raises:
            ValueError: a file is damaged.
        """

    @abstractmethod
    def join(
        self, invitation: Invitation, task: NamedTask | None, *, device: Device, max_bytes: int = UNBOUNDED
    ) -> Objective:
        """The objective on a volunteer's machine, which has `max_bytes` of memory for it.

        Raises:
            GraphTooLargeError: this machine lacks the memory, but may be able to hold a part.
            ValueError: something differs from the server's, or is too large; the message names it.
        """
