"""`fedlearn join --hub`: asks a hub for work, and is an ordinary volunteer of whichever server the hub names."""

import math
import queue
import random
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import final

import msgspec

from fedlearn.client.hub_line import AskedVerb, HubAwayError, HubError, HubLine, Work
from fedlearn.client.verbs import VerbError, Verbs
from fedlearn.system.children import NO_ANSWER
from fedlearn.system.signals import stop_signals_call
from fedlearn.system.waiting import WaitingProcess
from fedlearn.terminal import Terminal, printable

RETRY_S = 1.0
LONGEST_RETRY_S = 30.0
LOOK_S = 0.1
"""Seconds between two looks at a volunteer's process."""

PARTING_S = 2.0
"""Seconds for a volunteer to leave, and then for the request that tells the hub."""

NOT_FOUND = 404

SHARE_S = 1.0
"""Seconds between two messages with lines of the log."""

MAX_LINE, MAX_LINES = 1000, 100
"""The most characters of a line, and lines of a message."""

Arguments = Callable[[str], Sequence[str]]
"""The arguments of a volunteer for the server at an address."""

Prepare = Callable[[], WaitingProcess]
"""Starts the process of a volunteer that is not told its arguments yet."""

Registered = int
"""The number of the device that was registered."""


@final
class HubWorker:
    """One registration after the other, and a volunteer's process for each server.

    While the device has no work the next volunteer's process is there already, and imports what it will need.
    """

    def __init__(
        self,
        line: HubLine,
        *,
        name: str,
        job_id: int | None,
        port: int = 0,
        arguments: Arguments,
        prepare: Prepare,
        terminal: Terminal,
        verbs: Verbs | None = None,
        shares_log: bool = False,
        give_up_s: float = math.inf,
    ) -> None:
        """A device that shares its log prints its volunteers' lines, and sends them to the hub; `prepare` gives pipes
        of what they say then. `port` is the number that it wants of the hub; 0: any. It leaves when no hub has
        answered for `give_up_s`."""
        self._line, self._name, self._job_id, self._port, self._arguments = line, name, job_id, port, arguments
        self._prepare, self._terminal, self._verbs = prepare, terminal, verbs
        self._calls: queue.Queue[AskedVerb] = queue.Queue()
        self._shares_log, self._give_up_s = shares_log, give_up_s
        self._said: queue.Queue[str] = queue.Queue()
        # No SimpleQueue: in CPython 3.11 a signal as `get` times out makes it wait for ever.
        self._answers: queue.Queue[Work | HubError | HubAwayError | Registered] = queue.Queue()
        self._number: int | None = None
        self._server = ""
        """The server that the hub named last."""
        self._volunteer: WaitingProcess | None = None
        self._next: WaitingProcess | None = None
        """The process of the next volunteer, which waits; both end with this process, however that ends."""
        self._begins = math.inf
        """Time at which the volunteer is started."""
        self._silence, self._silent_since, self._was_answered = "", math.inf, False
        """Why no hub answers now, which is said once; since when; and whether one ever did."""
        self._pause_s = RETRY_S
        self._leaves = threading.Event()

    def run(self) -> int:
        """Works until its job has ended or the person wants the machine back; gives the exit code."""
        with stop_signals_call(lambda _: self._leaves.set()):
            # A daemon: it may be waiting for an answer when the process ends.
            threading.Thread(target=self._ask, daemon=True).start()
            threading.Thread(target=self._answer_calls, daemon=True).start()
            if self._shares_log:
                threading.Thread(target=self._share_log, daemon=True).start()
            try:
                return self._work()
            finally:
                self._part()

    def _work(self) -> int:
        while not self._leaves.is_set():
            self._look(time.monotonic())
            try:
                answer = self._answers.get(timeout=LOOK_S)
            except queue.Empty:
                continue
            if not isinstance(answer, HubAwayError):
                self._silence, self._silent_since, self._was_answered = "", math.inf, True
            match answer:
                case HubError():
                    self._terminal.end(f"refused: {answer}")
                    return 1
                case HubAwayError():
                    now = time.monotonic()
                    self._silent_since = min(self._silent_since, now)
                    if now - self._silent_since >= self._give_up_s:
                        self._terminal.end(f"{answer}; gave up after {self._give_up_s:.0f} s without an answer")
                        return 0 if self._was_answered else NO_ANSWER
                    self._tell_silence(str(answer))
                case Work(state="leave"):
                    self._wait_for_volunteer()
                    self._terminal.end(f"job {answer.job_id} has ended")
                    return 0
                case Work():
                    self._turn_to(answer)
                case number:
                    self._ready()
                    self._terminal.say(f"registered as device {number}; it works when the hub has work")
        return 0

    def _tell_silence(self, why: str) -> None:
        if why != self._silence:
            self._silence = why
            self._terminal.warn(f"{why}; asking again until one answers; see whether `fedlearn hub` runs there")

    def _turn_to(self, work: Work) -> None:
        """Joins the server that the hub names, and leaves the one that it names no more."""
        if work.server == self._server:
            return
        self._stop_volunteer()
        self._server, self._pause_s = work.server, RETRY_S
        self._begins = time.monotonic() if work.server else math.inf
        if work.server:
            self._terminal.say(f"job {work.job_id}: joining {work.server}")
        else:
            self._ready()

    def _ready(self) -> WaitingProcess:
        """Has a process wait for the next server."""
        if self._next is None or self._next.process.poll() is not None:
            self._end(self._next)
            self._next = self._prepare()
        return self._next

    def _look(self, now: float) -> None:
        """Starts a volunteer whose time has come; one that ended is started again if the hub still names its server."""
        if self._volunteer is not None and self._volunteer.process.poll() is not None:
            self._end(self._volunteer)
            self._volunteer = None
            self._begins = now + self._pause_s * random.uniform(0.5, 1.5)
            self._pause_s = min(2 * self._pause_s, LONGEST_RETRY_S)
        if self._volunteer is None and now >= self._begins:
            self._volunteer, self._next = self._ready(), None
            if self._shares_log:
                threading.Thread(target=self._listen, args=(self._volunteer,), daemon=True).start()
            self._volunteer.begin(self._arguments(self._server))

    def _ask(self) -> None:
        """Asks the hub for work, again and again, on a thread of its own."""
        retry_s = RETRY_S
        while not self._leaves.is_set():
            try:
                if self._number is None:
                    verbs = self._verbs.names() if self._verbs is not None else ()
                    self._number = self._line.register(self._name, self._job_id, verbs, self._port)
                    self._answers.put(self._number)
                work = self._line.work(self._number, has=self._server)
                for call in work.calls:
                    self._calls.put(call)
                self._answers.put(work)
                retry_s = RETRY_S
                # Another thread does what it says, and the next request tells what that has done.
                self._leaves.wait(2 * LOOK_S)
            except HubAwayError as error:
                self._answers.put(error)
                self._leaves.wait(retry_s * random.uniform(0.5, 1.5))
                retry_s = min(2 * retry_s, LONGEST_RETRY_S)
            except HubError as error:
                if error.status != NOT_FOUND or self._number is None:
                    self._answers.put(error)
                    return
                self._number = None  # the hub was started again, and knows nobody

    def _answer_calls(self) -> None:
        """Calls the verbs that the hub asks for, one after another, on a thread of its own."""
        while (call := self._calls.get()) is not None:
            self._terminal.say(f"the hub calls {call.verb}")
            code: int | None = None
            try:
                if self._verbs is None:
                    raise VerbError("verb: expected none, since this device's owner offers none with --verbs")
                code, output = msgspec.structs.astuple(self._verbs.call(call.verb, call.arguments))
            except (VerbError, OSError) as error:
                output = str(error)
            if self._number is not None:
                with suppress(HubError, HubAwayError):  # whoever asked sees that there is no answer
                    self._line.answer(self._number, call.call_id, code=code, output=output)

    def _listen(self, volunteer: WaitingProcess) -> None:
        """Shows what a volunteer prints, and keeps it for the hub."""
        assert volunteer.process.stdout is not None, "a volunteer whose log is shared has a pipe"
        with volunteer.process.stdout as lines:
            for line in lines:
                text = printable(line.decode(errors="replace").rstrip())
                self._terminal.say(text)
                self._said.put(text[:MAX_LINE])

    def _share_log(self) -> None:
        """Sends lines to the hub as they come, those of a second together."""
        while not self._leaves.wait(SHARE_S):
            self._send_lines()

    def _send_lines(self) -> None:
        lines: list[str] = []
        while len(lines) < MAX_LINES and not self._said.empty():
            lines.append(self._said.get())
        if lines and (number := self._number) is not None:
            with suppress(HubError, HubAwayError):  # they stand in this terminal, too
                self._line.say(number, lines)

    def _wait_for_volunteer(self) -> None:
        """Waits for a volunteer whose server has told it that the run is over."""
        if self._volunteer is not None:
            with suppress(subprocess.TimeoutExpired):
                self._volunteer.process.wait(timeout=PARTING_S)
            self._stop_volunteer()

    def _stop_volunteer(self) -> None:
        volunteer, self._volunteer = self._volunteer, None
        self._end(volunteer)

    def _end(self, ended: WaitingProcess | None) -> None:
        if ended is not None:
            ended.stop(patience_s=PARTING_S)

    def _part(self) -> None:
        """Leaves the server and the hub."""
        self._leaves.set()
        self._stop_volunteer()
        self._end(self._next)
        if self._verbs is not None:
            self._verbs.stop()
        self._send_lines()
        if self._number is not None:
            try:
                self._line.unregister(self._number, timeout_s=PARTING_S)
            except (HubError, HubAwayError):
                return  # the hub forgets whoever is silent
