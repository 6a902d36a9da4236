"""A model that is divided among seats by what they lend."""

from collections.abc import Sequence

import msgspec
import pytest

from fedlearn.config import ConfigError
from fedlearn.tasks.invitation import Invitation

torch = pytest.importorskip("torch")

from fedlearn.config import ServerSettings  # noqa: E402
from fedlearn.graphs.crews import Machine, Plan  # noqa: E402
from fedlearn.graphs.parts import Model, Needs  # noqa: E402
from fedlearn.graphs.planner import plan  # noqa: E402
from fedlearn.server import seating  # noqa: E402
from fedlearn.server.seating import MOST_AT_ONCE, MOST_PLANNED, Draftsman, draftsman_of  # noqa: E402
from fedlearn.tasks.limits import MEMBERS_AT_LEAST, PARAMETER_BYTES  # noqa: E402
from fedlearn.tasks.torch_graph.part import GraphPart  # noqa: E402
from fedlearn.wire.activations import ActivationCodec  # noqa: E402
from tests.tasks.torch_graph.shared import N_PIECES, attachment, task  # noqa: E402

NAMES = {tensor.name for tensor in task().layout.tensors}


def draftsman(seats: int = 0, wire: ActivationCodec = "float32") -> Draftsman:
    return Draftsman.of(attachment(), seats=seats, wire=wire)


@pytest.mark.parametrize("seats", range(1, N_PIECES + 1))
def test_as_many_seats_as_are_wanted_hold_every_tensor_once(seats: int) -> None:
    draft = draftsman(seats).draft([0] * seats)
    assert draft is not None
    assert (len(draft.places), len(draft.cuts), sorted(draft.order)) == (seats, seats - 1, list(range(seats)))
    held = [name for place in draft.places for name in place.tensors]
    assert sorted(held) == sorted(NAMES)
    for place in draft.places:
        assert place.need_bytes > PARAMETER_BYTES


def test_fewer_than_are_wanted_wait() -> None:
    assert draftsman(3).draft([0, 0]) is None


def test_places_say_what_their_part_of_the_graph_sends() -> None:
    draft = draftsman(3, "int8-delta").draft([0, 0, 0])
    assert draft is not None
    parts = [GraphPart(attachment(), draft.cuts, place, seed=1, device="cpu", max_bytes=2**40) for place in range(3)]
    for place, part, following in zip(draft.places, parts, [*parts[1:], None], strict=True):
        assert set(place.tensors) == {tensor.name for tensor in part.layout.tensors}
        received = [] if following is None else list(following.receives.values())
        n_values = sum(torch.Size(shape).numel() for shape in received)
        assert place.group_bytes == 4 * n_values
        assert n_values <= place.member_bytes <= 1.2 * n_values
    exact = draftsman(3).draft([0, 0, 0])
    assert exact is not None
    assert [place.group_bytes for place in exact.places] == [0, 0, 0]
    assert [place.member_bytes for place in exact.places] == [place.group_bytes for place in draft.places]


def test_who_lends_too_little_together_waits() -> None:
    planner = draftsman()
    assert planner.draft([planner.replica_bytes // 4]) is None
    assert planner.draft([planner.replica_bytes * 4 // 5] * 2) is not None


def test_a_place_is_for_those_who_lend_enough() -> None:
    planner = draftsman()
    draft = planner.draft([planner.replica_bytes * 4 // 5] * 2)
    assert draft is not None
    for place in draft.places:
        enough = place.need_bytes
        assert [planner.fits(place, memory) for memory in (enough - 1, enough, 0)] == [False, True, True]


def test_a_batch_fits_into_what_a_place_needs() -> None:
    """Where seats are as many as memory takes: each has room for these members at once, and not for more."""
    planner = draftsman()
    draft = planner.draft([planner.replica_bytes * 4 // 5] * 2)
    assert draft is not None
    for number, place in enumerate(draft.places):
        part = GraphPart(attachment(), draft.cuts, number, seed=1, device="cpu", max_bytes=place.need_bytes)
        assert place.batch == MEMBERS_AT_LEAST
        assert place.batch * part.member_bytes() <= place.need_bytes
    whole = draftsman(2).draft([0, 0])
    assert whole is not None
    assert {place.batch for place in whole.places} == {MOST_AT_ONCE}


def test_a_batch_of_large_activations_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seating, "MESSAGE_BYTES", 3 * 2 * 4 * 8 * 16)  # of three members
    draft = draftsman(3).draft([0, 0, 0])
    assert draft is not None
    assert {place.batch for place in draft.places} == {3}


def test_a_model_that_does_not_travel_as_a_graph_is_not_divided() -> None:
    settings, invitation = ServerSettings(), Invitation("function", 1, {}, {})
    assert draftsman_of(invitation, settings) is None
    with pytest.raises(ConfigError, match="seats, shards: expected a task of a PyTorch module that travels as a graph"):
        draftsman_of(invitation, msgspec.structs.replace(settings, seats=2))


def test_more_seats_than_the_model_has_pieces_are_refused() -> None:
    settings, invitation = ServerSettings(), Invitation("graph", 1, {}, {}, attachment())
    with pytest.raises(ConfigError, match=r"seats, shards: expected a model that can be divided among 6: .* at most 5"):
        draftsman_of(invitation, msgspec.structs.replace(settings, seats=6))
    assert draftsman_of(invitation, settings) is not None


def test_who_lends_next_to_nothing_keeps_nobody_waiting_and_harms_nobody() -> None:
    planner = draftsman(2)
    assert planner.draft([1, 1]) is None
    assert "can't hold its parts" in planner.lack([1, 1])
    draft = planner.draft([1, 10**9, 5, 10**9])
    assert draft is not None
    assert draft.order == (1, 3)
    beside = planner.draft([1, 0, 0])
    assert beside is not None
    assert beside.order == (1, 2)


def test_who_lends_next_to_nothing_keeps_others_from_no_crew_of_any_size() -> None:
    planner = draftsman()
    enough = planner.replica_bytes * 4 // 5
    draft = planner.draft([1] * 30 + [enough, 1, enough])
    assert draft is not None
    assert draft.order in ((30, 32), (32, 30))


def test_a_crowd_takes_no_longer_than_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[int] = []

    def counted(model: Model, machines: Sequence[Machine], needs: Needs) -> Plan:
        planned.append(len(machines))
        return plan(model, machines, needs)

    monkeypatch.setattr(seating, "plan", counted)
    planner = draftsman()
    assert planner.draft([1000] * 20) is None
    assert planned == [], "together they lend less than a replica takes"
    assert planner.draft([planner.replica_bytes * 4 // 5] * 300) is not None
    assert planned == [MOST_PLANNED]
    few = [planner.replica_bytes - 1, 1]
    assert [planner.draft(few), planner.draft(few)] == [None, None]
    assert planned == [MOST_PLANNED, 2], "who was refused a crew is not planned with again in each step"
