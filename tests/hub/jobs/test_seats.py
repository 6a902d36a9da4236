from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from fedlearn.coordination.status import RunStatus, VolunteerStatus
from fedlearn.graphs.planning.parts import ModelCosts
from fedlearn.hub.app import Hub
from fedlearn.hub.bodies import ModelConfig, Registration
from fedlearn.hub.devices import Device, Devices
from fedlearn.hub.jobs.jobs import Jobs
from fedlearn.hub.jobs.seats import held_by, n_missing
from fedlearn.hub.settings import HubSettings
from fedlearn.storage.runs import RunFolder
from fedlearn.storage.status import read_status
from tests.board.folders import show_status, volunteer
from tests.hub.conftest import LAYERS, TEXT, Scripted

FIRST, LAST = ("0.weight", "0.bias"), ("2.weight", "2.bias")


def device(number: int, name: str) -> Device:
    return Device(device_id=number, asked=Registration(name=name), address="", seen=0.0, job_id=1)


def seated(name: str, tensors: tuple[str, ...]) -> VolunteerStatus:
    return volunteer(name, phase="seated", tensors=tensors)


def status_of(folder: Path, *volunteers: VolunteerStatus, **changes: Any) -> RunStatus:  # noqa: ANN401
    run = RunFolder(folder)
    show_status(run, volunteers=volunteers, **changes)
    found = read_status(run.status, RunStatus)
    assert found is not None
    return found


def test_devices_of_one_name_hold_what_its_volunteers_do_in_their_order(tmp_path: Path) -> None:
    status = status_of(
        tmp_path, seated("ada", FIRST), volunteer("crew 1 (ada, ada)"), seated("ada", LAST), volunteer("bob")
    )
    devices = [device(4, "bob"), device(5, "ada"), device(6, "ada"), device(7, "ada"), device(8, "eve")]
    assert held_by(devices, status) == {4: ("all",), 5: FIRST, 6: LAST, 7: (), 8: ()}
    assert held_by(devices[:1], None) == {4: ()}


def test_who_waits_for_weights_or_was_in_a_run_that_ended_holds_nothing(tmp_path: Path) -> None:
    devices = [device(1, "ada")]
    assert held_by(devices, status_of(tmp_path, volunteer("ada", phase="syncing"))) == {1: ()}
    assert held_by(devices, status_of(tmp_path, seated("ada", FIRST), state="ended")) == {1: ()}


@pytest.mark.parametrize(("n_seated", "missing"), [(0, 2), (1, 2), (3, 0), (4, 2), (6, 0)])
def test_crews_are_complete_or_lack_somebody(tmp_path: Path, n_seated: int, missing: int) -> None:
    status = status_of(tmp_path, *[seated("ada", FIRST)] * n_seated, seated("a spare", ()))
    assert n_missing(3, status) == missing
    assert (n_missing(3, None), n_missing(0, status)) == (0, 0)
    assert n_missing(3, status_of(tmp_path)) == 3
    assert n_missing(3, status_of(tmp_path, *[seated("waits", ())] * 3)) == 1
    assert n_missing(3, status_of(tmp_path, seated("ada", FIRST), state="ended")) == 0


@pytest.mark.parametrize("n_layers", [1, 2])
def test_a_transformer_has_as_many_pieces_as_the_planner_finds(n_layers: int) -> None:
    pytest.importorskip("torch")
    from fedlearn.tasks.torch.small_gpt import Shape, language_task, windows_of
    from fedlearn.tasks.torch_graph.sharing import unpacked

    shape = Shape(8, 8, n_layers, 1)
    task = language_task(windows_of(b"some text " * 500, shape), shape, batch_size=4, settings={"steps": 1})
    pieces = ModelCosts.of(unpacked(task.as_graph()).graph).pieces
    assert ModelConfig(type="transformer", n_layers=n_layers).max_devices == min(len(pieces), 12)


def test_a_task_and_many_layers_take_as_many_devices_as_a_crew_has_seats() -> None:
    assert ModelConfig(type="task").max_devices == 12
    assert ModelConfig(layer_sizes=(9,) * 16).max_devices == 12
    assert ModelConfig(layer_sizes=(9,) * 4).max_devices == 3


def initialized(
    client: TestClient, n_devices: int, body: dict[str, Any] = LAYERS, *, split: bool = True
) -> dict[str, Any]:
    client.post("/api/jobs", json=body)
    for number in range(n_devices):
        client.post("/api/devices/register", json={"job_id": 1, "name": f"d{number}"})
    answer: dict[str, Any] = client.post("/api/network/initialize/1", json={"split": split}).json()
    return answer


def trained(client: TestClient, settings: HubSettings) -> RunFolder:
    """The run of a job that two devices hold between them."""
    initialized(client, 2)
    client.post("/api/network/train/1", json={})
    return Scripted.started[-1].begin(settings)


