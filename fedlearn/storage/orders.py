"""Orders to a running server: small files in the run's folder, which the server looks for and answers beside them.

Only its owner may write the folder, so nobody else can give orders. A server drops the orders that an earlier one left
behind, since nobody waits for their answers any more.
"""

import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from fedlearn.storage.durable import PARTIAL_SUFFIX, StorageError, replace_file

MAX_BYTES = 4096
"""The longest file of an order or an answer that is read."""

MAX_TAKEN = 64
"""The most orders taken at a time; the others wait."""

_ORDER, _ANSWER, _REFUSED = ".order", ".answer", ".refused"

Text = Annotated[str, Meta(min_length=1, max_length=256, pattern=r"\A[^\x00-\x1f\x7f-\x9f]*\Z")]
"""Text that may be shown on terminals, which obey control characters."""


class _Given(msgspec.Struct, frozen=True, tag_field="order", forbid_unknown_fields=True):
    by: Text
    """Name of the person or program that gives the order, as the server's terminal shows it."""


class Pause(_Given, frozen=True, tag="pause"):
    """Open no step after the present one."""


class GoOn(_Given, frozen=True, tag="go-on"):
    """Open steps again."""


class WriteCheckpoint(_Given, frozen=True, tag="checkpoint"):
    """Write a checkpoint now."""


class SendAway(_Given, frozen=True, tag="send-away"):
    """Send a volunteer away, and do not admit it again until the server ends."""

    who: Text
    """The volunteer's name, or the first digits of its identity."""


class Set(_Given, frozen=True, tag="set"):
    """Go on with another value of a setting."""

    key: Text
    value: Annotated[str, Meta(max_length=256)]
    """The value as it is written behind a flag."""


class Finish(_Given, frozen=True, tag="finish"):
    """End after the open step, as if the run had been given no more steps than these, or after some more."""

    steps: Annotated[int, Meta(ge=0)] | None = None
    """Further steps in which the learning rate falls to 0; None: as many as suit the run."""


class Stop(_Given, frozen=True, tag="stop"):
    """End as Ctrl-C would."""


Order = Pause | GoOn | WriteCheckpoint | SendAway | Set | Finish | Stop


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The outcome of an order."""

    is_done: bool
    text: Annotated[str, Meta(max_length=2000)]


class OrderFile(msgspec.Struct, frozen=True):
    """The file of an order."""

    folder: Path
    name: str

    @property
    def order(self) -> Path:
        return self.folder / f"{self.name}{_ORDER}"

    @property
    def answer(self) -> Path:
        return self.folder / f"{self.name}{_ANSWER}"


def give(folder: Path, order: Order) -> OrderFile:
    """Gives an order by writing a file where the server finds it.

    Raises:
        ValueError: the order has a text that no server takes.
        StorageError: the folder cannot be written.
    """
    payload = msgspec.json.encode(order)
    msgspec.json.decode(payload, type=Order)  # msgspec checks texts only when it decodes
    _make(folder)
    file = OrderFile(folder, f"{time.time_ns():020d}-{secrets.token_hex(8)}")
    replace_file(file.order, payload)
    return file


def is_taken(file: OrderFile) -> bool:
    """Whether the server has taken the order."""
    return not file.order.exists()


def answer_to(file: OrderFile) -> Answer | None:
    """The server's answer; None until it is there."""
    try:
        return msgspec.json.decode(_content(file.answer), type=Answer)
    except (OSError, ValueError):
        return None


def withdraw(file: OrderFile) -> None:
    """Removes an order, if it was not taken, and its answer."""
    with suppress(OSError):
        file.order.unlink(missing_ok=True)
        file.answer.unlink(missing_ok=True)


def take(folder: Path) -> tuple[list[tuple[OrderFile, Order]], list[str]]:
    """Takes orders, as a server: the orders in turn, each given once, and a text about each file that is no order.

    Such files are set aside under another name. A folder that cannot be read has no orders.
    """
    taken: list[tuple[OrderFile, Order]] = []
    problems: list[str] = []
    for path in list(_entries(folder, _ORDER))[:MAX_TAKEN]:
        try:
            order = msgspec.json.decode(_content(path), type=Order)
            path.unlink()
        except FileNotFoundError:
            continue  # withdrawn meanwhile
        except (OSError, ValueError, RecursionError) as error:
            problems.append(f"{path}: expected an order: {error}; it was set aside")
            try:
                path.replace(path.with_suffix(_REFUSED))
            except OSError:
                problems.pop()  # the file stays, and would be reported every second
            continue
        taken.append((OrderFile(folder, path.stem), order))
    return taken, problems


def reply(file: OrderFile, answer: Answer) -> None:
    """Writes the answer to an order, as a server.

    Raises:
        StorageError: the disk refuses.
    """
    replace_file(file.answer, msgspec.json.encode(answer))


def clear(folder: Path) -> None:
    """Makes the folder and removes old files from it, as a server.

    Raises:
        StorageError: the folder cannot be made.
    """
    _make(folder)
    for suffix in (_ORDER, _ANSWER, PARTIAL_SUFFIX):
        for path in _entries(folder, suffix):
            with suppress(OSError):
                path.unlink()


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"{folder}: expected a folder for orders that can be made: {error.strerror}; check the permissions"
        ) from error


def _entries(folder: Path, suffix: str) -> Iterator[Path]:
    """The files with this suffix, in the order in which they were given."""
    try:
        yield from sorted(path for path in folder.iterdir() if path.suffix == suffix)
    except OSError:
        return


def _content(path: Path) -> bytes:
    """The content of a plain file that is not too long.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no plain file, or too long.
    """
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
        raise ValueError(f"a file of at most {MAX_BYTES} bytes")
    return path.read_bytes()
