"""The pages that users read, and the commands in them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).parents[2]
PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
SCRIPTS = {"server.py": "serve", "client.py": "join"}


class Command(NamedTuple):
    """One command of a page."""

    page: str
    text: str

    @property
    def words(self) -> list[str]:
        """Its program and arguments, without variables before it and without what becomes of its output."""
        words = shlex.split(self.text.partition(" > ")[0], comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        return words

    @property
    def program(self) -> str:
        """The program's name, without its folder."""
        return Path(self.words[0]).name

    @property
    def own_arguments(self) -> list[str] | None:
        """What follows `fedlearn`; None where it is another program."""
        words = self.words
        if self.program == "fedlearn":
            return words[1:]
        if self.program in ("python", "python3") and len(words) > 1 and words[1] in SCRIPTS:
            return [SCRIPTS[words[1]], *words[2:]]
        return None


def commands() -> Iterator[Command]:
    """Each command in a shell's fence, one after another, as often as it stands there."""
    for page in PAGES:
        for fence in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S):
            for line in fence.replace("\\\n", " ").splitlines():
                for text in line.split(" && "):
                    command = Command(page.name, text.strip())
                    if command.words:
                        yield command
