"""What users type at a hub: the job with layers, its devices, its events, its log, its model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import numpy as np
import pytest

from benchmarks.compat.made_images import write_archive
from fedlearn.hub.bodies import MAX_EPOCHS
from tests.acceptance.hubs import Place, Reader, devices_of, hub_in, skip_without
from tests.acceptance.originals import JOBS
from tests.patience import LIMIT_S

skip_without("torch", "sklearn", "starlette")

JOB, TRAINING = JOBS["classifier"], JOBS["classifier_training"]
N_TRAINING, N_HELD_OUT = 1500, 400
N_STEPS = 10 * 6
"""Ten passes over 1500 rows by 256."""


class Done(NamedTuple):
    """A job that was trained, and what was seen of it."""

    place: Place
    job: str
    answers: list[dict[str, Any]]
    """The answers to the requests that made, initialized and trained it."""
    seen: list[str]
    events: Reader
    log: Reader
    devices: list[str]
    """What each device printed."""


def trained(place: Place, training: dict[str, Any], *, split: dict[str, Any] | None = None) -> Done:
    """The job as typed, by two devices."""
    answers = [place.curl("POST", "/api/jobs", JOB).content]
    job = answers[0]["job_id"]
    number = int(job)
    seen = [place.job(number)["status"]]
    with devices_of(place, "ada", "bob", job=number) as devices:
        answers.append(place.curl("POST", f"/api/network/initialize/{job}", split).content)
        seen.append(place.job(number)["status"])
        events, log = Reader(f"{place.url}/api/jobs/{job}/events"), Reader(f"{place.url}/api/jobs/{job}/log?follow=1")
        answers.append(place.curl("POST", f"/api/network/train/{job}", training).content)
        assert place.curl("POST", f"/api/network/train/{job}", training).status == 409
        seen.append(place.job(number)["status"])
        place.wait(lambda job: job["status"] == "completed", number)
        log.end()
        seen.append(place.wait(lambda job: "accuracy" in job["validation"], number)["status"])
        said = [device.communicate(timeout=LIMIT_S)[0] for device in devices]
        assert [device.returncode for device in devices] == [0, 0], said
    return Done(place, job, answers, seen, events, log, said)


def watched(place: Place, split: dict[str, Any] | None = None) -> dict[str, list[str]]:
    """Names of the tensors that each of two devices holds, in a job that goes on until this has seen them at work."""
    job = place.curl("POST", "/api/jobs", JOB).content["job_id"]
    with devices_of(place, "ada", "bob", job=int(job)):
        place.curl("POST", f"/api/network/initialize/{job}", split)
        place.curl("POST", f"/api/network/train/{job}", {"epochs": MAX_EPOCHS})
        found = place.wait(lambda job: [bool(device["layers"]) for device in job["devices"]] == [True, True], int(job))
        place.wait(lambda _: len(speeds := speeds_of(place, job)) == 2 and min(speeds) > 0.0, int(job))
        place.wait(lambda _: place.curl("GET", "/api/teraflops").content["teraflops"] > 0.0, int(job))
        place.curl("POST", f"/api/network/stop/{job}")
        place.wait(lambda job: job["status"] == "stopped", int(job))
    return {device["name"]: device["layers"] for device in found["devices"]}


def speeds_of(place: Place, job: str) -> list[float]:
    """Teraflops of each of a job's devices."""
    found = place.curl("GET", "/api/devices/teraflops").content["devices"]
    return [one["teraflops"] for one in found if one["job_id"] == job]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with hub_in(tmp_path_factory.mktemp("hub")) as place:
        write_archive(place.folder / "data" / "MNIST.npz", N_TRAINING, N_HELD_OUT)
        yield place


@pytest.fixture(scope="module")
def done(place: Place) -> Done:
    return trained(place, TRAINING)


def test_a_job_goes_through_its_statuses_and_answers_as_typed(done: Done) -> None:
    assert done.seen == ["created", "initialized", "training", "completed"]
    assert done.answers[0] == {"message": "Job created", "job_id": "1"}
    assert done.answers[2] == {"message": "Training started", **TRAINING}
    listed = done.place.curl("GET", "/api/jobs").content["jobs"]
    assert (listed[0]["job_id"], listed[0]["devices"], listed[0]["status"]) == ("1", 0, "completed")
    assert done.place.job(1)["model_config"] == JOB["model_config"]
    assert done.place.job(1)["dataset_config"] == JOB["dataset_config"]


def test_it_learns_as_much_as_plain_sgd_of_its_rate(done: Done) -> None:
    reached = done.events.events()["epoch_stats"][-1]["accuracy"]
    print(f"accuracy {reached:.3f}")
    assert reached >= 0.44  # plain SGD in as many steps: 0.48; benchmarks/compat has as many images as MNIST


