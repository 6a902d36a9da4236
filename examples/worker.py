"""A worker of `boss.py`, which holds whatever part of the model the boss gives it. Needs fedlearn[torch].

MODEL_HOST=127.0.0.1 MODEL_PORT=1024 python examples/worker.py
"""

import os
import socket
import sys

from fedlearn.compat import await_seat

if __name__ == "__main__":
    host, port = os.environ.get("MODEL_HOST", "127.0.0.1"), int(os.environ.get("MODEL_PORT", "1024"))
    sys.exit(await_seat(host, port, name=f"{socket.gethostname()}-{os.getpid()}"))
