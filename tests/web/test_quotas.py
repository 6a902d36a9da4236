import asyncio

import pytest

from fedlearn.web.quotas import Leaving, Quota


def test_places_are_bounded_for_all_and_for_each() -> None:
    places = Quota(4, of_one=2)
    assert [places.take(who) for who in "aaabbc"] == [True, True, False, True, True, False]
    assert places.n_taken == 4
    places.free("a")
    assert [places.take("b"), places.take("c")] == [False, True]


def test_place_is_free_again_however_a_response_ends() -> None:
    left: list[str] = []

    async def fail(*_: object) -> None:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        asyncio.run(Leaving(fail, lambda: left.append("gone"))({}, None, None))  # type: ignore[arg-type]
    assert left == ["gone"]
