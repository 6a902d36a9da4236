"""The bodies of requests to the hub, with the ranges of all fields."""

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from fedlearn.graphs.planning.planner import MAX_MACHINES
from fedlearn.tasks.parts.activations import ActivationCodec

MAX_LAYERS = 16
MAX_EPOCHS = 100_000
OF_BITS: dict[int, ActivationCodec] = {4: "int4-delta", 8: "int8-delta", 16: "float16", 32: "float32"}
"""Codecs by the number of bits."""

Name = Annotated[str, Meta(min_length=1, max_length=512)]
Size = Annotated[int, Meta(ge=1, le=65536)]
Positive = Annotated[float, Meta(gt=0, le=1000)]

BodyType = TypeVar("BodyType", bound=msgspec.Struct | dict[str, Any])


class RefusedError(Exception):
    """Raised for a request that can't be fulfilled, with the status of the answer, and a sentence for the client."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The model to train: layers by their sizes, a small transformer, or a task in a file of the hub's tasks folder."""

    type: Literal["", "mlp", "transformer", "task"] = ""
    layer_sizes: Annotated[tuple[Size, ...], Meta(max_length=MAX_LAYERS + 1)] = ()
    context: Annotated[int, Meta(ge=2, le=1024)] = 32
    width: Annotated[int, Meta(ge=2, le=1024)] = 64
    n_layers: Annotated[int, Meta(ge=1, le=MAX_LAYERS)] = 4
    n_heads: Annotated[int, Meta(ge=1, le=64)] = 4
    task: Annotated[str, Meta(max_length=512)] = ""
    """The task as FILE.py:NAME."""

    @property
    def kind(self) -> Literal["mlp", "transformer", "task"]:
        """The type of the model, which may follow from the sizes of layers."""
        return self.type or "mlp"

    @property
    def usual_epochs(self) -> int:
        """Passes over the data where a request names no number: of a text, which has many windows, fewer."""
        return 3 if self.kind == "transformer" else 10

    @property
    def max_devices(self) -> int:
        """The most devices that can hold it between them: one for each layer, or for each piece of a transformer that
        its planner knows."""
        pieces = {"mlp": len(self.layer_sizes) - 1, "transformer": 4 + 6 * self.n_layers, "task": MAX_MACHINES}
        return min(pieces[self.kind], MAX_MACHINES)


class Normalize(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Scaling of pixels from 0 to 1: the mean is subtracted, and the rest is divided by the deviation."""

    mean: Annotated[tuple[float, ...], Meta(min_length=1, max_length=4)]
    """A number for all pixels, or for those of each channel."""
    std: Annotated[tuple[Positive, ...], Meta(min_length=1, max_length=4)]


class DatasetConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The data to train on."""

    name: Annotated[str, Meta(max_length=64, pattern="^[A-Za-z0-9_-]*\\Z")] = ""
    """The name that torchvision gives a collection of images, such as MNIST or CIFAR10."""
    args: dict[str, str | int | float | bool | None] = {}
    """Arguments of torchvision's collection; the hub decides all but which images it has."""
    path: Annotated[str, Meta(max_length=512)] = ""
    """The folder within the hub's data folder that has the files of the collection, or an npz file there."""
    url: Annotated[str, Meta(max_length=512)] = ""
    """The address on the web of the folder that has them, or of an npz file."""
    source: Annotated[str, Meta(max_length=512)] = ""
    """The name of a text within the hub's data folder."""
    batch_size: Size = 0
    val_batch_size: Size = 0
    """A number that is accepted and changes nothing: the held-out data are measured in one piece."""
    normalize: Normalize | None = None


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for a job."""

    model_config: ModelConfig
    dataset_config: DatasetConfig = DatasetConfig()


class Training(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The duration of a job's training, and its learning rate."""

    epochs: Annotated[int, Meta(ge=1, le=MAX_EPOCHS)] | None = None
    """Passes over the data; None: as many as suit the model."""
    learning_rate: Positive | None = None
    """The learning rate; None: the one that suits the model."""
    wire: ActivationCodec | None = None
    """The codec of activations between devices that share a model; None: as `quantization_bits` says."""
    quantization_bits: Literal[4, 8, 16, 32] = 32
    """Bits of each number of an activation; 8 is int8-delta."""

    @property
    def codec(self) -> ActivationCodec:
        """The codec of activations."""
        return self.wire or OF_BITS[self.quantization_bits]


class Registration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The registration of a device."""

    ip: Annotated[str, Meta(max_length=64)] = ""
    """The address that the device gives as its own; nobody connects to it."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """The number that the device wants; 0: any."""
    job_id: Annotated[int, Meta(ge=1)] | None = None
    """The job that the device works for, which text may name, too; None: any job in training."""
    name: Annotated[str, Meta(max_length=256)] = ""
    """The device's name as a volunteer."""
    verbs: Annotated[tuple[Annotated[str, Meta(pattern="^[a-z][a-z0-9_-]{0,63}\\Z")], ...], Meta(max_length=64)] = ()
    """The verbs of its owner's that may be called."""


class VerbAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a device's verb came to."""

    code: Annotated[int, Meta(ge=-255, le=255)] | None = None
    """Its exit code; None: it was refused or ended, as the output says."""
    output: Annotated[str, Meta(max_length=65536)] = ""
    """What it printed."""


class SaidLines(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a device has said."""

    lines: Annotated[tuple[Annotated[str, Meta(max_length=1000)], ...], Meta(max_length=100)]


class Initialization(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to give a job its devices."""

    split: bool = False
    """Whether devices hold one model between them, each some of its layers, in place of a whole one each."""
    devices: Annotated[tuple[Annotated[int, Meta(ge=1)], ...], Meta(max_length=10_000)] | None = None
    """The numbers of the devices that are given to the job; None: all that are idle."""


class Image(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An image to classify."""

    pixels: Annotated[tuple[Annotated[float, Meta(ge=0, le=1)], ...], Meta(min_length=1, max_length=65536)]
    """Its pixels from 0, the ground, to 1, row by row."""


def as_number(text: str, what: str) -> int:
    """The number of a job or a device.

    Raises:
        RefusedError: the text is none.
    """
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise RefusedError(400, f"{what}: expected a number, got {text[:40]!r}")
    return int(text)


def read_registration(body: bytes) -> Registration:
    """A registration, whose job may be named by text.

    Raises:
        RefusedError: a key, which the message names, is wrong.
    """
    given = read_body(body, dict[str, Any])
    if isinstance(job := given.get("job_id"), str):
        given["job_id"] = as_number(job, "job_id")
    return read_body(msgspec.json.encode(given), Registration)


def read_body(body: bytes, expected: type[BodyType]) -> BodyType:
    """The content of a body; an empty body has the defaults.

    Raises:
        RefusedError: a key, which the message names, is wrong.
    """
    try:
        found: BodyType = msgspec.json.decode(body or b"{}", type=expected)
        return found
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(400, f"body: {str(error)[0].lower()}{str(error)[1:]}") from error


def written(body: msgspec.Struct) -> dict[str, Any]:
    """The body as JSON, without the fields that were not given."""
    given: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(body))
    return given
