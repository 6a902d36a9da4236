import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedlearn.data.download import ATTEMPTS, Cache, is_url
from fedlearn.data.sources import open_source
from fedlearn.data.transfer import Transfer
from tests.data.web import Web, serving
from tests.tasks.followed import Followed

TEXT = "".join(f"line {number}\n" for number in range(20_000)).encode()
HASH = hashlib.sha256(TEXT).hexdigest()


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("no_proxy", "*")
    with serving() as web:
        web.content = TEXT
        yield web


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def files_in(folder: Path) -> list[str]:
    return sorted(path.name.partition("-")[2] for path in (folder / "cache").iterdir())


def test_file_is_downloaded_once(web: Web, cache: Cache, tmp_path: Path) -> None:
    followed = Followed()
    for _ in range(2):
        assert cache.fetch(f"{web.url}#sha256={HASH}", followed).read_bytes() == TEXT
    assert web.asked == [None]
    name = "some_20text.txt"
    assert followed.pieces == [f"downloading {name}", f"checking {name}", f"checking {name}"]
    assert followed.told[0][1:] == ("bytes", [(len(TEXT), len(TEXT))])
    assert files_in(tmp_path) == ["some_20text.txt"]


def test_text_of_a_url_is_read_like_a_file(web: Web, cache: Cache) -> None:
    source = open_source([f"{web.url}#sha256={HASH.upper()}"], "utf-8", cache=cache)
    assert source.size_bytes == len(TEXT)
    assert source.name.endswith(HASH.upper())
    (text,) = ("".join(text) for text in source.texts(lambda _: None))
    assert text.encode() == TEXT


@pytest.mark.parametrize("says_length", [True, False])
def test_line_that_is_cut_is_gone_on_with_where_it_ended(web: Web, cache: Cache, *, says_length: bool) -> None:
    web.cuts, web.says_length = [1000, 500], True
    assert cache.fetch(web.url).read_bytes() == TEXT
    assert web.asked == [None, "bytes=1000-", "bytes=1500-"]
    web.says_length = says_length
    assert cache.fetch(f"{web.url}?other").read_bytes() == TEXT


def test_another_call_goes_on_where_the_last_one_gave_up(web: Web, cache: Cache, tmp_path: Path) -> None:
    web.cuts = [1000, *[0] * ATTEMPTS]
    complaint = rf"expected a file at {web.url}, got the line was cut .* after 1000 bytes; try again, which goes on"
    with pytest.raises(ValueError, match=complaint):
        cache.fetch(web.url)
    assert files_in(tmp_path) == ["some_20text.txt.partial", "some_20text.txt.version"]
    web.asked.clear()
    assert cache.fetch(web.url).read_bytes() == TEXT
    assert web.asked == ["bytes=1000-"]
    assert files_in(tmp_path) == ["some_20text.txt"]


def test_content_that_has_changed_meanwhile_is_read_from_its_beginning(web: Web, cache: Cache) -> None:
    web.cuts = [1000, *[0] * ATTEMPTS]
    with pytest.raises(ValueError, match="after 1000 bytes"):
        cache.fetch(web.url)
    web.content, web.tag = TEXT.upper(), '"two"'
    assert cache.fetch(web.url).read_bytes() == TEXT.upper()


@pytest.mark.parametrize("tag", ["", 'W/"as good"'])
@pytest.mark.parametrize("fragment", ["", f"#sha256={HASH}"])
def test_pieces_of_no_known_version_are_put_together_where_a_hash_tells(
    web: Web, cache: Cache, fragment: str, tag: str
) -> None:
    web.tag, web.cuts = tag, [1000, *[0] * ATTEMPTS]
    with pytest.raises(ValueError, match="after 1000 bytes"):
        cache.fetch(web.url + fragment)
    web.asked.clear()
    assert cache.fetch(web.url + fragment).read_bytes() == TEXT
    assert web.asked == (["bytes=1000-"] if fragment else [None])


def test_server_that_knows_no_ranges_sends_all_again(web: Web, cache: Cache) -> None:
    web.cuts, web.knows_ranges = [1000], False
    assert cache.fetch(web.url).read_bytes() == TEXT
    assert web.asked == [None, "bytes=1000-"]


def test_partial_file_that_has_all_is_read_again(web: Web, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Transfer, "finish", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            cache.fetch(web.url)
    assert cache.fetch(web.url).read_bytes() == TEXT


def test_file_of_another_hash_is_refused_and_deleted(web: Web, cache: Cache, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"expected a file with sha256={'0' * 64} at .*, got one with {HASH}"):
        cache.fetch(f"{web.url}#sha256={'0' * 64}")
    assert files_in(tmp_path) == []


def test_file_that_is_not_there_is_named_at_once(web: Web, cache: Cache) -> None:
    web.status = 404
    with pytest.raises(ValueError, match=rf"expected a file at {web.url}, got 404 Not Found"):
        cache.fetch(web.url)
    assert len(web.asked) == 1


def test_server_that_is_not_there_is_named(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with serving() as gone:
        pass
    with pytest.raises(ValueError, match=r"expected a file at .*, got .*refused.* after 0 bytes"):
        cache.fetch(gone.url)


def test_room_is_looked_for_before_anything_is_kept(
    web: Web, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        free = len(TEXT) - 1

    monkeypatch.setattr("shutil.disk_usage", lambda _: Full)
    with pytest.raises(ValueError, match=r"expected room for 0 MB in .*cache, 0 MB are free; make room"):
        cache.fetch(web.url)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("fragment", ["sha256=12", "sha1=" + "0" * 40, "part"])
def test_fragment_that_is_no_hash_is_refused(cache: Cache, fragment: str) -> None:
    with pytest.raises(ValueError, match=f"expected 64 hexadecimal digits after #sha256=, got #{fragment}"):
        cache.fetch(f"https://host/file#{fragment}")
    with pytest.raises(ValueError, match="expected a URL such as https://HOST/FILE, got 'https:///x'"):
        cache.fetch("https:///x")


def test_cache_is_where_the_user_keeps_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    kept = {
        environ: Cache.of_user({"XDG_CACHE_HOME": environ} if environ else {})._folder
        for environ in ("", "relative", str(tmp_path / "xdg"))
    }
    assert kept == {
        "": tmp_path / ".cache" / "fedlearn",
        "relative": tmp_path / ".cache" / "fedlearn",
        str(tmp_path / "xdg"): tmp_path / "xdg" / "fedlearn",
    }
    assert Cache.of_user({"LOCALAPPDATA": str(tmp_path / "local")})._folder == tmp_path / "local" / "fedlearn"


def test_cache_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ValueError, match=r"expected a cache to write to, got .*file.*; make room, or set XDG_CACHE_HOME"
    ):
        Cache(tmp_path / "file").fetch("https://host/file")


def test_urls_are_those_of_the_web() -> None:
    assert [is_url(name) for name in ("http://a", "HTTPS://a", "ftp://a", "file.txt")] == [True, True, False, False]
