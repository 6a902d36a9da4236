import re
import subprocess
import sys

from tests.end_to_end.processes import ROOT


def test_changed_conversations_end_in_a_protocol_error_or_are_heard_to_their_end() -> None:
    script = str(ROOT / "fuzz" / "conversations.py")
    command = [sys.executable, script, "--cases", "1000", "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    assert re.search(r"^1000 cases from seed 1 .*: no other end$", done.stdout, re.MULTILINE)
    # Most go deep enough to be told by what they say.
    assert re.search(r"\d{2,} heard to its end", done.stdout)
    assert re.search(r"\d{2,} Result", done.stdout)
