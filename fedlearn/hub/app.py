"""The HTTP interface of the hub."""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from fedlearn.board.app import AS_IT_IS, Board, body_of, json_of, placed
from fedlearn.board.app import STATIC as BOARD_STATIC
from fedlearn.client.hub_line import Work
from fedlearn.hub.authentication import AuthenticationMiddleware
from fedlearn.hub.bodies import (
    Asked,
    BodyType,
    Image,
    Initialization,
    RefusedError,
    Training,
    as_number,
    read_body,
    read_registration,
)
from fedlearn.hub.calling import Calling
from fedlearn.hub.devices import Device, Devices
from fedlearn.hub.elsewhere import Elsewhere
from fedlearn.hub.errors import answer_of
from fedlearn.hub.files import TASK_SUFFIX, files_in
from fedlearn.hub.jobs.checks import check_job
from fedlearn.hub.jobs.following import OVER, follow_events, follow_log
from fedlearn.hub.jobs.jobs import Jobs
from fedlearn.hub.jobs.records import JobRecord
from fedlearn.hub.jobs.seats import held_by, step_bytes
from fedlearn.hub.jobs.speed import speeds_of
from fedlearn.hub.jobs.weights import recognized, state_dict_of, tensors_of
from fedlearn.hub.settings import HubSettings
from fedlearn.hub.tokens import COOKIE, TokenAuthentication
from fedlearn.hub.views import device_view, job_view, speed_views
from fedlearn.storage.durable import StorageError
from fedlearn.storage.runs import RunFolder
from fedlearn.web.guards import RequestGuard
from fedlearn.web.names import Names
from fedlearn.web.quotas import Quota
from fedlearn.web.streams import CLOSING, Endless

STATIC = Path(__file__).parent / "static"
TICK_S = 0.2
WAIT_S = 20.0
"""Seconds that a device's request waits for work before it is told that there is none."""

ENDING_S = 10.0
"""Seconds that a request waits for a server that was told to stop."""

MAX_IMAGE_BYTES = 256 * 1024
"""The most bytes of an image that a job's network is asked to classify, as JSON."""

MAX_STREAMS, STREAMS_OF_ONE = 200, 50
"""The most streams of logs and events that are open at a time: of all clients, and of one address."""

OF_BOARD = ("/api/runs{rest:path}", "/api/operator", "/api/events")
"""The addresses of the board that read or change data."""

HEADING = b'<h1 class="wordmark">fedlearn</h1>'
"""The heading of the board's page, after which a link to the jobs is put."""

JOBS_LINK = b'\n  <a class="button" href="jobs">Jobs</a>'


