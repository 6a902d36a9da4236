"""Another text than tinyshakespeare, which everybody has: the beginning of the standard library's sources.

Modules come in the order of their names, whole, as far as they are ASCII; the last one is cut off.
"""

import argparse
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path


def main() -> int:
    """Writes the text; gives the exit code."""
    parser = argparse.ArgumentParser(description="Writes sources of the standard library into one file.")
    parser.add_argument("file", type=Path, help="where to; what is there is replaced")
    parser.add_argument(
        "--folder", type=Path, default=Path(sysconfig.get_path("stdlib")), help="of modules (default: those of Python)"
    )
    parser.add_argument("--characters", type=int, default=3_000_000, help="at most (default: 3000000)")
    options = parser.parse_args()
    text = "".join(modules(options.folder))[: options.characters]
    options.file.write_text(text, encoding="ascii", newline="\n")
    print(f"{options.file}: {len(text):,} characters of Python {sys.version_info.major}.{sys.version_info.minor}")
    return 0


def modules(folder: Path) -> Iterator[str]:
    """Sources of the modules in a folder, those of packages not counted."""
    for path in sorted(folder.glob("*.py")):
        source = path.read_bytes()
        if source.isascii():
            yield source.decode("ascii").replace("\r\n", "\n")


if __name__ == "__main__":
    sys.exit(main())
