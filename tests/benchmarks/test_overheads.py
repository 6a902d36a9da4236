from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).parents[2]

ReadJson = Callable[..., dict[str, Any]]


def test_costs_and_searches_are_reported(read_json: ReadJson) -> None:
    report = read_json("overheads", "--volunteers", "10", "--rounds", "2", "--steps", "5", "50")
    assert [cost["what"] for cost in report["costs"]] == [
        "5 callbacks hear of a step",
        "a status of 10 volunteers, gathered",
        "a status of 10 volunteers, written",
        "the terminal's block, drawn",
        "importing fedlearn",
    ]
    assert all(0.0 < cost["ms"]["low"] <= cost["ms"]["high"] for cost in report["costs"])
    searches = report["searches"]
    assert [(one["function"], one["steps"]) for one in searches] == [
        (function, steps) for function in ("sphere", "Rosenbrock") for steps in (5, 50)
    ]
    assert all(longer["loss"] < shorter["loss"] for shorter, longer in zip(searches[::2], searches[1::2], strict=True))


def test_docs_quote_what_was_saved() -> None:
    report = msgspec.json.decode((ROOT / "benchmarks" / "results" / "overheads.json").read_bytes())
    callbacks, gathered, written, *_ = (cost["ms"]["median"] for cost in report["costs"])
    design = " ".join((ROOT / "docs" / "design" / "steps.md").read_text(encoding="utf-8").split())
    assert f"telling five of them about a step takes {1000 * callbacks:.1f} us" in design
    assert (
        f"For {report['volunteers']:,} volunteers that takes {gathered:.1f} ms in the loop and {written:.1f} ms outside"
        in design
    )