def test_each_device_left_when_its_job_ended(done: Done) -> None:
    assert all("job 1 has ended" in said for said in done.devices)
    # Who comes late finds all steps done.
    assert any(f"all {N_STEPS} steps are done" in said and "credited with" in said for said in done.devices)
    assert done.place.curl("GET", "/api/devices").content == []


def test_each_device_holds_the_whole_model_and_counts_to_the_speed_of_all(done: Done) -> None:
    assert watched(done.place) == {"ada": ["all"], "bob": ["all"]}


def test_there_is_an_event_for_each_step_and_one_for_each_pass_over_the_images(done: Done) -> None:
    found = done.events.events()
    assert set(found) == {"timing_stats", "training_data", "epoch_stats"}
    assert [line["step"] for line in found["training_data"]] == list(range(N_STEPS))
    epochs = found["epoch_stats"]
    assert [line["epoch"] for line in epochs] == list(range(1, 11))
    assert epochs[-1]["loss"] < epochs[0]["loss"]
    assert all(line["validation"].keys() == {"accuracy", "loss"} for line in epochs[1:])
    assert epochs[-1]["validated_at_step"] == N_STEPS


def test_the_log_is_live_and_says_rate_bits_and_device(done: Done) -> None:
    log = "\n".join(done.log.end())
    for said in ("learning rate: 0.1 (sgd)", "quantization: 8 bits", "device: ", "1500 images to learn", "completed"):
        assert said in log, log
    assert done.place.log() == log + "\n"


def test_the_model_loads_into_a_plain_network_which_is_as_good(done: Done, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file
    from torch import nn

    with urlopen(f"{done.place.url}/api/jobs/1/model", timeout=LIMIT_S) as response:
        (tmp_path / "model.safetensors").write_bytes(response.read())
    net = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    net.load_state_dict(load_file(tmp_path / "model.safetensors"))
    images = np.load(done.place.folder / "data" / "MNIST.npz")
    pixels = torch.as_tensor(images["x_test"]).reshape(N_HELD_OUT, 784) / 255.0
    with torch.no_grad():
        logits = net((pixels - 0.1307) / 0.3081)
    accuracy = float((logits.argmax(-1) == torch.as_tensor(images["y_test"])).float().mean())
    assert accuracy == pytest.approx(done.events.events()["epoch_stats"][-1]["accuracy"], abs=1e-6)

    for image, shares in zip(pixels[:3], logits.softmax(-1), strict=False):
        for side in (28, 56):  # a drawing may be larger
            large = image.reshape(28, 28).repeat_interleave(side // 28, 0).repeat_interleave(side // 28, 1)
            said = done.place.curl("POST", "/api/jobs/1/recognize", {"pixels": large.reshape(-1).tolist()}).content
            assert said["probabilities"] == pytest.approx(shares.tolist(), abs=1e-4)
            assert said["class"] == int(shares.argmax())
    assert done.place.curl("POST", "/api/jobs/1/recognize", {"pixels": [0.0] * 100}).status == 400


def test_a_completed_job_is_trained_on(done: Done) -> None:
    place = done.place
    assert place.curl("POST", "/api/network/train/1", {"epochs": 2}).status == 200
    job = place.wait(lambda job: job["status"] == "completed" and job["step"] == 12 * 6)
    assert (job["epochs"], job["steps"]) == (12, 12 * 6)


def test_without_a_token_only_this_machine_under_its_own_name_is_answered(done: Done) -> None:
    place = done.place
    token = (place.folder / "hub-token").read_text().strip()
    far = {"Host": "hub.example.org"}
    for method, path in (("GET", "/api/jobs"), ("POST", "/api/network/train/1"), ("GET", "/api/jobs/1/events")):
        refused = place.curl(method, path, {} if method == "POST" else None, far)
        assert (refused.status, list(refused.content)) == (401, ["error"])
    assert place.curl("GET", "/api/jobs", headers={"Authorization": f"Bearer {token}"}).status == 200
    assert place.curl("GET", "/api/jobs").status == 200
    assert place.curl("GET", "/api/jobs/7").status == 404


@pytest.mark.slow
def test_a_model_that_is_split_is_held_by_two_devices_layer_by_layer(place: Place) -> None:
    shared = watched(place, {"split": True})
    held = [name for names in shared.values() for name in names]
    assert sorted(held) == ["0.bias", "0.weight", "2.bias", "2.weight", "4.bias", "4.weight"]
    assert all(len(names) < 6 for names in shared.values())
    split = trained(place, {"epochs": 1, "learning_rate": 0.04}, split={"split": True})
    assert split.answers[2]["wire"] == "float32"
    assert "KB in each step" in split.answers[1]["message"]
    assert "crew 1 (" in "\n".join(split.log.end())
