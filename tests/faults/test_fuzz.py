import re
import subprocess
import sys

import pytest

from tests.end_to_end.processes import ROOT, run


def test_changed_conversations_end_in_a_protocol_error_or_are_heard_to_their_end() -> None:
    done = run("fuzz/conversations.py", "--cases", "1000", "--seed", "1", folder=ROOT)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    assert re.search(r"^1000 cases from seed 1 .*: no other end$", done.stdout, re.MULTILINE)
    # Most go deep enough to be told by what they say.
    assert re.search(r"\d{2,} heard to its end", done.stdout)
    assert re.search(r"\d{2,} Result", done.stdout)


DECODERS = ("npz", "idx", "idx-packed", "graph", "attachment", "message", "activation", "block", "options", "rows")


@pytest.mark.parametrize("name", ["crews", "relays"])
def test_peers_that_say_anything_stop_nobody_else(name: str) -> None:
    done = run(f"fuzz/{name}.py", "--cases", "20", "--seed", "1", folder=ROOT)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rf"20 cases from seed 1, \d{{3}} messages: the {name} went on\n", done.stdout)


@pytest.mark.parametrize(
    "command",
    [
        *(["frames.py", "server"], ["frames.py", "volunteer"], ["files.py"]),
        *(["decoders.py", decoder] for decoder in DECODERS),
    ],
    ids=" ".join,
)
def test_what_fuzzing_begins_with_is_read_as_it_should_be(command: list[str]) -> None:
    script, *reader = command
    done = run(f"fuzz/{script}", *reader, "--only-seeds", folder=ROOT)
    assert done.returncode == 0, done.stderr
    assert re.match(r"\d+ seeds", done.stdout)


@pytest.mark.parametrize("command", [["frames.py", "connection"], ["files.py"]], ids=" ".join)
def test_fuzzing_without_its_library_names_it(command: list[str]) -> None:
    script = str(ROOT / "fuzz" / command[0])
    code = f"import runpy, sys; sys.modules['atheris'] = None; sys.argv = {[script, *command[1:]]}"
    code += f"; sys.path.insert(0, {str(ROOT / 'fuzz')!r}); runpy.run_path({script!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 1
    assert "install it with: pip install atheris" in done.stderr
    assert "Traceback" not in done.stderr
