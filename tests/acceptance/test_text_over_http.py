"""The transformer's job, trained on a text by devices that came for no job in particular."""

import math
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pytest

from fedlearn.hub.bodies import MAX_EPOCHS
from tests.acceptance.hubs import Place, Reader, devices_of, hub_in, skip_without
from tests.acceptance.originals import JOBS
from tests.patience import LIMIT_S

skip_without("torch", "starlette")
pytestmark = pytest.mark.long

HELD_OUT_SHARE = 10
JOB = JOBS["transformer"]
SMALLER = {**JOB, "model_config": {"type": "transformer", "width": 32, "n_layers": 1, "n_heads": 2}}


def unigram_entropy(text: bytes) -> float:
    """Of what is held out, in nats: no model that only counts bytes is better."""
    held_out = text[len(text) - len(text) // HELD_OUT_SHARE :]
    return -sum(n / len(held_out) * math.log(n / len(held_out)) for n in Counter(held_out).values())


TEXT = "\n".join(topics[name] for name in sorted(topics)).encode()[:60_000]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A hub that has the text."""
    with hub_in(tmp_path) as place:
        (place.folder / "data" / "gpt").mkdir()
        (place.folder / "data" / "gpt" / "data.txt").write_bytes(TEXT)
        yield place


def assert_learned(events: dict[str, list[dict[str, Any]]]) -> None:
    reached, counted = events["epoch_stats"][-1]["validation"]["loss"], unigram_entropy(TEXT)
    print(f"validation loss {reached:.3f} nats, unigram entropy {counted:.3f}")
    assert reached < counted - 0.1


def test_a_transformer_needs_no_devices_and_learns_more_of_a_text_than_its_letters(place: Place) -> None:
    assert place.curl("POST", "/api/jobs", JOB).status == 201
    assert place.curl("POST", "/api/network/train/1", {"epochs": 1}).status == 200
    events = Reader(f"{place.url}/api/jobs/1/events")
    place.wait(lambda job: job["status"] == "completed")
    assert_learned(events.events())


def test_two_devices_train_it_each_with_a_whole_model(place: Place) -> None:
    assert place.curl("POST", "/api/jobs", SMALLER).status == 201
    with devices_of(place, "ada", "bob") as devices:
        assert place.curl("POST", "/api/network/train/1", {"epochs": MAX_EPOCHS}).status == 200
        job = place.wait(lambda job: [device["layers"] for device in job["devices"]] == [["all"], ["all"]])
        assert job["seats"] == 0
        place.wait(lambda job: job["validation"].get("loss", math.inf) < unigram_entropy(TEXT) - 0.1)
        assert place.curl("POST", "/api/network/stop/1").status == 200
        place.wait(lambda job: job["status"] == "stopped")
        assert_wait_for_the_next_job(place, devices, "this machine took [1-9]")


def test_two_devices_train_it_both_with_one(place: Place) -> None:
    assert place.curl("POST", "/api/jobs", SMALLER).status == 201
    with devices_of(place, "ada", "bob") as devices:
        assert place.curl("POST", "/api/network/initialize/1", {"split": True}).status == 200
        events = Reader(f"{place.url}/api/jobs/1/events")
        assert place.curl("POST", "/api/network/train/1", {"epochs": 1}).status == 200
        job = place.wait(lambda job: [bool(device["layers"]) for device in job["devices"]] == [True, True])
        assert job["seats"] == 2
        place.wait(lambda job: job["status"] == "completed")
        told = events.events()
        assert_wait_for_the_next_job(place, devices, f"all {job['steps']} steps are done")
    first, second = [set(device["layers"]) for device in job["devices"]]
    assert not first & second
    assert max(line["volunteers"] for line in told["training_data"]) == 2
    assert_learned(told)


def assert_wait_for_the_next_job(place: Place, devices: list[subprocess.Popen[str]], pattern: str) -> None:
    """Devices are there after a job, which each of them told of."""
    assert [device.poll() for device in devices] == [None, None]
    assert len(place.curl("GET", "/api/devices").content) == 2
    for device in devices:
        device.terminate()
        said, _ = device.communicate(timeout=LIMIT_S)
        assert re.search(pattern, said), said
    assert place.curl("GET", "/api/devices").content == []
