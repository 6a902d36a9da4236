import pytest

from fedlearn.coordination.leases.limiting import counted_speeds
from fedlearn.coordination.leases.sharing import share_step
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.coordination.people.roster import Volunteer


def volunteers(
    *speeds: float, identity: str = "", address: str = "", first: int = 0, is_local: bool = False
) -> list[Volunteer]:
    return [
        Volunteer(
            peer,
            address=address or f"10.0.0.{peer}",
            members_per_s=speed,
            reputation=Reputation(identity or f"key {peer}", is_local=is_local),
        )
        for peer, speed in enumerate(speeds, start=first)
    ]


@pytest.mark.parametrize(
    ("speeds", "counted"),
    [
        ((1.0, 1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 1.0)),
        ((8.0, 1.0, 1.0, 1.0, 1.0), (4 / 3, 1.0, 1.0, 1.0, 1.0)),
        ((8.0, 9.0, 1.0, 1.0), (1.0, 1.0, 1.0, 1.0)),
        ((30.0, 20.0, 1.0, 1.0, 1.0, 1.0), (2.0, 2.0, 1.0, 1.0, 1.0, 1.0)),
        ((5.0, 1.0), (1.0, 1.0)),
        ((5.0,), (5.0,)),
        ((), ()),
    ],
)
def test_nobody_counts_for_more_than_a_share_of_all(speeds: tuple[float, ...], counted: tuple[float, ...]) -> None:
    found = counted_speeds(volunteers(*speeds), 0.25)
    assert found == pytest.approx(list(counted))
    assert counted_speeds(volunteers(*speeds), 1.0) == list(speeds)


@pytest.mark.parametrize(("identity", "address"), [("key", ""), ("", "192.0.2.7")])
def test_more_connections_of_an_identity_or_an_address_are_no_more(identity: str, address: str) -> None:
    others = volunteers(*[1.0] * 9)
    liars = volunteers(2.0, 1.0, 3.0, identity=identity, address=address, first=20)
    found = [speed or 0.0 for speed in counted_speeds([*others, *liars], 0.25)]
    assert sum(found[9:]) == pytest.approx(0.25 * sum(found))
    assert found[9:] == pytest.approx([1.0, 0.5, 1.5])


def test_who_shares_a_machine_shares_no_limit_and_the_servers_own_have_none() -> None:
    assert counted_speeds(volunteers(1.0, 1.0, 1.0, 1.0, address="127.0.0.1"), 0.25) == [1.0] * 4
    own = volunteers(9.0, is_local=True)
    assert counted_speeds([*own, *volunteers(3.0, 3.0)[1:]], 0.25) == pytest.approx([9.0, 3.0])


def test_leases_follow_what_counts() -> None:
    ready = volunteers(8.0, 1.0, 1.0, 1.0, 1.0)
    shares = share_step(ready, 400, step=0, trusts=lambda _: True, counted=lambda v: counted_speeds(v, 0.25))
    assert [share.n_groups for share in shares] == [100, 75, 75, 75, 75]
