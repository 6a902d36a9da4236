from collections.abc import Callable
from typing import Any

ReadJson = Callable[..., dict[str, Any]]


def test_text_of_several_blocks_is_prepared_and_trained_on_within_bounds(read_json: ReadJson) -> None:
    report = read_json("large_text", "--megabytes", "3", "--steps", "4", "--documents", "lines")
    assert report["text_mb"] >= 3
    assert report["prepared_s"] > 0
    assert report["processor_s"] > 0
    server, volunteer = report["peaks"]
    assert (server["name"], volunteer["name"]) == ("server", "volunteer")
    for peak in (server, volunteer):
        assert 10 < peak["own"] <= peak["resident"] < 500
