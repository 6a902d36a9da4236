"""Members that go through the parts of a model, one place after another."""

import msgspec
import numpy as np
import pytest

from fedlearn.client.lending.budget import MemoryBudget
from fedlearn.client.volunteer import VolunteerReplica
from fedlearn.coordination.effects import Build, Load, StoreBlock, TakeSeat
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.replica import Replica, genesis
from fedlearn.es.snapshot import Snapshot
from fedlearn.es.trials import Trials
from fedlearn.graphs.codec import decode, encode
from fedlearn.graphs.graph import ArraySpec, Call, GraphError
from fedlearn.tasks.blocks import block_name, encode_block
from fedlearn.tasks.holding import PartHolding
from fedlearn.tasks.invitation import Invitation
from fedlearn.tasks.parts.activations import ActivationCodec, member_bytes
from fedlearn.tasks.parts.computation import Pass, Passed
from fedlearn.tasks.parts.objective import PartObjective
from fedlearn.wire.messages import DataBlock, Seat, Welcome

torch = pytest.importorskip("torch")

from fedlearn.tasks.torch_graph.part import GraphPart  # noqa: E402
from fedlearn.tasks.torch_graph.sharing import Attachment  # noqa: E402
from tests.tasks.torch_graph.shared import CUTS, attachment, task, weights  # noqa: E402

GROUP = 8
TRIALS = Trials(step=0, perturbation=Perturbation(0.05, 1), group_size=GROUP, first_member=0, n_members=GROUP)
COLUMNS = dict(task().data)
BLOCK = block_name(COLUMNS)


def seat(place: int, wire: ActivationCodec = "float32", cuts: tuple[int, ...] = CUTS) -> Seat:
    return Seat(1, cuts, 1, place, wire, GROUP, 4, 0, 0)


def snapshot(part: PartObjective) -> Snapshot:
    """Of the weights of a part."""
    first = genesis(part.whole, weights(), step=0, keeps_start=False, threads=1)
    whole = Replica(part.whole, first, seed=3, row_masks=lambda _: None, threads=1)
    return whole.snapshot(part.whole.part([tensor.name for tensor in part.layout.tensors]))


def place(number: int, wire: ActivationCodec = "float32") -> PartHolding:
    """One that holds its weights and the data."""
    part = GraphPart(attachment(), CUTS, number, seed=3, device="cpu", max_bytes=2**40)
    made = PartHolding(part, wire, is_last=number == len(CUTS), seed=3, threads=1, kept=2)
    made.load(snapshot(part))
    made.store(BLOCK, COLUMNS)
    return made


def part_of(first: int, count: int, payload: bytes = b"") -> Pass:
    return Pass(msgspec.structs.replace(TRIALS, first_member=first, n_members=count), BLOCK, payload)


def losses(wire: ActivationCodec, batches: list[tuple[int, int]]) -> list[float]:
    places = [place(number, wire) for number in range(3)]
    found: list[float] = []
    for first, count in batches:
        passed = Passed()
        for each in places:
            passed = each.passed(part_of(first, count, passed.payload))
        assert passed.results is not None
        found += passed.results.losses.tolist()
    return found


def test_members_give_the_same_in_one_batch_and_in_several() -> None:
    assert losses("float32", [(0, 3), (3, 5)]) == pytest.approx(losses("float32", [(0, 8)]), rel=1e-6)


@pytest.mark.parametrize(("wire", "share"), [("float16", 0.1), ("int8-delta", 0.03), ("int4-delta", 0.3)])
def test_what_travels_in_short_errs_by_little_of_the_spread(wire: ActivationCodec, share: float) -> None:
    exact = np.array(losses("float32", [(0, 8)]))
    short = np.array(losses(wire, [(0, 3), (3, 5)]))
    assert 0 < np.abs(short - exact).max() < share * exact.std()


def test_the_base_is_sent_where_a_group_begins() -> None:
    first = place(0, "int8-delta")
    lengths = [len(first.passed(part_of(*span)).payload) for span in [(0, 3), (3, 3), (8, 3)]]
    of_members = 3 * sum(member_bytes("int8-delta", shape) for shape in place(1).part.receives.values())
    of_base = sum(4 * int(np.prod(shape)) for shape in place(1).part.receives.values())
    assert lengths == [of_members + of_base, of_members, of_members + of_base]


@pytest.mark.parametrize("wire", ["float32", "int8-delta"])
def test_activations_of_another_length_are_refused(wire: ActivationCodec) -> None:
    sent = place(0, wire).passed(part_of(0, 3)).payload
    for payload in (b"", sent[:-1], sent + b"\0"):
        with pytest.raises(ValueError, match=r"activations: expected \d+ bytes of 3 members"):
            place(1, wire).passed(part_of(0, 3, payload))


