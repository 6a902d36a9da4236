import shlex

from fedlearn.commands.command_line import _parser
from fedlearn.launch.launchers.torchrun import Torchrun, torchrun_line


def test_line_starts_one_rank_more_than_volunteers() -> None:
    order = Torchrun(count=3, server="127.0.0.1:4321", task="my task.py:t", flags=("--prompt", "a 'b'"))
    words = shlex.split(torchrun_line(order))
    assert words[:5] == ["torchrun", "--nproc-per-node", "4", "--max-restarts", "3"]
    assert words[5:8] == ["-m", "fedlearn", "rank"]
    options = _parser("fedlearn").parse_args(words[7:])
    assert (options.task, options.flags) == ("my task.py:t", ["--port", "4321", "--prompt", "a 'b'"])
