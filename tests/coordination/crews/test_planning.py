"""A model that is divided among seats by what they lend."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from fedlearn.config import ConfigError, RunConfig, Schema
from fedlearn.coordination.crews.crew_plan import StageSpec
from fedlearn.graphs.graph import GraphError
from fedlearn.graphs.planning.crews import Machine, PlannedCrews
from fedlearn.graphs.planning.fitting import Cutting, Cuttings, Divide, fitting
from fedlearn.graphs.planning.parts import Needs
from fedlearn.graphs.shards import rows_of
from fedlearn.tasks.invitation import Invitation
from fedlearn.tasks.parts.layout import part_layout

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from fedlearn.coordination.crews import planning as seating  # noqa: E402
from fedlearn.coordination.crews.planning import MOST_AT_ONCE, MOST_PLANNED, CrewPlanner, crew_planner_of, undivided_of  # noqa: E402
from fedlearn.tasks.limits import MEMBERS_AT_LEAST, PARAMETER_BYTES  # noqa: E402
from fedlearn.tasks.parts.activations import ActivationCodec  # noqa: E402
from fedlearn.tasks.torch.supervised import supervised  # noqa: E402
from fedlearn.tasks.torch_graph.part import GraphPart  # noqa: E402
from fedlearn.tasks.torch_graph.sharing import unpacked  # noqa: E402
from fedlearn.tasks.user.task_options import TaskOptions  # noqa: E402
from tests.tasks.torch_graph.shared import N_PIECES, attachment, task  # noqa: E402

NAMES = {tensor.name for tensor in task().layout.tensors}


def draftsman(seats: int = 0, wire: ActivationCodec = "float32") -> CrewPlanner:
    return CrewPlanner.of(attachment(), seats=seats, wire=wire)


@pytest.mark.parametrize("seats", range(1, N_PIECES + 1))
def test_as_many_seats_as_are_wanted_hold_every_tensor_once(seats: int) -> None:
    draft = draftsman(seats).draft([0] * seats)
    assert draft is not None
    assert (len(draft.stages), len(draft.cuts), sorted(draft.order)) == (seats, seats - 1, list(range(seats)))
    held = [name for place in draft.stages for name in place.tensors]
    assert sorted(held) == sorted(NAMES)
    for place in draft.stages:
        assert place.need_bytes > PARAMETER_BYTES


@pytest.mark.parametrize(("seats", "there"), [(3, 2), (5, 3), (5, 4)])
def test_fewer_than_are_wanted_wait_unless_they_are_to_make_do(seats: int, there: int) -> None:
    planner = draftsman(seats)
    assert planner.draft([0] * there) is None
    draft = planner.draft([0] * there, fewer=True)
    assert draft is not None
    assert (len(draft.stages), draft.order) == (there, tuple(range(there)))
    assert sorted(name for stage in draft.stages for name in stage.tensors) == sorted(NAMES)
    assert planner.draft([], fewer=True) is None
    assert planner.draft([0] * (seats + 1), fewer=True) == planner.draft([0] * (seats + 1))


def test_fewer_that_lend_too_little_wait_and_are_seated_once_they_are_enough() -> None:
    planner = draftsman(3)
    little = planner.replica_bytes // 4
    assert planner.draft([little] * 2, fewer=True) is None
    assert planner.draft([little] * 2, fewer=True) is None
    assert planner.draft([0, 0], fewer=True) is not None


def test_fewer_seats_than_there_are_shards_hold_several_each() -> None:
    planner = CrewPlanner.of(words(), seats=3, wire="float32", shards=3)
    for n_seats in (1, 2, 3):
        draft = planner.draft([0] * n_seats, fewer=True)
        assert draft is not None
        assert (draft.shards, len(draft.stages)) == (3, n_seats)
        held = [name for stage in draft.stages for name in stage.tensors if "[" in name]
        assert len(set(held)) == 6  # weight and bias of three shards


def test_places_say_what_their_part_of_the_graph_sends() -> None:
    draft = draftsman(3, "int8-delta").draft([0, 0, 0])
    assert draft is not None
    parts = [GraphPart(attachment(), draft.cuts, place, seed=1, device="cpu", max_bytes=2**40) for place in range(3)]
    for place, part, following in zip(draft.stages, parts, [*parts[1:], None], strict=True):
        assert set(place.tensors) == {tensor.name for tensor in part.layout.tensors}
        received = [] if following is None else list(following.receives.values())
        n_values = sum(torch.Size(shape).numel() for shape in received)
        assert place.group_bytes == 4 * n_values
        assert n_values <= place.member_bytes <= 1.2 * n_values
    exact = draftsman(3).draft([0, 0, 0])
    assert exact is not None
    assert [place.group_bytes for place in exact.stages] == [0, 0, 0]
    assert [place.member_bytes for place in exact.stages] == [place.group_bytes for place in draft.stages]


def test_who_lends_too_little_together_waits() -> None:
    planner = draftsman()
    assert planner.draft([planner.replica_bytes // 4]) is None
    assert planner.draft([planner.replica_bytes * 4 // 5] * 2) is not None


def test_a_place_is_for_those_who_lend_enough() -> None:
    planner = draftsman()
    draft = planner.draft([planner.replica_bytes * 4 // 5] * 2)
    assert draft is not None
    for place in draft.stages:
        enough = place.need_bytes
        assert [planner.fits(place, memory) for memory in (enough - 1, enough, 0)] == [False, True, True]


def test_a_batch_fits_into_what_a_place_needs() -> None:
    """Where seats are as many as memory takes: each has room for these members at once, and not for more."""
    planner = draftsman()
    draft = planner.draft([planner.replica_bytes * 4 // 5] * 2)
    assert draft is not None
    for number, place in enumerate(draft.stages):
        part = GraphPart(attachment(), draft.cuts, number, seed=1, device="cpu", max_bytes=place.need_bytes)
        assert 1 < place.batch <= MEMBERS_AT_LEAST
        assert place.batch * part.member_bytes() <= place.need_bytes
    whole = draftsman(2).draft([0, 0])
    assert whole is not None
    assert {place.batch for place in whole.stages} == {MOST_AT_ONCE}


def test_what_may_wait_at_a_place_is_a_quarter_of_what_its_volunteer_lends() -> None:
    planner = draftsman(3)
    least = planner.replica_bytes
    draft = planner.draft([least, 2 * least, 3 * least])
    assert draft is not None
    assert draft.window >= 2
    assert [place.waiting_bytes for place in draft.stages] == [
        0,
        *(draft.window * (place.batch * place.member_bytes + place.group_bytes) for place in draft.stages[:-1]),
    ]
    lent = [(number + 1) * least for number in draft.order]
    assert all(4 * place.waiting_bytes <= its for place, its in zip(draft.stages, lent, strict=True))
    assert any(
        4 * (draft.window + 1) * place.waiting_bytes > draft.window * its
        for place, its in zip(draft.stages, lent, strict=True)
    ), "no room is left unused"


def test_a_place_where_much_may_wait_is_for_those_who_lend_enough_for_that() -> None:
    place = StageSpec(("a",), need_bytes=100, member_bytes=0, group_bytes=0, batch=1, waiting_bytes=30)
    assert [draftsman().fits(place, memory) for memory in (100, 119, 120, 0)] == [False, False, True, True]


def test_a_batch_of_large_activations_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seating, "MESSAGE_BYTES", 3 * 2 * 4 * 8 * 16)  # of three members
    draft = draftsman(3).draft([0, 0, 0])
    assert draft is not None
    assert {place.batch for place in draft.stages} == {3}


def config_of(**values: int | str) -> RunConfig:
    return Schema(TaskOptions).build(values)


def test_a_model_that_does_not_travel_as_a_graph_is_not_divided() -> None:
    invitation = Invitation("function", 1, {}, {})
    assert crew_planner_of(invitation, config_of(optimizer="adam")) is None
    with pytest.raises(ConfigError, match="seats, shards: expected a task of a PyTorch module that travels as a graph"):
        crew_planner_of(invitation, config_of(optimizer="adam", seats=2))


def test_more_seats_than_the_model_has_pieces_are_refused() -> None:
    invitation = Invitation("graph", 1, {}, {}, attachment())
    with pytest.raises(ConfigError, match=r"seats, shards: expected a model that can be divided among 6: .* at most 5"):
        crew_planner_of(invitation, config_of(optimizer="adam", seats=6))
    assert crew_planner_of(invitation, config_of(optimizer="adam")) is not None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"measure": "gradients", "group_size": 1, "optimizer": "adam"}, "local_steps: expected 1 where crews hold"),
        ({"optimizer": "clipup"}, "optimizer: expected a rule that steps each tensor by itself, such as adam, where"),
    ],
)
def test_what_needs_the_whole_model_is_not_divided(given: dict[str, int | str], message: str) -> None:
    invitation = Invitation("graph", 1, {}, {}, attachment())
    assert crew_planner_of(invitation, config_of(**given)) is None
    for wanted in ({"seats": 2}, {"shards": 2}):
        with pytest.raises(ConfigError, match=message):
            crew_planner_of(invitation, config_of(**given, **wanted))


@pytest.mark.parametrize(
    ("given", "flag"),
    [
        ({"measure": "gradients", "group_size": 1}, "--local-steps 1"),
        ({"measure": "losses", "optimizer": "clipup"}, "--optimizer adam"),
        ({"measure": "losses", "optimizer": "muon"}, ""),
        ({"measure": "gradients", "group_size": 1, "local_steps": 1}, ""),
    ],
)
def test_what_would_let_crews_hold_the_model_is_known(given: dict[str, int | str], flag: str) -> None:
    invitation, config = Invitation("graph", 1, {}, {}, attachment()), config_of(**given)
    replica_bytes, said = undivided_of(invitation, config)
    assert said == flag
    assert (replica_bytes > 0) == bool(flag)
    # A sum of gradients takes memory as well.
    assert not flag or (replica_bytes > draftsman().replica_bytes) == (given["measure"] == "gradients")
    assert undivided_of(Invitation("function", 1, {}, {}), config) == (0, "")


def test_a_planner_of_gradients_counts_what_comes_back() -> None:
    planner = CrewPlanner.of(attachment(), seats=3, wire="int8-delta", comes_back=True)
    losses = draftsman(seats=3, wire="int8-delta")
    draft, forward = planner.draft([0, 0, 0]), losses.draft([0, 0, 0])
    assert draft is not None
    assert forward is not None
    first, stem, last = draft.stages
    assert [stage.group_bytes for stage in draft.stages] == [0, 0, 0], "there is nothing to differ from"
    assert [stage.received_bytes for stage in draft.stages] == [0, first.member_bytes, stem.member_bytes]
    waiting = draft.window * stem.batch
    assert first.waiting_bytes == waiting * first.member_bytes
    assert stem.waiting_bytes == waiting * (first.member_bytes + stem.member_bytes)
    assert last.waiting_bytes == waiting * stem.member_bytes
    assert all(its.need_bytes > other.need_bytes for its, other in zip(draft.stages, forward.stages, strict=True))
    assert [stage.received_bytes for stage in forward.stages] == [0, 0, 0]


def test_a_hidden_matrix_that_is_stepped_as_a_whole_is_not_cut() -> None:
    crew = CrewPlanner.of(words(), seats=3, wire="float32", shards=2, by_matrix=True).draft([0, 0, 0])
    assert crew is not None, "the head is none"
    shared = unpacked(words())
    head = [array.name for array in shared.graph.learned if array.shape == (512, 32)][-1]
    with pytest.raises(GraphError, match=f"expected a tensor that may be cut, got {head}"):
        CrewPlanner(shared.graph, seats=3, wire="float32", shards=2, whole=frozenset([head]))


def language(size: int, width: int) -> nn.Module:
    return nn.Sequential(nn.Embedding(size, width), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, size))


def next_token(model: nn.Module, rows: dict[str, Tensor]) -> Tensor:
    logits = model(rows["tokens"][:, :-1])
    loss: Tensor = nn.functional.cross_entropy(logits.flatten(0, 1), rows["tokens"][:, 1:].flatten())
    return loss


@cache
def words() -> bytes:
    """A language model of which the head is by far the largest piece that is not cut."""
    tokens = np.random.default_rng(0).integers(0, 512, (16, 3))
    return supervised(lambda: language(512, 32), next_token, {"tokens": tokens}, batch_size=2).as_graph()


@pytest.mark.parametrize("seats", [0, 3])
def test_a_head_that_nobody_holds_is_cut_into_as_few_shards_as_fit(seats: int) -> None:
    planner = CrewPlanner.of(words(), seats=seats, wire="float32")
    room = planner.replica_bytes
    whole = planner.draft([room] * max(seats, 1))
    assert whole is not None
    assert (whole.shards, whole.reason) == (1, "")
    lent = [int(0.55 * room), *[int(0.35 * room)] * 2]
    draft = planner.draft(lent)
    assert draft is not None
    assert draft.shards == 2
    assert "cut into 2 shards, since what volunteers lend holds no division of whole tensors" in draft.reason
    for place, number in zip(draft.stages, draft.order, strict=True):
        assert place.need_bytes <= lent[number]
    layout = unpacked(words()).layout
    parts = [part_layout(layout, place.tensors) for place in draft.stages]
    assert sum(part.size for part in parts) == layout.size


def test_places_of_shards_run_in_what_they_need() -> None:
    planner = CrewPlanner.of(words(), seats=0, wire="float32")
    draft = planner.draft([int(0.55 * planner.replica_bytes), *[int(0.35 * planner.replica_bytes)] * 2])
    assert draft is not None
    for number, place in enumerate(draft.stages):
        made = {"shards": draft.shards, "seed": 1, "max_bytes": place.need_bytes}
        part = GraphPart(words(), draft.cuts, number, device="cpu", **made)
        assert {rows_of(name).tensor for name in place.tensors} == {tensor.name for tensor in part.layout.tensors}
        assert MEMBERS_AT_LEAST * part.member_bytes() <= place.need_bytes


def test_shards_that_are_wanted_are_no_news() -> None:
    draft = CrewPlanner.of(words(), seats=0, wire="float32", shards=2).draft([2**40])
    assert draft is not None
    assert (draft.shards, draft.reason) == (2, "")


def test_seats_go_to_those_who_lend_the_most_in_their_order() -> None:
    planner = draftsman(2)
    room = planner.replica_bytes
    draft = planner.draft([1, room, 2, 0, room // 2])
    assert draft is not None
    assert draft.order == (1, 3)
    draft = planner.draft([room, room, room])
    assert draft is not None
    assert draft.order == (0, 1)


def test_who_lends_too_little_for_a_wanted_number_of_seats_waits() -> None:
    planner = draftsman(2)
    assert planner.draft([1, 1]) is None
    assert "can't hold its parts" in planner.lack([1, 1])
    assert planner.lack([1]) == "a crew of 2 needs 1 more"
    assert planner.draft([1, 1, 0, 0]) is not None


def test_many_members_travel_at_once_only_where_all_seats_have_room() -> None:
    planner = draftsman(2)
    for lent, batch in (([0, 0], MOST_AT_ONCE), ([2**40, 0], MOST_AT_ONCE), ([planner.replica_bytes] * 2, 7)):
        draft = planner.draft(lent)
        assert draft is not None
        assert {place.batch for place in draft.stages} == {batch}


def test_who_lends_next_to_nothing_keeps_others_from_no_crew_of_any_size() -> None:
    planner = draftsman()
    enough = planner.replica_bytes * 4 // 5
    draft = planner.draft([1] * 30 + [enough, 1, enough])
    assert draft is not None
    assert draft.order in ((30, 32), (32, 30))


def test_a_crowd_takes_no_longer_than_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[int] = []

    def counted(
        divide: Divide, cuttings: Cuttings, machines: Sequence[Machine], needs: Needs
    ) -> tuple[Cutting, PlannedCrews]:
        planned.append(len(machines))
        return fitting(divide, cuttings, machines, needs)

    monkeypatch.setattr(seating, "fitting", counted)
    planner = draftsman()
    assert planner.draft([1000] * 20) is None
    assert planned == [], "together they lend less than a replica takes"
    assert planner.draft([planner.replica_bytes * 4 // 5] * 300) is not None
    assert planned == [MOST_PLANNED]
    few = [planner.replica_bytes - 1, 1]
    assert [planner.draft(few), planner.draft(few)] == [None, None]
    assert planned == [MOST_PLANNED, 2], "who was refused a crew is not planned with again in each step"
