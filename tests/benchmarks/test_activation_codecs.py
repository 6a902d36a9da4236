from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.run_folders import write_text

ReadJson = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")


def test_members_rank_as_they_do_exactly_where_differences_are_sent(read_json: ReadJson, tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt", 40_000)
    flags = ("--members", "96", "--steps", "60", "--sigmas", "0.001", "--text", str(text))
    report = read_json("activation_codecs", *flags)
    rows = {row["codec"]: row for row in report["rows"]}
    print({codec: (row["error"], row["rank_correlation"]) for codec, row in rows.items()})
    assert rows["float32"]["error"] == 0.0
    assert rows["int8-delta"]["error"] < 0.01
    assert rows["int8-delta"]["rank_correlation"] >= 0.99
    assert rows["int4-delta"]["error"] < 0.1
    assert rows["int4-delta"]["rank_correlation"] >= 0.98
    # What the same bits are worth where they are spent on the values themselves.
    assert rows["int8"]["error"] > rows["int8-delta"]["error"]
    sizes = {codec: row["member_bytes"] for codec, row in rows.items()}
    assert sizes["int8-delta"] == pytest.approx(sizes["float32"] / 4, rel=0.1)
    assert sizes["int4-delta"] == pytest.approx(sizes["float32"] / 7, rel=0.1)
