from fedlearn.board.decimated_list import DecimatedList


def test_all_are_kept_while_they_are_few() -> None:
    kept: DecimatedList[int] = DecimatedList(4)
    assert kept.items == []
    for number in range(4):
        kept.append(number)
    assert kept.items == [0, 1, 2, 3]


def test_of_many_some_are_kept_evenly_and_the_newest_always() -> None:
    kept: DecimatedList[int] = DecimatedList(4)
    for number in range(100):
        kept.append(number)
        assert len(kept.items) <= 5
        assert kept.items[-1] == number
    assert kept.items == [0, 32, 64, 96, 99]
