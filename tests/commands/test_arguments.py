import argparse

import pytest

from fedlearn.commands.arguments import DEFAULT_RUNS, DEFAULT_SERVER, add_root, add_run, add_server, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:55551", ("127.0.0.1", 55551)),
        ("volunteers.example:1", ("volunteers.example", 1)),
        ("[::1]:65535", ("::1", 65535)),
        (DEFAULT_SERVER, ("127.0.0.1", 55551)),
    ],
)
def test_address_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "host", "host:", ":55551", "host:port", "host:0", "host:65536", "host:-1"])
def test_what_is_no_address_is_told_with_the_form(text: str) -> None:
    with pytest.raises(ValueError, match=r"^--server: expected HOST:PORT, e\.g\. 127\.0\.0\.1:55551, got '"):
        parse_address(text)


def test_server_and_name_and_threads_may_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SERVER", "far:1"), ("NAME", "Ada"), ("THREADS", "3")):
        monkeypatch.setenv(f"FEDLEARN_{name}", value)
    parser = argparse.ArgumentParser()
    add_server(parser)
    options = parser.parse_args([])
    assert (options.server, options.name, options.threads) == ("far:1", "Ada", 3)
    options = parser.parse_args(["--server", "near:2", "--name", "Bob", "--threads", "4"])
    assert (options.server, options.name, options.threads) == ("near:2", "Bob", 4)


@pytest.mark.parametrize(("environ", "root"), [({}, DEFAULT_RUNS), ({"FEDLEARN_RUNS": "elsewhere"}, "elsewhere")])
def test_runs_are_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], root: str
) -> None:
    monkeypatch.delenv("FEDLEARN_RUNS", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    parser = argparse.ArgumentParser()
    add_root(parser)
    assert parser.parse_args([]).runs == root
    assert parser.parse_args(["--runs", "here"]).runs == "here"


def test_verb_that_looks_at_a_run_is_told_which() -> None:
    parser = argparse.ArgumentParser()
    add_run(parser)
    assert parser.parse_args(["latest"]).run == "latest"
