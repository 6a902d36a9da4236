import os
import sys
from pathlib import Path

import pytest

from fedlearn.system import files
from fedlearn.system.files import lock_file, replace, settings_folder, who_else_may_write


def test_file_that_one_process_has_is_refused_to_others_until_it_is_closed(tmp_path: Path) -> None:
    with open(tmp_path / "lock", "a+b") as first, open(tmp_path / "lock", "a+b") as second:
        assert lock_file(first.fileno())
        assert not lock_file(second.fileno())
        first.close()
        assert lock_file(second.fileno())


@pytest.mark.parametrize(("patience_s", "is_replaced"), [(2.0, True), (0.0, False)])
def test_file_that_is_open_elsewhere_is_replaced_once_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience_s: float, is_replaced: bool
) -> None:
    monkeypatch.setattr(files, "_PATIENCE_S", patience_s)
    replaced, refusals = Path.replace, [PermissionError("open elsewhere")] * 3

    def replace_or_refuse(source: Path, target: Path) -> Path:
        if refusals:
            raise refusals.pop()
        return replaced(source, target)

    monkeypatch.setattr(Path, "replace", replace_or_refuse)
    (tmp_path / "new").write_bytes(b"new")
    (tmp_path / "old").write_bytes(b"old")
    slept: list[float] = []

    def try_it() -> None:
        replace(tmp_path / "new", tmp_path / "old", clock=lambda: sum(slept), sleep=slept.append)

    if is_replaced:
        try_it()
        assert len(slept) == 3
    else:
        with pytest.raises(PermissionError):
            try_it()
    assert (tmp_path / "old").read_bytes() == (b"new" if is_replaced else b"old")


def test_settings_are_kept_where_the_person_says() -> None:
    assert settings_folder({"HOME": "/home/ada", "XDG_CONFIG_HOME": "/etc/ada"}) == Path("/etc/ada")
    assert settings_folder({"HOME": "/home/ada", "XDG_CONFIG_HOME": "ada"}) == Path("/home/ada/.config")
    assert settings_folder({"HOME": "/home/ada"}) == Path("/home/ada/.config")
    assert settings_folder({}) == Path("/nonexistent/.config")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other permissions")
@pytest.mark.parametrize(
    ("mode", "owner", "who"),
    [
        (0o755, os.getuid() if sys.platform != "win32" else 0, ""),
        (0o755, 0, ""),
        (0o755, 54321, "belongs to somebody else"),
        (0o775, 0, "its group or everybody can write to"),
        (0o757, 0, "its group or everybody can write to"),
    ],
)
def test_who_else_may_write_is_the_owner_the_group_or_everybody(mode: int, owner: int, who: str) -> None:
    assert who_else_may_write(os.stat_result((mode, 0, 0, 1, owner, 0, 0, 0, 0, 0))) == who
