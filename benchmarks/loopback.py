"""What sockets and event loops cost by themselves: bytes there and back between two processes on this machine."""

import asyncio
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection

READ_BYTES = 256 * 1024


def measure_exchanges(n_bytes_out: int, n_bytes_back: int, *, rounds: int) -> list[float]:
    """Seconds from the first byte out to the last byte back, in each round."""
    # A fresh process, as a volunteer is; forking would copy the threads' locks.
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_answer, args=(theirs, n_bytes_out, n_bytes_back), daemon=True)
    process.start()
    try:
        return asyncio.run(_ask(ours.recv(), n_bytes_out, n_bytes_back, rounds))
    finally:
        process.terminate()
        process.join()


async def _ask(port: int, n_bytes_out: int, n_bytes_back: int, rounds: int) -> list[float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    seconds = []
    for _ in range(rounds + 1):
        started = time.perf_counter()
        writer.write(bytes(n_bytes_out))
        await writer.drain()
        await _receive(reader, n_bytes_back)
        seconds.append(time.perf_counter() - started)
    writer.close()
    return seconds[1:]


async def _receive(reader: asyncio.StreamReader, n_bytes: int) -> bool:
    """Reads as a channel does, in pieces of any size; False at the end of the connection."""
    while n_bytes > 0:
        data = await reader.read(READ_BYTES)
        if not data:
            return False
        n_bytes -= len(data)
    return True


def _answer(pipe: "Connection", n_bytes_in: int, n_bytes_back: int) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await _receive(reader, n_bytes_in):
            writer.write(bytes(n_bytes_back))
            await writer.drain()
        writer.close()

    async def listen() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(listen())
