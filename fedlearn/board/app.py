"""The HTTP interface of the board."""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request as Asked
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from fedlearn.board.generation import Abilities, GenerationRequest, Request, TextDelta
from fedlearn.board.marks import birth_of
from fedlearn.board.models import BusyError, Models
from fedlearn.board.operator import Given, OperatorAccess, carry_out
from fedlearn.board.prometheus import exposition
from fedlearn.board.public import describe, status_of
from fedlearn.board.watching import RunWatcher
from fedlearn.coordination.people.rate_limit import RateLimit
from fedlearn.runs.status_file import live_status
from fedlearn.storage.checkpoint import checkpoints_in, step_of
from fedlearn.storage.durable import StorageError
from fedlearn.storage.runs import RunFolder, list_runs
from fedlearn.web.guards import RequestGuard, network, too_many
from fedlearn.web.names import Names
from fedlearn.web.quotas import Leaving, Quota
from fedlearn.web.streams import Endless

STATIC = Path(__file__).parent / "static"
MAX_STREAMS, STREAMS_OF_ONE = 500, 100
"""The most streams of all viewers, and of one address, which may stand for a whole office."""

MAX_DOWNLOADS, DOWNLOADS_OF_ONE = 8, 2
MAX_TEXTS, TEXTS_OF_ONE = 9, 2
"""The most requests for texts at a time, of all and of one address: one is answered, the others wait."""

MAX_STREAM_RUNS = 6
"""The most runs that one page overlays."""

MAX_BODY_BYTES = 16 * 1024
GENERATIONS_PER_MINUTE = 12
"""Requests for texts a minute of one address."""

AGAIN_S = 10.0
"""Seconds after which loading a model that could not be loaded is tried again."""

AS_IT_IS = {"Content-Encoding": "identity", "X-Accel-Buffering": "no"}
"""Headers for streams: not compressed, which would hold pieces back, and not buffered by a proxy."""


def json_of(content: object, *, status: int = 200) -> Response:
    """An answer as JSON; NaN becomes null."""
    return Response(msgspec.json.encode(content), status, media_type="application/json")


