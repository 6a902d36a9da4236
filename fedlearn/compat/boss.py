"""A loop of one's own around a run: the boss of some workers that hold a list of layers between them."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar, final

import torch
from msgspec import Struct
from torch import Tensor

from fedlearn.callback import Begun, Callback
from fedlearn.compat.crew import serve
from fedlearn.compat.layers import Entry, Layers
from fedlearn.compat.optimizers import settings_of
from fedlearn.es.layout import Float32Array
from fedlearn.library.trained import Trained
from fedlearn.storage.orders import Set, give
from fedlearn.storage.runs import RunFolder
from fedlearn.tasks.torch.supervised import supervised

T = TypeVar("T")

DEFAULT_PORT = 1024
USUAL: dict[str, Any] = {"sigma": 0.02, "group_size": 64, "population_limit": 128, "time_per_step": 60.0}
"""Settings of a run that others replace by arguments of `BossMan`."""


class Workers(Struct, frozen=True):
    """The number of workers that are awaited, and the address at which they find the boss."""

    count: int
    host: str
    port: int


@final
class BossMan(Callback):
    """Trains the layers on workers, one of which computes the loss of what the last layer gives.

    The run is served on a thread and does not wait for the loop: `step` gives what has happened, and `forward` shows
    the newest weights, of which the boss has a copy.
    """

    @staticmethod
    async def setup_host(num_workers: int) -> Workers:
        """The workers, and where they will find the boss: at MODEL_HOST and MODEL_PORT of the environment."""
        if num_workers < 1:
            raise ValueError(f"num_workers: expected at least 1, got {num_workers}")
        host, port = os.environ.get("MODEL_HOST", "127.0.0.1"), os.environ.get("MODEL_PORT", str(DEFAULT_PORT))
        return Workers(num_workers, host, int(port))

    def __init__(
        self,
        workers: Workers,
        model: Sequence[Entry],
        *,
        loss: Callable[[Tensor, Tensor], Tensor],
        data: tuple[Tensor, Tensor],
        batch_size: int = 32,
        **settings: Any,  # noqa: ANN401 (those of a run)
    ) -> None:
        self._workers, self._settings = workers, {**USUAL, **settings}
        self._layers = Layers(model)
        self._task = supervised(
            self._layers,
            lambda module, rows: loss(module(rows["x"]), rows["y"]),
            {"x": data[0].numpy(), "y": data[1].numpy()},
            batch_size=batch_size,
        )
        self._shown = Layers(model)
        self._shown.load_state_dict(self._layers.state_dict())
        self._losses: asyncio.Queue[float] = asyncio.Queue()
        self._joined = asyncio.Event()
        self._begun: Begun | None = None
        self._step = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._served: asyncio.Task[Trained] | None = None

    async def distribute_model(self) -> int:
        """Finds that the layers can be exported; gives the bytes that workers are sent in place of code.

        Parts themselves go out with `send_optimizer`, since the optimizer is a part of what a run is.
        """
        return len(await asyncio.to_thread(self._task.as_graph))

    async def send_optimizer(self, optimizer: type[torch.optim.Optimizer], options: Mapping[str, Any]) -> None:
        """Begins the run, and waits until all workers have their parts."""
        self._loop = asyncio.get_running_loop()
        settings = {**self._settings, **settings_of(optimizer, options)}
        self._served = asyncio.create_task(
            asyncio.to_thread(
                serve,
                self._task,
                host=self._workers.host,
                port=self._workers.port,
                seats=self._workers.count,
                every=1,
                looked=self._looked,
                callbacks=[self],
                **settings,
            )
        )
        await self._first_of(self._joined.wait())

    def gather_dependencies(self) -> dict[str, tuple[int, ...]]:
        """The layers that read each named value; it travels to their machines by itself."""
        return self._layers.dependencies

    async def step(self) -> float:
        """Tries members on a batch and takes the step, in place of loss, backward and optimizer; gives the loss."""
        return await self._first_of(self._losses.get())

    async def forward(self, x: Tensor, values: Mapping[str, Tensor]) -> Tensor:
        """The output of the layers with the newest weights; `values` take the place of named ones."""
        with torch.no_grad():
            given: Tensor = self._shown(x, values)
            return given

    async def close(self) -> None:
        """Ends the run, and with it the workers."""
        if self._served is not None:
            self._stop()
            await self._served

    def on_begin(self, begun: Begun) -> None:
        self._begun = begun

    def on_join(self, name: str) -> None:  # noqa: ARG002 (a crew of all workers, or the only one)
        self._tell(self._joined.set)

    def _looked(
        self, step: int, loss: float, figures: Mapping[str, float], weights: Mapping[str, Float32Array]
    ) -> None:
        del figures
        self._step = step
        self._tell(lambda: self._take(loss, weights))

    def _tell(self, what: Callable[[], None]) -> None:
        """Calls a function in the loop's thread, since the run is on another one."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(what)

    def _take(self, loss: float, weights: Mapping[str, Float32Array]) -> None:
        tensors = {name: torch.from_numpy(tensor) for name, tensor in weights.items()}
        self._shown.load_state_dict(tensors, strict=False)
        self._losses.put_nowait(loss)

    def _stop(self) -> None:
        if self._begun is not None and self._begun.folder is not None:
            # Volunteers of a server that was stopped would wait for it; with all steps done they leave.
            give(RunFolder(self._begun.folder).orders, Set(by="the boss", key="steps", value=str(max(self._step, 1))))

    async def _first_of(self, wanted: Coroutine[Any, Any, T]) -> T:
        """What is wanted, unless the run ends before.

        Raises:
            RuntimeError: the run has ended, or has not begun.
        """
        waiting = asyncio.ensure_future(wanted)
        try:
            if self._served is None:
                raise RuntimeError("boss: expected send_optimizer before step, since it begins the run")
            await asyncio.wait([waiting, self._served], return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return waiting.result()
            ended = self._served.result()
            raise RuntimeError(f"boss: expected a run that goes on, got one that ended at step {ended.step}")
        except asyncio.CancelledError:
            self._stop()  # its thread would go on for ever
            raise
        finally:
            waiting.cancel()