def test_what_cannot_be_decoded_becomes_losses_that_are_none() -> None:
    """The neighbour lied; whoever gets it says so, and stays."""
    sent = place(0, "int8-delta").passed(part_of(0, 3)).payload
    scale_of_last = np.float32(np.inf).tobytes()
    damaged = place(1, "int8-delta").passed(part_of(0, 3, sent[:-4] + scale_of_last)).payload
    results = place(2, "int8-delta").passed(part_of(0, 3, damaged)).results
    assert results is not None
    assert np.isnan(results.losses).all()


# ---- what a server may ask of a seat


def build_of(sent: bytes) -> Build:
    return Build(Welcome("1", Invitation("graph", 3, {}, {}, sent)))


def altered(**changes: object) -> bytes:
    """The attachment with a changed graph."""
    sent = msgspec.msgpack.decode(attachment(), type=Attachment)
    graph = encode(msgspec.structs.replace(decode(sent.graph), **changes))
    return msgspec.msgpack.encode(msgspec.structs.replace(sent, graph=graph))


def volunteer(max_bytes: int) -> VolunteerReplica:
    made = VolunteerReplica(1, budget=MemoryBudget(max_bytes))
    made.perform(build_of(attachment()))
    return made


def seated(max_bytes: int = 10**6) -> VolunteerReplica:
    made = volunteer(max_bytes)
    made.perform(TakeSeat(seat(0)))
    made.perform(StoreBlock(DataBlock(BLOCK, encode_block(COLUMNS))))
    made.perform(Load(snapshot(place(0).part)))
    return made


@pytest.mark.parametrize("max_bytes", [1000, 20_000])
def test_a_model_beyond_the_memory_that_is_lent_leaves_the_volunteer_waiting_for_a_part(max_bytes: int) -> None:
    assert " expected " in volunteer(max_bytes).lacks
    assert volunteer(10**6).lacks == ""


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"outputs": ("nothing",)}, "expected the result of a call as its output"),
        ({"calls": (Call(("loss",), "a.new.one", ()),)}, "not an operator that volunteers run"),
        ({"inputs": (ArraySpec("x", (8, 5)), ArraySpec("y", (8,))), "forms": ()}, "its arguments do not fit"),
    ],
)
def test_a_graph_that_nobody_can_run_is_refused_and_not_waited_for(changes: dict[str, object], answer: str) -> None:
    made = VolunteerReplica(1, budget=MemoryBudget(10**6))
    with pytest.raises(GraphError, match=answer):
        made.perform(build_of(altered(**changes)))
    with pytest.raises(GraphError):
        made.perform(build_of(b"no attachment"))


def test_a_machine_without_pytorch_waits_for_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr("fedlearn.tasks.torch_graph.kind.received", missing)
    with pytest.raises(ValueError, match=r"expected PyTorch.*pip install"):
        volunteer(10**6)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (seat(3), "seat: expected a place from 0 to 2, got 3"),
        (seat(2**62), "seat: expected a place from 0 to 2"),
        (seat(0, cuts=(2**62,)), "cuts: expected ascending numbers from 1 to 4"),
        (seat(0, cuts=tuple(range(1, 256))), "cuts: expected ascending numbers from 1 to 4"),
    ],
)
def test_a_seat_that_there_is_not_is_refused(asked: Seat, answer: str) -> None:
    with pytest.raises(ValueError, match=answer):
        volunteer(10**6).perform(TakeSeat(asked))


def test_a_part_beyond_the_memory_that_is_lent_is_refused() -> None:
    with pytest.raises(ValueError, match="expected"):
        volunteer(1000).perform(TakeSeat(seat(0)))


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"n_members": 2**60, "group_size": 2**62}, "members: expected some of one group of at most 1048576"),
        ({"n_members": 2**20, "group_size": 2**20}, "memory: expected work that fits into 1 MB"),
        ({"first_member": 4}, "members: expected some of one group"),
        ({"n_members": 0}, "members: expected some of one group"),
        ({"first_member": 2**63 - 8}, "trials: expected members below 2"),
        ({"step": 2**32}, "trials: expected members below"),
        ({"perturbation": Perturbation(0.1, 2**50)}, "work: expected at most"),
    ],
)
def test_members_beyond_reason_are_refused_before_they_are_begun(changes: dict[str, int], answer: str) -> None:
    made = seated()
    assert isinstance(made.perform(part_of(0, GROUP)), Passed)
    with pytest.raises(ValueError, match=answer):
        made.perform(Pass(msgspec.structs.replace(TRIALS, **changes), BLOCK, b""))
