"""What importing the library costs whoever only wants a part of it."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


def test_importing_the_library_brings_neither_torch_nor_numpy_along() -> None:
    program = "import sys, fedlearn; print(sorted({'torch', 'numpy', 'gymnasium', 'rich'} & set(sys.modules)))"
    assert outcome(program) == "[]\n"


@pytest.mark.parametrize(
    ("verb", "foreign"),
    [("serve", {"torch", "fedlearn.client", "starlette"}), ("join", {"torch", "fedlearn.server", "fedlearn.data"})],
)
def test_a_verb_brings_no_code_along_of_verbs_that_nobody_named(verb: str, foreign: set[str]) -> None:
    program = f"""if True:
        import sys
        from fedlearn.commands.command_line import main
        try:
            main(["{verb}", "--help"])
        except SystemExit as ended:
            print(ended.code, {foreign} & sys.modules.keys())
    """
    assert outcome(program).splitlines()[-1] == "0 set()"


def outcome(program: str) -> str:
    """What a program prints."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
