import pytest

from fedlearn.config import ConfigError, RunConfig, Schema, journal_bytes_kept
from fedlearn.config.sizes import parse_size
from fedlearn.tasks.user.task_options import TaskOptions


@pytest.mark.parametrize(
    ("text", "size"),
    [("0B", 0), ("500MB", 500_000_000), ("1gb", 10**9), ("1.5 GiB", 3 * 2**29), ("2TiB", 2**41), (" 7 kb ", 7000)],
)
def test_sizes_are_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "1", "GB", "-1GB", "1 GB 2", "1e3MB", "1IB", "all"])
def test_other_texts_are_refused_with_the_form(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected a number of bytes with its unit, such as 500MB or 1\.5GiB, got"):
        parse_size(text)


def config_of(keep_journal: str) -> RunConfig:
    return Schema(TaskOptions).build({"keep_journal": keep_journal})


def test_journal_is_kept_up_to_its_size_or_all_of_it() -> None:
    assert journal_bytes_kept(Schema(TaskOptions).build({}).run) == 10**9
    assert journal_bytes_kept(config_of("20MB").run) == 20_000_000
    assert journal_bytes_kept(config_of("all").run) is None
    with pytest.raises(ConfigError, match=r"keep_journal: expected a number of bytes .* got 'much', or all"):
        config_of("much")
