"""What a volunteer of Windows meets, on a stand-in: see windows.py."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.end_to_end.processes import ended_at_exit, free_port, output_of, start, start_anew, wait_for
from tests.patience import LIMIT_S

ROOT = Path(__file__).parents[2]
STAND_IN = "tests/system/windows.py"
PACE = ["--time-per-step", "0.2", "--population-limit", "100000"]


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, STAND_IN, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_line_begins() -> None:
    assert "--only-when-idle" in run("join", "--help")


def test_every_module_of_a_client_can_be_imported() -> None:
    program = """
import importlib, pathlib
for folder in ("client", "net", "system", "storage", "wire", "coordination"):
    for path in sorted(pathlib.Path("fedlearn", folder).rglob("*.py")):
        importlib.import_module(".".join(path.with_suffix("").parts))
import fcntl
"""
    done = subprocess.run(
        [sys.executable, STAND_IN, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "import of fcntl halted" in done.stderr, done.stderr
    assert done.stderr.count("Traceback") == 1


def test_one_process_has_a_file_and_others_read_who(tmp_path: Path) -> None:
    program = f"""
from pathlib import Path
from fedlearn.storage.durable import StorageError, write_durably
from fedlearn.storage.runs import RunFolder, lock_run
run = RunFolder(Path({str(tmp_path)!r}))
with lock_run(run):
    try:
        with lock_run(run): print("twice")
    except StorageError as error: print(error)
write_durably(run.path / "file", b"whole")
"""
    assert "expected a run that no process uses, but process " in run("-c", program)
    assert (tmp_path / "file").read_bytes() == b"whole"


def test_process_gives_way_and_has_no_limits_of_its_own() -> None:
    program = """
import psutil, sys
from fedlearn.system import processes
processes.give_way(); processes.limit_growth(0); processes.keep_memory()
print(psutil.Process().nice(), processes.open_files() == sys.maxsize)
"""
    assert run("-c", program) == "19 True\n"


def test_settings_are_kept_where_programs_of_windows_keep_them() -> None:
    program = "from fedlearn.system.files import settings_folder; print(settings_folder({'APPDATA': '/roaming'}))"
    assert run("-c", program) == "/roaming\n"


def test_supervisor_says_what_to_do_without_it() -> None:
    command = [sys.executable, STAND_IN, "serve", "--supervise"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "got Windows; leave it out" in done.stderr


def test_volunteer_takes_part_and_leaves(tmp_path: Path) -> None:
    (tmp_path / "fit.py").write_text(
        "import numpy as np\nimport fedlearn\n\n\ndef loss(arrays):\n"
        '    return float((arrays["vector"] ** 2).mean())\n\n\ntask = fedlearn.function(loss, {"vector": np.ones(8)})\n'
    )
    port = str(free_port())
    task = ["--task", "fit.py:task"]
    server = start("server.py", *task, "--volunteers", "0", "--port", port, *PACE, folder=tmp_path, limit_s=40.0)
    with ended_at_exit(server):
        wait_for(server, "listening on")
        flags = [*task, "--server", f"127.0.0.1:{port}", "--name", "Ada", "--threads", "1", "--on-battery", "yes"]
        client = start_anew(STAND_IN, "join", *flags, folder=tmp_path, limit_s=40.0)
        with ended_at_exit(client):
            wait_for(server, "Ada joined")
            wait_for(server, r"^step +\d+")
            client.send_signal(signal.SIGINT)
            assert "the volunteer left" in output_of(client).read()
            assert client.wait() == 0
