"""The text of the standard library's sources."""

from pathlib import Path

import pytest

from tests.benchmarks.conftest import Run


@pytest.mark.parametrize(("characters", "expected"), [(100, "a\nbb\nzzz\n"), (6, "a\nbb\nz")])
def test_modules_come_by_name_as_far_as_they_are_ascii(
    run_benchmark: Run, tmp_path: Path, characters: int, expected: str
) -> None:
    sources = {"b.py": b"bb\r\n", "a.py": b"a\n", "ä.py": "ä\n".encode(), "c.txt": b"c\n", "z.py": b"zzz\n"}
    for name, source in sources.items():
        (tmp_path / name).write_bytes(source)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("d\n")
    file = tmp_path / "text"
    ended = run_benchmark("stdlib_text", str(file), "--folder", str(tmp_path), "--characters", str(characters))
    assert ended.returncode == 0, ended.stderr
    assert file.read_text() == expected
