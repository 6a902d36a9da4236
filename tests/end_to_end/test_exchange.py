"""Real processes that sum their own members' gradients: everybody takes the same steps, and so does a replay."""

from pathlib import Path

from fedlearn.storage.journal.journal import read_journal
from tests.end_to_end.processes import (
    SHORT_STEPS,
    ended_at_exit,
    fedlearn,
    final_digest,
    metrics_of,
    start,
    start_anew,
    wait_for,
)
from tests.patience import LIMIT_S


def test_volunteers_that_sum_hold_what_the_server_holds(tmp_path: Path) -> None:
    settings = ["--exchange", "sum", "--steps", "10", "--volunteers", "0", "--port", "0", "--hidden-size", "16"]
    # Forks have one order of sets among them; this server has another.
    server = start_anew("server.py", *settings, *SHORT_STEPS, folder=tmp_path)
    with ended_at_exit(server):
        port, _ = wait_for(server, r"listening on 127\.0\.0\.1:(\d+)")
        address = ["--server", f"127.0.0.1:{port}", "--threads", "1", "--once"]
        clients = [start("client.py", *address, "--name", name, folder=tmp_path) for name in ("Ada", "Bob")]
        with ended_at_exit(*clients):
            _, said = wait_for(server, "all 10 steps are done")
            assert "drifted" not in said
            assert "false" not in said
            assert server.wait(timeout=LIMIT_S) == 0
            digests = {final_digest(client) for client in clients}
    metrics = metrics_of(tmp_path)
    print(f"bytes in and out of the last step: {metrics[-1]['bytes_in']}, {metrics[-1]['bytes_out']}")
    assert digests == {metrics[-1]["digest"]}
    updates = list(read_journal(tmp_path / "trainingRuns/1/journal"))
    assert [update.is_summed for update in updates] == [False] + [True] * 9
    assert "equal to" in fedlearn("replay", "1", folder=tmp_path)
