"""Losses that a service or a program computes, for `fedlearn.function` and `fedlearn.minimize`.

What is sent is JSON: the arrays by name as nested lists, an array without a name as "x", and the rows of data, if there
are any, as "rows". What comes back is JSON, too: a number, or an object whose "loss" is one.
"""

import json
import subprocess
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from threading import Lock
from typing import Any, final
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

import msgspec
import numpy as np

from fedlearn.net.address import is_loopback
from fedlearn.system.processes import communicate
from fedlearn.tasks.signatures import calling_line

PAUSE_S = 0.5
"""Seconds before the second attempt; each further pause is twice as long."""

MOST_FAILED_IN_A_ROW = 10
"""Evaluations that may fail one after another before it is no member's fault."""

MAX_ANSWER_BYTES = 2**20
"""The most bytes of an answer of a service; more are not read."""

SHOWN_CHARACTERS = 200
"""The most characters of an answer that an error repeats."""

SHOWN_BYTES = 4 * SHOWN_CHARACTERS
"""The most bytes of so many characters."""

_TRIED_AGAIN = (408, 425, 429, 500, 502, 503, 504)
"""Statuses of HTTP that may be others the next time."""


class EvaluationError(RuntimeError):
    """Raised where a service or a program gives no losses, and asking again is no use."""


class AttemptError(Exception):
    """Raised where one attempt came to nothing, and another may not."""


class Counts(msgspec.Struct, frozen=True):
    """What was asked of a black box so far."""

    evaluations: int = 0
    """Number of losses that were asked for."""
    repeated: int = 0
    """Number of attempts after the first ones."""
    failed: int = 0
    """Number of losses that no attempt gave."""


@final
class BlackBox:
    """A loss that is computed elsewhere; several threads may call it at the same time.

    A loss that no attempt gave is nan, so its member does not count, and a warning says why. It points at the line that
    made the black box, since a thread that evaluates has no line of whoever wrote that.
    """

    def __init__(self, attempt: Callable[[bytes], bytes], *, attempts: int) -> None:
        """`attempt` maps the JSON of the arrays to that of a loss, or raises an AttemptError."""
        if attempts < 1:
            raise ValueError(f"attempts: expected 1 or more, got {attempts}")
        self._attempt, self._attempts = attempt, attempts
        self._lock = Lock()
        self._failed_in_a_row = 0
        self._made_at = calling_line()
        self._warned = dict[str | tuple[str, type[Warning], int], int]()
        self.counts = Counts()

    def __call__(self, arrays: Any, rows: Mapping[str, Any] | None = None) -> float:  # noqa: ANN401 (array, or by name)
        """The loss of these arrays, on these rows of data.

        Raises:
            EvaluationError: no attempt gave one of the last losses, or the answer is no loss.
        """
        body = _encoded(arrays, rows)
        self._count(evaluations=1)
        for number in range(self._attempts):
            if number:
                time.sleep(PAUSE_S * 2 ** (number - 1))
                self._count(repeated=1)
            try:
                loss = _loss_in(self._attempt(body))
            except AttemptError as error:
                why = str(error)
            else:
                self._failed_in_a_row = 0
                return loss
        return self._give_up(why)

    def _give_up(self, why: str) -> float:
        self._count(failed=1)
        self._failed_in_a_row += 1
        if self._failed_in_a_row >= MOST_FAILED_IN_A_ROW:
            raise EvaluationError(f"{why}; {MOST_FAILED_IN_A_ROW} evaluations failed one after another: is it there?")
        warnings.warn_explicit(
            f"{why}; the loss does not count",
            RuntimeWarning,
            *self._made_at,
            registry=self._warned,
        )
        return float("nan")

    def _count(self, **more: int) -> None:
        with self._lock:
            now = {name: getattr(self.counts, name) + number for name, number in more.items()}
            self.counts = msgspec.structs.replace(self.counts, **now)


