from fedlearn.server.lasting import Lasting


def test_a_text_is_said_once_and_only_when_it_has_lasted() -> None:
    lasting = Lasting(3.0)
    said = [lasting.new(text, now) for now, text in enumerate(["a", "b", "b", "b", "b", "b"])]
    assert said == ["", "", "", "", "b", ""]


def test_a_text_is_said_again_after_there_was_none() -> None:
    lasting = Lasting(1.0)
    said = [lasting.new(text, now) for now, text in enumerate(["a", "a", "", "", "a", "a"])]
    assert said == ["", "a", "", "", "", "a"]