@final
class Hub:
    """The state from which requests are answered."""

    def __init__(self, settings: HubSettings, names: Names) -> None:
        self._settings, self._names = settings, names
        self._devices = Devices()
        self._calling = Calling(self._devices, lambda asked, pieces: self._stream(asked, pieces, "text/plain"))
        self.jobs = Jobs(settings, self._devices)
        self._door = TokenAuthentication(
            operator_token=settings.operator_token,
            device_token=settings.device_token,
            open_to=Names(names.port, is_public=False) if settings.is_open_on_loopback else None,
        )
        self._board = Board(settings.runs, token=settings.operator_token, names=names).app()
        self._previous = 0.0
        """Teraflops when there were any last."""
        self._streams = Quota(MAX_STREAMS, of_one=STREAMS_OF_ONE)

    def app(self) -> Starlette:
        """The application."""
        get, post, job = partial(Route, methods=["GET"]), partial(Route, methods=["POST"]), "/api/jobs/{id}"
        routes = [
            post("/api/jobs", self.create),
            get("/api/jobs", self.listed),
            get(job, self.one),
            Route(job, self.delete, methods=["DELETE"]),
            get(f"{job}/events", self.events),
            get(f"{job}/log", self.log),
            get(f"{job}/model", self.model),
            post(f"{job}/recognize", self.recognize),
            post("/api/devices/register", self.register),
            get("/api/devices", self.devices),
            get("/api/devices/teraflops", self.device_speeds),
            get("/api/devices/{id}/work", self.work),
            *self._calling.routes,
            Route("/api/devices/{id}", self.unregister, methods=["DELETE"]),
            post("/api/network/initialize/{id}", self.initialize),
            post("/api/network/train/{id}", self.train),
            post("/api/network/stop/{id}", self.stop),
            get("/api/teraflops", self.speed),
            get("/api/previous_teraflops", self.previous_speed),
            get("/api/files", self.files),
            post("/api/session", self.session),
            Route("/", self.page),
            Route("/jobs", self.static),
            Route("/jobs.js", self.static),
            Route("/console.js", self.static),
            Route("/drawing.js", self.static),
            Route("/jobs.css", self.static),
        ]
        beside = [*(Route(path, self._board) for path in OF_BOARD), Route("/api/{rest:path}", Elsewhere(routes))]
        handlers = dict.fromkeys([RefusedError, HTTPException, StorageError, OSError, Exception], answer_of)
        middleware = [Middleware(AuthenticationMiddleware, self._door), Middleware(RequestGuard, self._names)]
        return Starlette(
            routes=[*routes, *beside, Mount("/", self._board)],
            middleware=middleware,
            exception_handlers=handlers,
            lifespan=self._lifespan,
        )

    # ---- jobs

    async def create(self, asked: Request) -> Response:
        """Makes a job, which is not trained yet."""
        wanted = read_body(await body_of(asked), Asked)
        has_package = lambda name: find_spec(name) is not None  # noqa: E731
        note = await asyncio.to_thread(check_job, wanted, self._settings, has=has_package)
        record = self.jobs.create(wanted, note)
        message = f"Job created; {note}" if note else "Job created"
        return json_of({"message": message, "job_id": str(record.job_id)}, status=201)

    async def listed(self, asked: Request) -> Response:
        """Lists all jobs, each with the number of its devices; with `details`, with the devices themselves."""
        views = [self._view(record) for _, record in sorted(self.jobs.records.items())]
        if "details" not in asked.query_params:
            views = [view | {"devices": len(view["devices"])} for view in views]
        return json_of({"jobs": views})

    async def one(self, asked: Request) -> Response:
        """Describes one job."""
        return json_of(self._view(self._job(asked)))

    async def delete(self, asked: Request) -> Response:
        """Forgets a job."""
        record = await self._ended(asked)
        self.jobs.delete(record)
        rest = f"; its run {record.run} stays in the hub's folder of runs" if record.run else ""
        return json_of({"message": f"Job deleted{rest}"})

    async def initialize(self, asked: Request) -> Response:
        """Lets devices share the layers; the assignment is known once its job's server has seated them."""
        record = self._job(asked)
        wanted = await _optional_body(asked, Initialization)
        self.jobs.initialize(record, split=wanted.split, chosen=wanted.devices)
        devices = self._devices_of(record)
        shared = "each device holds the whole model"
        if record.seats:
            cost = step_bytes(msgspec.convert(record.asked, Asked), record.seats) / 1e3
            each = f", which send one another up to {cost:.0f} KB in each step" if cost else ""
            shared = f"{record.seats} devices hold the model between them, each a part of it{each}"
        return json_of({"message": f"Network initialized; {shared}", "devices": devices})

    async def train(self, asked: Request) -> Response:
        """Starts the training of a job."""
        training = await _optional_body(asked, Training)
        record = await self._ended(asked)
        self.jobs.train(record, training)
        begun = record.training or training
        answer = {"message": "Training started", "epochs": begun.epochs, "learning_rate": begun.learning_rate}
        return json_of(answer | ({"wire": begun.codec} if record.seats else {}))

    async def stop(self, asked: Request) -> Response:
        """Stops the training of a job; `train` resumes it."""
        self.jobs.stop(self._job(asked))
        return json_of({"message": "Stopping"})

    async def events(self, asked: Request) -> ASGIApp:
        """Streams the events of a job, as server-sent events."""
        record, last = self._job(asked), asked.headers.get("last-event-id", "")
        after = int(last) if last.isascii() and last.isdecimal() and len(last) < 12 else -1
        return self._stream(asked, follow_events(self.jobs, record, after), "text/event-stream")

    async def log(self, asked: Request) -> ASGIApp:
        """Sends the log of a job, with its server's and the hub's lines; with `follow`, also lines as they are
        written."""
        record = self._job(asked)
        path, is_followed = self.jobs.folder(record).log, "follow" in asked.query_params
        return self._stream(asked, follow_log(path, lambda: not is_followed or record.status in OVER), "text/plain")

    async def model(self, asked: Request) -> Response:
        """Sends the newest weights of a job, as the state_dict of a PyTorch network."""
        record = self._job(asked)
        content = await asyncio.to_thread(state_dict_of, self._run_of(record))
        named = {"Content-Disposition": f'attachment; filename="job{record.job_id}.safetensors"'}
        return Response(content, media_type="application/octet-stream", headers=named)

    async def recognize(self, asked: Request) -> Response:
        """Classifies one image by a job's newest weights."""
        record, image = self._job(asked), read_body(await body_of(asked, max_bytes=MAX_IMAGE_BYTES), Image)
        tensors = await asyncio.to_thread(tensors_of, self._run_of(record))
        return json_of(recognized(msgspec.convert(record.asked, Asked), tensors, image.pixels))

    # ---- devices

    async def register(self, asked: Request) -> Response:
        """Registers a device."""
        wanted = read_registration(await body_of(asked))
        if wanted.job_id is not None:
            self.jobs.get(wanted.job_id)
        address = asked.client.host if asked.client is not None else ""
        device = self._devices.register(wanted, address=address, now=time.monotonic())
        self._calling.forget(device.device_id)
        return json_of({"message": "Device registered", "device_id": device.device_id}, status=201)

    async def unregister(self, asked: Request) -> Response:
        """Unregisters a device."""
        self._devices.unregister(_number(asked, "device"))
        return json_of({"message": "Device unregistered"})

    async def devices(self, _: Request) -> Response:
        """Lists all devices, with the job that each works for."""
        jobs = [record for record in self.jobs.records.values() if self._devices.of(record.job_id)]
        working = {told["device_id"]: told for record in jobs for told in self._devices_of(record)}
        found = [working.get(device.device_id) or device_view(device, ()) for device in self._devices.all()]
        return json_of(found)

    async def work(self, asked: Request) -> Response:
        """Tells a device its work: at once if that differs from its present work, else when it changes, or after a
        while."""
        number, has = _number(asked, "device"), asked.query_params.get("has", "")
        deadline, closing = time.monotonic() + WAIT_S, asked.scope.get(CLOSING) or asyncio.Event()
        while True:
            device = self._devices.get(number)
            device.seen = now = time.monotonic()
            found = self._work_for(device)
            if calls := self._calling.calls.take(number) if found.state != "leave" else ():
                return json_of(msgspec.structs.replace(found, calls=tuple(call.asked for call in calls)))
            if found.state == "leave" or found.server != has or now >= deadline or closing.is_set():
                return json_of(found)
            await self._devices.wait(deadline - now, closing)

    def _work_for(self, device: Device) -> Work:
        record = self._job_of(device)
        if record is None and device.asked.job_id is not None:
            return Work("leave", device.asked.job_id)
        if record is None or (record.status in OVER and device.asked.job_id is None):
            training = [r for r in self.jobs.records.values() if self.jobs.server(r) and not r.is_chosen]
            if not training:
                return Work("wait")
            record = min(training, key=self._preference)
            device.job_id = record.job_id
        if record.status in ("completed", "failed"):
            return Work("leave", record.job_id)
        server = self.jobs.server(record)
        return Work("join" if server else "wait", record.job_id, server)

    def _preference(self, record: JobRecord) -> tuple[int, int, int]:
        """Sort key of a job for devices without a job of their own: jobs with an empty place are least, then those with
        fewest devices."""
        n_devices = len(self._devices.of(record.job_id))
        return -max(record.seats - n_devices, 0), n_devices, record.job_id

    # ---- speed, pages

    async def speed(self, _: Request) -> Response:
        """The speed of all jobs in training."""
        return json_of({"teraflops": self._teraflops()})

    async def previous_speed(self, _: Request) -> Response:
        """The speed of all jobs when any was in training last."""
        self._teraflops()
        return json_of({"previous_teraflops": self._previous})

    async def device_speeds(self, _: Request) -> Response:
        """The speed of each device."""
        return json_of({"devices": speed_views(self._devices.all(), self._speeds())})

    def _speeds(self) -> dict[tuple[int, int | None], float]:
        """Teraflops by job and device."""
        found: dict[tuple[int, int | None], float] = {}
        for record in [record for record in self.jobs.records.values() if record.status == "training"]:
            of_job = speeds_of(record, self.jobs.status(record), self._devices.of(record.job_id))
            found |= {(record.job_id, device): speed for device, speed in of_job.items()}
        return found

    def _teraflops(self) -> float:
        total = sum(self._speeds().values())
        self._previous = total or self._previous
        return total

    async def files(self, _: Request) -> Response:
        """Lists the names that a new job may use, for people to choose from."""
        data, tasks = await asyncio.to_thread(files_in, self._settings.data), files_in(self._settings.tasks)
        return json_of({"data": data, "tasks": [name for name in tasks if name.endswith(TASK_SUFFIX)]})

    async def session(self, _: Request) -> Response:
        """Lets streams and downloads of a page in, which can't send a header."""
        answer = json_of(None)
        answer.set_cookie(COOKIE, self._settings.operator_token, httponly=True, samesite="strict")
        return answer

    async def page(self, _: Request) -> Response:
        """The board's page, with a link to the jobs."""
        text = (BOARD_STATIC / "index.html").read_bytes()
        return Response(text.replace(HEADING, HEADING + JOBS_LINK), media_type="text/html")

    async def static(self, asked: Request) -> Response:
        """The page of jobs, with its style and scripts."""
        name = asked.url.path.removeprefix("/")
        return FileResponse(STATIC / ("jobs.html" if name == "jobs" else name))

    # ---- of all of these

    def _stream(self, asked: Request, pieces: AsyncIterator[bytes], kind: str) -> ASGIApp:
        stream = Endless(pieces, media_type=kind, headers=AS_IT_IS)
        return placed(asked, self._streams, stream, "readers of logs and events")

    def _run_of(self, record: JobRecord) -> RunFolder:
        if (run := self.jobs.run(record)) is None:
            raise RefusedError(404, f"job {record.job_id}: it has no weights before it is trained")
        return run

    def _job(self, asked: Request) -> JobRecord:
        return self.jobs.get(_number(asked, "job"))

    async def _ended(self, asked: Request) -> JobRecord:
        """A job, after a wait for its server where that was told to stop."""
        deadline = time.monotonic() + ENDING_S
        while self.jobs.is_ending(self._job(asked)) and time.monotonic() < deadline:
            await asyncio.sleep(TICK_S / 4)
        return self._job(asked)

    def _job_of(self, device: Device) -> JobRecord | None:
        return self.jobs.records.get(device.job_id) if device.job_id is not None else None

    def _view(self, record: JobRecord) -> dict[str, Any]:
        return job_view(record, self.jobs.status(record), self._devices_of(record), self.jobs.missing(record))

    def _devices_of(self, record: JobRecord) -> list[dict[str, Any]]:
        devices = self._devices.of(record.job_id)
        held = held_by(devices, self.jobs.status(record) if self.jobs.server(record) else None)
        return [device_view(device, held[device.device_id]) for device in devices]

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self.jobs.take_up()
        looking = asyncio.create_task(self._look())
        try:
            async with self._board.router.lifespan_context(self._board):
                yield
        finally:
            looking.cancel()
            await asyncio.to_thread(self.jobs.close)

    async def _look(self) -> None:
        while True:
            self._devices.forget(time.monotonic())
            try:
                self.jobs.tick()
                self._teraflops()
            except (OSError, StorageError, RefusedError) as error:  # a disk that refuses is no end of all jobs
                print(f"hub: {error}", file=sys.stderr, flush=True)
            await asyncio.sleep(TICK_S)


def _number(asked: Request, what: str) -> int:
    return as_number(asked.path_params["id"], what)


async def _optional_body(asked: Request, expected: type[BodyType]) -> BodyType:
    """The body of a request that may have none, nor say what kind it is of."""
    is_empty = asked.headers.get("content-length", "0") == "0" and "transfer-encoding" not in asked.headers
    return read_body(b"" if is_empty else await body_of(asked), expected)
