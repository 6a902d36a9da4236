"""Reads each run once for all its viewers, and sends them the changes."""

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, final

import msgspec

from fedlearn.board.history import History
from fedlearn.board.marks import birth_of
from fedlearn.board.public import describe, status_of, summarize
from fedlearn.storage.durable import StorageError
from fedlearn.storage.runs import RunFolder, list_runs
from fedlearn.system.files import Mark, mark_of

INTERVAL_S = 1.0
VIEWER_S = 0.01
"""Seconds that each viewer adds to the time between two looks, so that a crowd takes no more of the machine than a
hundred do."""

LIST_EVERY = 3
"""Number of looks for each look at the list of runs: there may be hundreds of runs."""

KEEP_ALIVE_S = 15.0
"""Seconds between lines that keep proxies from closing a stream, and find viewers that are gone."""

MAX_WAITING = 16
"""The most events that wait for a viewer; with more it is disconnected, and comes back by itself."""

MAX_HISTORIES = 16
"""Runs that are kept in memory; those that were looked at longest ago are forgotten."""

MAX_LISTED = 500
"""The most runs of the list, the newest ones."""

Event = bytes
Viewer = asyncio.Queue[Event | None]


def event(name: str, content: object) -> Event:
    """An event as it travels in a stream of server-sent events."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(content))


@final
class RunWatcher:
    """The histories of the runs under one root, updated while there are viewers."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._histories: OrderedDict[str, tuple[str, History, asyncio.Lock]] = OrderedDict()
        """Histories by run, with the birth of the run that each is of."""
        self._viewers: dict[Viewer, tuple[str, ...]] = {}
        self._sent: dict[tuple[str, str], object] = {}
        """The last content that was sent, by run and event."""
        self._described: dict[str, list[Mark]] = {}
        """The files from which each run's description was made."""
        self._summaries: dict[str, tuple[object, dict[str, Any]]] = {}

    @property
    def n_viewers(self) -> int:
        """Streams that are open."""
        return len(self._viewers)

    def folder(self, name: str) -> RunFolder | None:
        """The run of this name, which is a number; None where there is none."""
        folder = RunFolder(self._root / name)
        is_number = name.isascii() and name.isdecimal() and len(name) < 10
        return folder if is_number and folder.config.is_file() else None

    async def everything(self, folder: RunFolder) -> bytes:
        """The run's history up to now, as JSON."""
        history, lock = self._history(folder)
        async with lock:
            change = await _read_on(folder, history)
            content = await asyncio.to_thread(history.everything)
        if change:
            self._send(folder.path.name, change)
        return content

    def runs(self) -> list[dict[str, Any]]:
        """All runs in a line each, the newest first; a run is read again only where its files changed."""
        found = []
        for folder in reversed(list_runs(self._root)[-MAX_LISTED:]):
            mark = [mark_of(path) for path in (folder.origin, folder.config, folder.metrics, folder.status)]
            kept = self._summaries.get(folder.path.name)
            if kept is None or kept[0] != mark or kept[1]["state"] != "ended":
                kept = self._summaries[folder.path.name] = mark, summarize(folder)
            found.append(kept[1])
        return found

    async def stream(self, names: tuple[str, ...]) -> AsyncGenerator[bytes, None]:
        """The events of these runs, as they happen."""
        viewer: Viewer = asyncio.Queue(MAX_WAITING)
        self._viewers[viewer] = names
        try:
            yield b"retry: 2000\n\n"
            for name in names:
                if (folder := self.folder(name)) is not None:
                    yield event("status", {"run": name, "status": await asyncio.to_thread(status_of, folder)})
                    described = await asyncio.to_thread(_described, folder)  # which may differ from the page's
                    if described is not None:
                        yield event("described", described)
            while True:
                try:
                    async with asyncio.timeout(KEEP_ALIVE_S):
                        events = await viewer.get()
                except TimeoutError:
                    events = b": still here\n\n"
                if events is None:
                    return
                yield events
        finally:
            self._viewers.pop(viewer, None)

    async def go_on(self, say: Callable[[str], None]) -> None:
        """Reads on, about once a second, the runs that have viewers; before there are any, the newest run."""
        newest = {run["name"] for run in (await asyncio.to_thread(self.runs))[:1]}  # and all are in memory from now on
        for tick in itertools.count():
            for name in {name for names in self._viewers.values() for name in names} | newest:
                try:
                    await self._look(name)
                except (OSError, ValueError, ArithmeticError) as error:  # of a file that somebody else writes
                    say(f"run {name}: {type(error).__name__}: {error}")
            newest = set()
            if self._viewers and tick % LIST_EVERY == 0:
                runs = await asyncio.to_thread(self.runs)
                if self._is_new("", "runs", [(run["name"], run["born"], run["state"]) for run in runs]):
                    self._send("", event("runs", runs))
            await asyncio.sleep(INTERVAL_S + VIEWER_S * len(self._viewers))

    async def _look(self, name: str) -> None:
        if (folder := self.folder(name)) is None:
            return
        history, lock = self._history(folder)
        async with lock:
            events = await _read_on(folder, history)
        status = await asyncio.to_thread(status_of, folder)
        if self._is_new(name, "status", status):
            events += event("status", {"run": name, "status": status})
        described = await asyncio.to_thread(self._newly_described, folder)
        if described is not None and self._is_new(name, "described", described):
            events += event("described", described)
        if events:
            self._send(name, events)  # at once: what is sent to a viewer costs by the piece

    def _newly_described(self, folder: RunFolder) -> dict[str, Any] | None:
        """The run's description; None where its files were not written since the last one, or can't be read."""
        marks = [mark_of(path) for path in (folder.origin, folder.config, folder.changes)]
        if self._described.get(folder.path.name) == marks:
            return None
        self._described[folder.path.name] = marks
        return _described(folder)

    def _is_new(self, run: str, what: str, content: object) -> bool:
        before, self._sent[run, what] = self._sent.get((run, what)), content
        return before != content

    def _send(self, name: str, events: Event) -> None:
        for viewer, names in list(self._viewers.items()):
            if not name or name in names:
                if viewer.full():
                    del self._viewers[viewer]
                    while not viewer.empty():
                        viewer.get_nowait()
                    viewer.put_nowait(None)
                else:
                    viewer.put_nowait(events)

    def _history(self, folder: RunFolder) -> tuple[History, asyncio.Lock]:
        name, birth = folder.path.name, birth_of(folder)
        kept = self._histories.pop(name, None)
        if kept is None or kept[0] != birth:
            before = kept[1] if kept is not None else None
            kept = birth, History(folder, before), asyncio.Lock()
        self._histories[name] = kept
        if len(self._histories) > MAX_HISTORIES:
            self._histories.popitem(last=False)
        return kept[1:]


def _described(folder: RunFolder) -> dict[str, Any] | None:
    try:
        return describe(folder)
    except (OSError, ValueError, StorageError):
        return None


async def _read_on(folder: RunFolder, history: History) -> Event:
    """Reads the run's history to its end; gives the event, empty where nothing is new."""
    change = await asyncio.to_thread(history.read)
    return event("change", {"run": folder.path.name, **change}) if change is not None else b""