def http_service(
    url: str, *, timeout: float = 60.0, attempts: int = 3, headers: Mapping[str, str] | None = None
) -> BlackBox:
    """A loss that a service over HTTP computes: the arrays are posted to `url` as JSON, the answer is a number.

    An attempt is given up where nothing comes for `timeout` seconds, or not the whole answer. Another one follows a
    broken connection, a timeout, and the statuses 408, 425, 429, 500, 502, 503 and 504; other statuses from 400 on are
    an error at once. `headers` are sent along, such as a token.

    >>> loss = http_service("http://127.0.0.1:8000/simulate", timeout=600.0)

    Raises:
        ValueError: `url` is none of HTTP, or a number is out of its range.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"url: expected http://HOST:PORT/PATH or https://, got {url!r}")
    _check_timeout(timeout)
    # No proxy leads to this machine.
    opener = build_opener(*([ProxyHandler({})] if is_loopback(urlsplit(url).hostname or "") else []))
    asked = Request(url, method="POST", headers={"Content-Type": "application/json", **(headers or {})})

    def attempt(body: bytes) -> bytes:
        request = Request(asked.full_url, body, dict(asked.header_items()), method="POST")
        until = time.monotonic() + timeout
        try:
            with opener.open(request, timeout=timeout) as response:
                return _read(url, response, until=until)
        except HTTPError as error:
            why = f"{url}: answered {error.code} {error.reason}: {_shown(_beginning(error))}"
            raise (AttemptError if error.code in _TRIED_AGAIN else EvaluationError)(why) from error
        except (OSError, HTTPException) as error:
            raise AttemptError(f"{url}: {error or type(error).__name__}") from error

    return BlackBox(attempt, attempts=attempts)


def _read(url: str, response: HTTPResponse, *, until: float) -> bytes:
    """The whole answer of a service.

    Raises:
        AttemptError: it is cut short, or still comes after `until`, in seconds of a monotonic clock.
        EvaluationError: it has more than `MAX_ANSWER_BYTES`.
    """
    answer = b""
    while len(answer) <= MAX_ANSWER_BYTES and (more := response.read1(MAX_ANSWER_BYTES + 1 - len(answer))):
        answer += more
        if time.monotonic() > until:
            raise AttemptError(f"{url}: timed out in the middle of its answer")
    if len(answer) > MAX_ANSWER_BYTES:
        raise EvaluationError(
            f"{url}: expected an answer of at most {MAX_ANSWER_BYTES} bytes, got more, which begin with "
            f"{_shown(answer)!r}; answer with the loss alone"
        )
    if response.length:  # of what was announced, so much did not come
        raise AttemptError(f"{url}: the answer is cut short, with {response.length} bytes missing")
    return answer


def _beginning(error: HTTPError) -> bytes:
    """What a service says beside an error; nothing where the line breaks."""
    with suppress(OSError, HTTPException):
        return error.read(SHOWN_BYTES)
    return b""


def executable(arguments: Sequence[str], *, timeout: float = 600.0, attempts: int = 1) -> BlackBox:
    """A loss that a program computes: it reads the arrays as JSON, and the last line that it prints is a number.

    Each evaluation starts the program anew, without a shell. After `timeout` seconds it is killed with all that it
    started. An attempt fails by that, and by an exit code other than 0.

    >>> loss = executable(["./simulate", "--quiet"], timeout=60.0)

    Raises:
        ValueError: there is no program, or a number is out of its range.
    """
    if isinstance(arguments, str) or not arguments:
        raise ValueError(f'arguments: expected a list such as ["./simulate", "--quiet"], got {arguments!r}')
    _check_timeout(timeout)
    name = arguments[0]

    def attempt(body: bytes) -> bytes:
        try:
            process = subprocess.Popen(
                list(arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # so that all that it starts can be ended with it
            )
        except OSError as error:
            raise EvaluationError(f"{name}: it could not be started: {error}") from error
        try:
            printed, errors = communicate(process, body, timeout_s=timeout)
        except subprocess.TimeoutExpired as error:
            raise AttemptError(f"{name}: it was not done after {timeout:g} s") from error
        if process.returncode:
            raise AttemptError(f"{name}: it ended with code {process.returncode}: {_shown(errors)}")
        return printed.strip().rpartition(b"\n")[2]

    return BlackBox(attempt, attempts=attempts)


def _check_timeout(timeout: float) -> None:
    if not timeout > 0:
        raise ValueError(f"timeout: expected seconds above 0, got {timeout}")


def _encoded(arrays: Any, rows: Mapping[str, Any] | None) -> bytes:  # noqa: ANN401
    named = dict(arrays) if isinstance(arrays, Mapping) else {"x": arrays}
    if rows is not None:
        if "rows" in named:
            raise ValueError("arrays: expected another name than rows, which is that of the rows of data")
        named["rows"] = rows
    return msgspec.json.encode(named, enc_hook=_as_list)


def _as_list(value: object) -> object:
    return np.asarray(value).tolist()


def _loss_in(answer: bytes) -> float:
    """The loss in an answer.

    Raises:
        EvaluationError: the answer is something else.
    """
    try:
        # Python's own decoder knows NaN and Infinity, which its encoder writes; numbers of any length are floats.
        found = json.loads(answer, parse_int=float)
        loss = found.get("loss") if isinstance(found, dict) else found
        if isinstance(loss, float):
            return loss
    except (ValueError, RecursionError):
        with suppress(ValueError):
            return float(answer)  # nan and inf
    raise EvaluationError(f'loss: expected JSON such as 0.5 or {{"loss": 0.5}}, got {_shown(answer)!r}')


def _shown(answer: bytes) -> str:
    return answer[:SHOWN_CHARACTERS].decode(errors="replace").strip()
