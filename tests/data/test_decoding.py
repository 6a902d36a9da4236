import codecs
import io

import pytest

from fedlearn.data import decoding
from fedlearn.data.decoding import check_encoding, decode


def decoded(content: bytes, encoding: str = "utf-8") -> str:
    return "".join(decode(io.BytesIO(content), "a.txt", encoding, lambda _: None))


@pytest.fixture(params=[1, 2, 3, 2**20])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(decoding, "CHUNK_BYTES", request.param)
    return int(request.param)


@pytest.mark.usefixtures("chunk")
def test_byte_order_mark_and_carriage_returns_go_wherever_chunks_end() -> None:
    assert decoded(b"\xef\xbb\xbfna\xc3\xafve\r\nline\rend\r\n") == "naïve\nline\nend\n"
    assert decoded(codecs.BOM_UTF16_LE + "né\r\n".encode("utf-16-le"), "utf-16") == "né\n"
    assert decoded("né\r".encode("latin-1"), "latin-1") == "né\n"
    assert decoded("汉字".encode("gb18030"), "gb18030") == "汉字"


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize(
    ("content", "place"),
    [(b"abc\xe9d", 3), (b"\xef\xbb\xbfabc\xe9d", 6), (b"a\xc3\xa9\xc3", 3), (b"ab\xe2\x82(", 2)],
)
def test_what_is_no_text_in_the_encoding_is_named_with_its_place(content: bytes, place: int) -> None:
    complaint = rf"expected text in utf-8, got other bytes at byte {place} of a\.txt .*--encoding latin-1\) or convert"
    with pytest.raises(ValueError, match=complaint):
        decoded(content)


@pytest.mark.usefixtures("chunk")
def test_binary_files_are_refused_by_a_zero_byte() -> None:
    with pytest.raises(ValueError, match=r"got a zero byte at byte 3 of a\.txt; unpack it .* --encoding utf-16"):
        decoded(b"abc\0def")
    assert decoded("a".encode("utf-32"), "utf-32") == "a"


def test_bytes_are_told_as_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "CHUNK_BYTES", 4)
    told: list[int] = []
    list(decode(io.BytesIO("éééé".encode()), "a.txt", "utf-8", told.append))
    assert sum(told) == 8


@pytest.mark.parametrize("encoding", ["utf8", "latin-1", "cp1252"])
def test_encodings_of_python_are_taken(encoding: str) -> None:
    check_encoding(encoding)


@pytest.mark.parametrize("encoding", ["utf-9", "hex", "a b"])
def test_what_is_no_encoding_is_refused(encoding: str) -> None:
    with pytest.raises(ValueError, match=f"expected one that Python knows, .* got '{encoding}'"):
        check_encoding(encoding)
