"""A loop of one's own around a run: the boss of some workers, who measure the gradients of its list of layers."""

import asyncio
import os
import warnings
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar, final

import torch
from msgspec import Struct
from torch import Tensor

from fedlearn.callback import Begun, Callback
from fedlearn.compat.crew import serve
from fedlearn.compat.expansion import Expansion, Forwarded
from fedlearn.compat.layers import Entry, Layers
from fedlearn.compat.optimizers import settings_of
from fedlearn.es.layout import Float32Array
from fedlearn.library.trained import Trained
from fedlearn.server.training.feed import Feed
from fedlearn.storage.orders import Finish, Stop, give
from fedlearn.storage.runs import RunFolder
from fedlearn.tasks.torch.members.refusals import Refused, refuse_module
from fedlearn.terminal import Terminal

T = TypeVar("T")

DEFAULT_PORT = 1024
NAME = "the boss"


class Workers(Struct, frozen=True):
    """The number of workers that are awaited, and the address at which they find the boss."""

    count: int
    host: str
    port: int


@final
class BossMan(Callback):
    """Trains the layers on workers by a loop of PyTorch's: forward, a loss, backward, a step of the optimizer.

    The run is served on a thread, and each of its steps waits for the loop. `forward` computes with the boss's copy of
    the newest weights. `backward` keeps the rows with the derivatives of the loss by what was predicted for them, and
    `optim_step` sends these to the workers, who measure the gradients of their shares of the rows. With `seats` so many
    workers hold one model between them, and each measures those of its layers. `settings` are those of a run.
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
        seats: int = 0,
        **settings: Any,  # noqa: ANN401 (those of a run)
    ) -> None:
        self.workers, self.seats = workers, seats
        self._settings = {"seats": seats, **settings} if seats else settings
        self._expansion = Expansion(Layers(model), model, n_machines=seats or workers.count)
        self._shown = Layers(model).eval()
        self._shown.load_state_dict(self._expansion.layers.state_dict())
        self._forwarded: list[Forwarded] = []
        self._steps: asyncio.Queue[int] = asyncio.Queue()
        self._joined = asyncio.Event()
        self._feed, self._terminal = Feed(), Terminal(plain=True)
        self._begun: Begun | None = None
        self._step = self._n_joined = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._served: asyncio.Task[Trained] | None = None

    async def distribute_model(self) -> int:
        """Finds that the layers can be exported; gives the bytes that workers are sent in place of code.

        The model itself goes out with `send_optimizer`, since the optimizer is a part of what a run is.
        """
        return len(await asyncio.to_thread(self._expansion.task.as_graph))

    async def send_optimizer(self, optimizer: type[torch.optim.Optimizer], options: Mapping[str, Any]) -> None:
        """Begins the run, and waits until all workers hold the model."""
        self._loop = asyncio.get_running_loop()
        self._served = asyncio.create_task(self._serve({**self._settings, **settings_of(optimizer, options)}))
        await self._first_of(self._joined.wait())

    def gather_dependencies(self) -> dict[str, tuple[int, ...]]:
        """The layers that read each named value; it travels to their machines by itself."""
        return self._shown.dependencies

    async def model_train(self) -> None:
        """Changes nothing, since layers always compute as in evaluation; warns where that makes a difference."""
        try:
            refuse_module(self._shown.train())
        except Refused as error:
            warnings.warn(f"layers are trained as they are in evaluation: {error}", stacklevel=2)
        finally:
            self._shown.eval()

    async def model_eval(self) -> None:
        """Changes nothing, since layers always compute as in evaluation."""

    async def node_mem_clear(self) -> None:
        """Forgets what was computed forward since the last step, and whatever `backward` kept of it."""
        self._forwarded.clear()

    async def forward(self, x: Tensor, values: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]]) -> Tensor:
        """The output of the layers with the newest weights, by which a loss can be differentiated.

        `values` are those that no layer gives, by name; they may also take the place of named ones, to look at what
        comes of that.
        """
        named = dict(values)
        with torch.no_grad():
            found: Tensor = self._shown(x, named)
        if torch.is_grad_enabled():
            self._forwarded.append(Forwarded(x, named, found.requires_grad_()))
        return found

    async def backward(self, gradient: Tensor) -> None:
        """Keeps the derivative of a loss by a prediction, `prediction.grad`, for the step; several add up.

        Raises:
            ValueError: it is of no prediction since the last step, or that one's rows are no input of the layers.
        """
        for one in reversed(self._forwarded):
            if one.prediction.grad is gradient:
                one.cotangent = gradient.detach().clone()
                self._expansion.check(one)
                return
        raise ValueError(
            "backward: expected the derivative of a loss by what forward gave since the last step, got another tensor; "
            "call loss.backward(), and then backward(prediction.grad)"
        )

    async def optim_step(self) -> None:
        """Takes a step by the derivatives that `backward` has kept, and waits until it is taken.

        Raises:
            ValueError: there are none, or their rows are too many.
        """
        columns, n_members = self._expansion.columns([one for one in self._forwarded if one.cotangent is not None])
        self._forwarded.clear()
        self._feed.give(columns, n_members=n_members)
        await self._first_of(self._steps.get())

    async def close(self) -> None:
        """Ends the run, and with it the workers; a loop that ends without it does so, too."""
        if self._served is not None:
            self._stop()
            await self._served

    def on_begin(self, begun: Begun) -> None:
        self._begun = begun

    def on_join(self, name: str) -> None:
        self._terminal.on_join(name)
        self._n_joined += 1
        if self.seats or self._n_joined == self.workers.count:
            self._tell(self._joined.set)

    def on_leave(self, name: str, reason: str) -> None:
        self._terminal.on_leave(name, reason)

    def on_notice(self, text: str) -> None:
        self._terminal.on_notice(text)

    def on_problem(self, text: str) -> None:
        """Says nothing, since the server does."""

    async def _serve(self, settings: Mapping[str, Any]) -> Trained:
        serving = asyncio.to_thread(
            serve,
            self._expansion.task,
            host=self.workers.host,
            port=self.workers.port,
            every=1,
            looked=self._looked,
            callbacks=[self],
            feed=self._feed,
            **{**self._expansion.batch.settings, **settings},
        )
        try:
            return await serving
        except asyncio.CancelledError:
            self._stop()  # its thread would go on for ever
            raise

    def _looked(
        self, step: int, loss: float, figures: Mapping[str, float], weights: Mapping[str, Float32Array]
    ) -> None:
        del loss, figures
        self._tell(lambda: self._take(step, weights))

    def _tell(self, what: Callable[[], object]) -> None:
        """Calls a function in the loop's thread, since the run is on another one."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(what)

    def _take(self, step: int, weights: Mapping[str, Float32Array]) -> None:
        tensors = {name: torch.from_numpy(tensor) for name, tensor in weights.items()}
        self._shown.load_state_dict(tensors, strict=False)
        self._step = step
        self._steps.put_nowait(step)

    def _stop(self) -> None:
        if self._begun is not None and self._begun.folder is not None:
            # Volunteers of a server that was stopped would wait for it; with all steps done they leave.
            give(RunFolder(self._begun.folder).orders, Finish(by=NAME, steps=0) if self._step else Stop(by=NAME))

    async def _first_of(self, wanted: Coroutine[Any, Any, T]) -> T:
        """What is wanted, unless the run ends before.

        Raises:
            RuntimeError: the run has ended, or has not begun.
        """
        waiting = asyncio.ensure_future(wanted)
        try:
            if self._served is None:
                raise RuntimeError("boss: expected send_optimizer before optim_step, since it begins the run")
            await asyncio.wait([waiting, self._served], return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return waiting.result()
            ended = self._served.result()
            raise RuntimeError(f"boss: expected a run that goes on, got one that ended at step {ended.step}")
        finally:
            waiting.cancel()
