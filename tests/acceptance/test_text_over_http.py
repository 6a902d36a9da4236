"""The transformer's job, trained on a text by devices that came for no job in particular."""

import math
from collections import Counter
from pathlib import Path
from pydoc_data.topics import topics

import pytest

from tests.acceptance.hubs import Reader, devices_of, hub_in

pytest.importorskip("torch")
pytest.importorskip("starlette")

HELD_OUT_SHARE = 10
JOB = {"model_config": {"type": "transformer"}, "dataset_config": {"source": "gpt/data.txt"}}


def unigram_entropy(text: bytes) -> float:
    """Of what is held out, in nats: no model that only counts bytes is better."""
    held_out = text[len(text) - len(text) // HELD_OUT_SHARE :]
    return -sum(n / len(held_out) * math.log(n / len(held_out)) for n in Counter(held_out).values())


def test_a_transformer_learns_more_of_a_text_than_its_letters_from_two_devices(tmp_path: Path) -> None:
    text = "\n".join(topics[name] for name in sorted(topics)).encode()[:60_000]
    with hub_in(tmp_path) as place:
        (place.folder / "data" / "gpt").mkdir()
        (place.folder / "data" / "gpt" / "data.txt").write_bytes(text)
        assert place.curl("POST", "/api/jobs", JOB).status == 201
        with devices_of(place, "ada", "bob") as devices:
            events = Reader(f"{place.url}/api/jobs/1/events")
            assert place.curl("POST", "/api/network/train/1", {"epochs": 1}).status == 200
            place.wait(lambda job: job["status"] == "completed")
            told = events.events()
            assert [device.poll() for device in devices] == [None, None]  # they wait for the next job
            assert len(place.curl("GET", "/api/devices").content) == 2
            for device in devices:
                device.terminate()
                said, _ = device.communicate(timeout=60)
                assert "all 20 steps are done" in said
            assert place.curl("GET", "/api/devices").content == []
        assert {line["volunteers"] for line in told["training_data"]} >= {2}
        reached, counted = told["epoch_stats"][-1]["validation"]["loss"], unigram_entropy(text)
        print(f"validation loss {reached:.3f} nats, unigram entropy {counted:.3f}")
        assert reached < counted - 0.1
