from collections.abc import Callable
from typing import Any

import es_core

ReadJson = Callable[..., dict[str, Any]]


def test_honest_kernels_are_compared_and_nobody_is_accused(read_json: ReadJson) -> None:
    rows = read_json("audits", "--audits", "20", "--hidden-sizes", "16")["rows"]
    n_others = len(es_core.supported_isas()) - 1
    assert len(rows) == 2 * (2 * n_others + 1)
    assert all(row["audits"] == 20 and row["greatest"] >= 0.0 for row in rows)
    assert not any(row["accused"] for row in rows if row["precision"] in ("float32", "int8"))