@final
class Board:
    """The state from which requests are answered."""

    def __init__(self, root: Path, *, token: str, names: Names, models: Models | None = None) -> None:
        self._root = root
        self._names = names
        self._lock = OperatorAccess(token)
        self._watch = RunWatcher(root)
        self._models = models or Models()
        self._abilities: dict[str, tuple[str, Abilities | None, float]] = {}
        """The abilities of each run's model: the run's birth, the result, and its time."""
        self._finding = asyncio.Lock()
        self._generations = RateLimit(GENERATIONS_PER_MINUTE)
        self._streams = Quota(MAX_STREAMS, of_one=STREAMS_OF_ONE)
        self._downloads = Quota(MAX_DOWNLOADS, of_one=DOWNLOADS_OF_ONE)
        self._texts = Quota(MAX_TEXTS, of_one=TEXTS_OF_ONE)

    def app(self) -> Starlette:
        """The application."""
        routes = [
            Route("/api/runs", self.runs),
            Route("/api/runs/{name}", self.run),
            Route("/api/runs/{name}/history", self.history),
            Route("/api/runs/{name}/abilities", self.abilities),
            Route("/api/runs/{name}/weights", self.weights),
            Route("/api/runs/{name}/write", self.write, methods=["POST"]),
            Route("/api/runs/{name}/orders", self.order, methods=["POST"]),
            Route("/api/operator", self.operator),
            Route("/api/events", self.events),
            Route("/metrics", self.metrics),
            Mount("/", StaticFiles(directory=STATIC, html=True)),
        ]
        middleware = [
            Middleware(RequestGuard, self._names),
            Middleware(GZipMiddleware, minimum_size=1000, compresslevel=4),
        ]
        return Starlette(routes=routes, middleware=middleware, lifespan=self._lifespan)

    async def runs(self, _: Asked) -> Response:
        """Lists all runs, each in a line."""
        return json_of(await asyncio.to_thread(self._watch.runs))

    async def run(self, asked: Asked) -> Response:
        """The fixed facts of a run, and its status."""
        folder = self._folder(asked)
        try:
            described = await asyncio.to_thread(describe, folder)
        except (ValueError, StorageError, OSError) as error:
            print(f"board: {error}", file=sys.stderr)
            raise HTTPException(503, "this run's files can't be read; the board's terminal says why") from error
        return json_of({**described, "status": await asyncio.to_thread(status_of, folder)})

    async def history(self, asked: Asked) -> Response:
        """The curves and samples of a run."""
        return Response(await self._watch.everything(self._folder(asked)), media_type="application/json")

    async def abilities(self, asked: Asked) -> Response:
        """A run's abilities, with the losses of counting alone on its text; null where its model can't be loaded."""
        folder = self._folder(asked)
        async with self._finding:  # whoever comes meanwhile has the same answer
            name, birth, now = folder.path.name, birth_of(folder), time.monotonic()
            kept = self._abilities.get(name)
            if kept is None or kept[0] != birth or (kept[1] is None and now > kept[2] + AGAIN_S):
                answers = [answer async for answer in self._asked(Request("abilities", str(folder.path)))]
                kept = self._abilities[name] = birth, answers[-1].abilities, now
        return json_of(kept[1])

    async def weights(self, asked: Asked) -> ASGIApp:
        """The newest checkpoint, unchanged."""
        folder = self._folder(asked)
        paths = await asyncio.to_thread(checkpoints_in, folder)
        path, name = (paths[-1], f"step{step_of(paths[-1])}") if paths else (folder.genesis, "genesis")
        if path.is_symlink() or not path.is_file():  # a folder that somebody gave may name any file
            raise HTTPException(404, "no weights in this run's folder")
        file = FileResponse(
            path,
            filename=f"fedlearn-run{folder.path.name}-{name}.safetensors",
            media_type="application/octet-stream",
            headers=AS_IT_IS,
        )
        return placed(asked, self._downloads, file, "downloads at once")

    async def write(self, asked: Asked) -> ASGIApp:
        """Streams a text as it is written, a line of JSON for each piece."""
        folder = self._folder(asked)
        if not self._generations.take(network(asked.scope), time.monotonic()):
            return too_many("texts for your address")
        try:
            generation = msgspec.json.decode(await body_of(asked), type=GenerationRequest)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise HTTPException(400, f"text: {error}") from error

        async def lines() -> AsyncIterator[bytes]:
            async for answer in self._asked(Request("write", str(folder.path), generation)):
                yield msgspec.json.encode(answer) + b"\n"

        answer = StreamingResponse(lines(), media_type="application/x-ndjson", headers=AS_IT_IS)
        return placed(asked, self._texts, answer, "texts at once")

    async def events(self, asked: Asked) -> ASGIApp:
        """Streams the events of some runs, as server-sent events."""
        names = tuple(name for name in asked.query_params.get("runs", "").split(",") if name)[:MAX_STREAM_RUNS]
        if any(self._watch.folder(name) is None for name in names):
            raise HTTPException(404, "no such run")
        stream = Endless(self._watch.stream(names), media_type="text/event-stream", headers=AS_IT_IS)
        return placed(asked, self._streams, stream, "viewers")

    async def operator(self, asked: Asked) -> Response:
        """Checks whether a token is this board's."""
        self._lock.check(asked)
        return json_of(None)

    async def order(self, asked: Asked) -> Response:
        """Gives an operator's order; answers with its outcome."""
        self._lock.check(asked)
        folder = self._folder(asked)
        try:
            given = msgspec.json.decode(await body_of(asked), type=Given)
            return PlainTextResponse(await carry_out(folder, given))
        except (ValueError, StorageError) as error:
            raise HTTPException(400, f"order: {error}") from error

    async def metrics(self, _: Asked) -> Response:
        """The figures of all runs for Prometheus."""

        def statuses() -> str:
            found = [live_status(folder) for folder in list_runs(self._root)]
            return exposition([status for status in found if status is not None], n_viewers=self._watch.n_viewers)

        return PlainTextResponse(await asyncio.to_thread(statuses), media_type="text/plain; version=0.0.4")

    async def _asked(self, request: Request) -> AsyncIterator[TextDelta]:
        try:
            async for answer in self._models.ask(request):
                yield answer
        except BusyError:
            yield TextDelta(error="too many ask at once; try again in a minute", done=True)

    def _folder(self, asked: Asked) -> RunFolder:
        if (folder := self._watch.folder(asked.path_params["name"])) is None:
            raise HTTPException(404, "no such run")
        return folder

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        reading = asyncio.create_task(self._watch.go_on(lambda text: print(f"board: {text}", file=sys.stderr)))
        try:
            yield
        finally:
            reading.cancel()
            await self._models.close()


def placed(asked: Asked, places: Quota, response: ASGIApp, what: str) -> ASGIApp:
    """The response, which takes a slot of its client's quota while it lasts; without a free slot, a refusal."""
    address = network(asked.scope)
    if not places.take(address):
        return too_many(f"{what} of your address, or of all together")
    return Leaving(response, lambda: places.free(address))


async def body_of(asked: Asked, *, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Reads a small body.

    Raises:
        HTTPException: the body is large, or could have been sent by another page without being asked.
    """
    if asked.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise HTTPException(415, "expected application/json")
    body = b""
    async for piece in asked.stream():
        body += piece
        if len(body) > max_bytes:
            raise HTTPException(413, f"expected at most {max_bytes} bytes")
    return body
