"""A run of a task that is a value in this process, and volunteers for it that only have an address."""

import os
from collections.abc import Iterable
from contextlib import ExitStack

from fedlearn.callback import Callback
from fedlearn.client.client import join_lent
from fedlearn.compat.gathering import Gathering
from fedlearn.compat.looking import Looks, OnLook
from fedlearn.coordination.golden import check_core
from fedlearn.launch.launcher import GIVE_UP_S
from fedlearn.library.trained import Trained
from fedlearn.library.training import Value, configured
from fedlearn.net.address import is_loopback
from fedlearn.runs.creation import create
from fedlearn.server.listening import listen
from fedlearn.server.security import open_security, with_local
from fedlearn.server.serving import serve as serve_run
from fedlearn.server.training.feed import Feed
from fedlearn.server.training.trainer import Trainer
from fedlearn.storage.runs import lock_run
from fedlearn.tasks.task import Setting, Task
from fedlearn.terminal import Terminal

_MEMORY_SHARE = 0.5


def serve(
    task: Task,
    *,
    host: str = "127.0.0.1",
    port: int,
    every: int = 0,
    gather: int = 0,
    looked: OnLook | None = None,
    feed: Feed | None = None,
    callbacks: Iterable[Callback] = (),
    **settings: Value,
) -> Trained:
    """Serves a run of the task until it ends, and gives the trained run; the task travels as a graph.

    After each `every` steps and at the end `looked` is given the step, its loss, the task's metrics, and the weights by
    name. Another thread measures and tells, and training goes on meanwhile. It begins when `gather` volunteers have
    joined. With a `feed` each step waits for the data that it brings, and no figures are shown, since whoever feeds
    knows better ones. `settings` are those of `fedlearn serve`.

    Raises:
        ConfigError: a setting is unknown or out of its range, or the model can't be divided.
        StorageError: a file can't be written.
    """
    check_core()
    # As in a gang of torchrun, machines that reach each other here trust their network.
    open_network: dict[str, Value] = {} if is_loopback(host) else {"tls": "off"}
    usual: dict[str, Value] = {"board": 0, "volunteers": 0, "threads": 1, "audit": 0.0}
    # Only `looked` looks at the model, which is one module and can hold the weights of one step at a time.
    always: dict[str, Setting] = {"host": host, "port": port, "sample_time": 0.0}
    kind, named, config = configured(task, {**usual, **open_network, **settings}, always=always)
    with ExitStack() as held:
        listening = held.enter_context(listen(config.server.host, config.server.port))
        run = create(kind, config, named)
        held.enter_context(lock_run(run.folder))
        security = with_local(
            open_security(config.server, run.folder.path.parent, os.environ), run.folder.local_identity
        )
        trainer, _ = Trainer.open(run, feed=feed)
        held.callback(trainer.close)
        looks = held.enter_context(Looks(task, trainer.copy, every=every, on_look=looked))
        serve_run(
            trainer,
            listening,
            security,
            callbacks=[looks, Gathering(gather), *callbacks],
            terminal=Terminal(plain=True, quiet=feed is not None),
        )
        return Trained(run, trainer.replica)


def await_seat(host: str, port: int, *, name: str, threads: int = 1) -> int:
    """Volunteers for whatever is served there until it ends; gives the exit code. The server may start later."""
    server = f"{host}:{port}" if is_loopback(host) else f"fedlearn+plain://{host}:{port}"
    return join_lent(server, name=name, threads=threads, share=_MEMORY_SHARE, give_up_s=GIVE_UP_S)