def value(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


def test_devices_share_a_model_once_it_is_initialized_and_are_told_of_what_each_holds(
    client: TestClient, hub: Hub, settings: HubSettings
) -> None:
    answer = initialized(client, 2)
    assert "2 devices hold the model between them" in answer["message"]
    assert "send one another up to 8 KB in each step" in answer["message"]  # 64 rows, 16 units, 4 bytes, there and back
    assert [device["layers"] for device in answer["devices"]] == [[], []]
    begun = client.post("/api/network/train/1", json={"quantization_bits": 8}).json()
    assert begun == {"message": "Training started", "epochs": 10, "learning_rate": None, "wire": "int8-delta"}
    server = Scripted.started[-1]
    assert [value(server.arguments, flag) for flag in ("--seats", "--wire", "--volunteers")] == ["2", "int8-delta", "0"]
    run = server.begin(settings)
    show_status(run, volunteers=(seated("d1", LAST), seated("d0", FIRST)))
    hub.jobs.tick()
    job = client.get("/api/jobs/1").json()
    assert [device["layers"] for device in job["devices"]] == [list(FIRST), list(LAST)]
    assert [device["layers"] for device in client.get("/api/devices").json()] == [list(FIRST), list(LAST)]
    assert (job["seats"], job["missing"]) == (2, 0)


def test_more_devices_than_layers_are_refused_and_idle_ones_left_alone(client: TestClient) -> None:
    assert "expected at most 2, one for each layer, got 3" in initialized(client, 3)["error"]
    assert client.get("/api/jobs/1").json()["status"] == "created"
    client.delete("/api/devices/3")
    client.post("/api/devices/register", json={"name": "idle"})
    assert client.post("/api/network/initialize/1", json={"split": True}).status_code == 200
    jobs = {device["name"]: device["job_id"] for device in client.get("/api/devices").json()}
    assert jobs == {"d0": "1", "d1": "1", "idle": None}
    client.post("/api/network/train/1", json={})
    assert client.get("/api/devices").json()[2]["job_id"] is None


@pytest.mark.parametrize(("n_devices", "split"), [(1, True), (5, False)])
def test_unless_a_model_is_split_each_device_holds_the_whole_of_it(
    client: TestClient, n_devices: int, split: bool
) -> None:
    assert "each device holds the whole model" in initialized(client, n_devices, split=split)["message"]
    assert "wire" not in client.post("/api/network/train/1", json={}).json()
    assert "--seats" not in Scripted.started[-1].arguments


def test_a_transformer_takes_seats_if_it_was_initialized(client: TestClient) -> None:
    initialized(client, 3, TEXT)
    client.post("/api/network/train/1", json={"wire": "float16"})
    assert [value(Scripted.started[-1].arguments, flag) for flag in ("--seats", "--wire")] == ["3", "float16"]


def test_a_crew_that_lacks_a_device_says_so_until_another_comes(
    client: TestClient, hub: Hub, settings: HubSettings, jobs: Jobs
) -> None:
    run = trained(client, settings)
    log = jobs.folder(hub.jobs.get(1)).log
    first_on_their_way = ((), 0), ((LAST,), 0)
    for present, missing in (*first_on_their_way, ((FIRST, LAST), 0), ((LAST,), 1), ((LAST,), 1), ((LAST, FIRST), 0)):
        show_status(run, volunteers=tuple(seated("d", tensors) for tensors in present))
        hub.jobs.tick()
        assert client.get("/api/jobs/1").json()["missing"] == missing
    said = log.read_text()
    assert said.count("of its 2 devices 1 are missing") == 1
    assert "fedlearn join --hub URL --job 1" in said
    assert said.count("all 2 devices hold their parts") == 2
    assert said.rindex("all 2 devices") > said.index("are missing")


def test_devices_of_a_job_that_begins_again_are_on_their_way(
    client: TestClient, hub: Hub, settings: HubSettings, jobs: Jobs
) -> None:
    run = trained(client, settings)
    show_status(run, volunteers=(seated("d", FIRST), seated("d", LAST)))
    hub.jobs.tick()
    client.post("/api/network/stop/1", json={})
    hub.jobs.tick()
    client.post("/api/network/train/1", json={})
    Scripted.started[-1].begin(settings)
    show_status(run, volunteers=(seated("d", FIRST),))
    hub.jobs.tick()
    assert client.get("/api/jobs/1").json()["missing"] == 0
    assert "are missing" not in jobs.folder(hub.jobs.get(1)).log.read_text()


def test_another_hub_says_what_a_crew_lacks(
    client: TestClient, hub: Hub, settings: HubSettings, devices: Devices
) -> None:
    run = trained(client, settings)
    hub.jobs.tick()
    show_status(run, volunteers=(seated("d", FIRST),))
    later = Jobs(settings, devices, clock=lambda: 0.0)
    later.take_up()
    later.tick()
    assert later.missing(later.get(1)) == 1


def test_a_device_for_any_job_goes_where_a_place_is_empty(client: TestClient, hub: Hub, settings: HubSettings) -> None:
    initialized(client, 2)
    client.post("/api/network/train/1", json={})
    client.post("/api/jobs", json=TEXT)
    client.post("/api/network/train/2", json={})
    for number, server in enumerate(Scripted.started, start=1):
        server.begin(settings, run=str(number), port=5000 + number)
    hub.jobs.tick()
    client.delete("/api/devices/1")
    client.post("/api/devices/register", json={"name": "another"})
    assert client.get("/api/devices/1/work", params={"has": ""}).json()["job_id"] == 1
