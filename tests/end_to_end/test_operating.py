"""What an operator does to a server that is at work, by the verbs of the command line."""

import re
from pathlib import Path

import pytest

from fedlearn.commands.command_line import main
from tests.end_to_end.processes import ended_at_exit, fedlearn, free_port, metrics_of, start, wait_for
from tests.patience import LIMIT_S

STEP = r"^step +(\d+)"


@pytest.mark.slow
def test_server_follows_its_operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def order(*arguments: str, code: int = 0) -> str:
        """In this process, which is quicker; one verb is a process of its own."""
        with pytest.raises(SystemExit) as exit_:
            main([*arguments, "--runs", str(tmp_path / "trainingRuns")])
        shown = capsys.readouterr()
        assert exit_.value.code == code, shown
        return shown.out + shown.err

    port, flags = str(free_port()), ["--volunteers", "0", "--population-limit", "640", "--hidden-size", "8"]
    server = start("server.py", "--port", port, *flags, folder=tmp_path)
    guest = start("client.py", "--server", f"127.0.0.1:{port}", "--threads", "1", "--name", "guest", folder=tmp_path)
    with ended_at_exit(server, guest):
        wait_for(server, STEP)
        found = re.fullmatch(r"run 1: paused at step (\d+)\n", fedlearn("pause", "1", folder=tmp_path))
        assert found is not None
        step = found.group(1)
        wait_for(server, "paused the run$")
        assert order("checkpoint", "1") == f"run 1: a checkpoint of step {step} was written\n"
        assert (tmp_path / f"trainingRuns/1/checkpoints/{int(step):012d}.safetensors").exists()
        assert re.search(rf"^ +1 +paused +{step} ", order("runs"), re.MULTILINE)
        changed = order("set", "1", "learning_rate", "0.5")
        assert re.match(r"run 1: learning_rate: 0\.5, it was 0\.\d+, from the next step on; ", changed)
        assert "hidden_size: expected a setting that may change" in order("set", "1", "hidden_size", "9", code=1)
        assert len(metrics_of(tmp_path)) == int(step)
        assert order("go-on", "1") == f"run 1: it goes on from step {step}\n"
        wait_for(server, rf"^step +(?!{step}\b)\d+")
        assert "guest was sent away" in order("send-away", "1", "guest")
        wait_for(guest, "refused: identity: the server's owner sent it away")
        assert guest.wait(timeout=LIMIT_S) == 1
        assert "there: none" in order("send-away", "1", "guest", code=1)
        ended = re.search(r"^run 1: all (\d+) steps are done, at step \1$", order("finish", "1"), re.MULTILINE)
        assert ended is not None
        wait_for(
            server,
            rf"all {ended[1]} steps are done; step {ended[1]} is saved; go on with: .* --steps {2 * int(ended[1])}$",
        )
        wait_for(server, r"^try next")
        assert server.wait(timeout=LIMIT_S) == 0
    assert "got none; go on with: " in order("pause", "1", code=1)
    assert "equal to" in order("replay", "1")
    assert '"learning_rate": 0.5' in (tmp_path / "trainingRuns/1/config.json").read_text()
