import io
import sys

import pytest

from fedlearn.commands.parser import Parser


@pytest.fixture
def parser() -> Parser:
    parser = Parser(prog="plan")
    parser.add_argument("--often", help="first")
    parser.add_argument_group("details", "Of a kind").add_argument("--seldom", help="last")
    parser.hide(["seldom"])
    return parser


def test_hidden_flag_is_known_and_neither_it_nor_its_group_is_shown(parser: Parser) -> None:
    assert parser.parse_args(["--seldom", "1"]).seldom == "1"
    shown = parser.format_help()
    assert "--often" in shown
    assert "details" not in shown
    assert "seldom" not in shown


def test_all_flags_are_shown_on_demand(parser: Parser, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--help-all"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "details:\n  Of a kind\n\n  --seldom" in shown
    assert "--often" in shown


def test_mistake_is_answered_in_a_line(parser: Parser, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--often"])
    assert ended.value.code == 2
    expected = "plan: --often: expected one argument; plan --help shows what there is\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--count", "1e3"], "--count: expected a whole number, got '1e3'; plan --help"),
        (["--share", "much"], "--share: expected a number, got 'much'; plan --help"),
        (["--device", "cda"], "--device: expected one of cpu, cuda, got 'cda'; did you mean cuda?"),
        (["--device", "gpu"], "--device: expected one of cpu, cuda, got 'gpu'; plan --help"),
        ([], "expected --count, got none; plan --help"),
        (["--count", "1"], "expected one of --nodes, --memory, got none; plan --help"),
    ],
)
def test_mistakes_are_answered_with_what_was_expected(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = Parser(prog="plan")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument_group("details").add_argument("--share", type=float)
    parser.add_argument("--device", choices=["cpu", "cuda"])
    either = parser.add_mutually_exclusive_group(required=True)
    either.add_argument("--nodes")
    either.add_argument("--memory")
    with pytest.raises(SystemExit):
        parser.parse_args(arguments)
    assert capsys.readouterr().err.startswith(f"plan: {complaint}")


def test_numbers_are_read() -> None:
    parser = Parser(prog="plan")
    parser.add_argument("--count", type=int)
    parser.add_argument("--share", type=float)
    assert vars(parser.parse_args(["--count", "-3", "--share", "1e-3"])) == {"count": -3, "share": 0.001}


def test_parser_that_hides_nothing_has_one_help() -> None:
    assert "--help-all" not in Parser(prog="plan").format_help()


def test_arguments_that_are_added_late_are_added_once(parser: Parser) -> None:
    parser.complete_with(lambda late: late.add_argument("--late"))
    assert "--late" not in parser.format_help()
    assert [parser.parse_args(["--late", value]).late for value in "12"] == ["1", "2"]


def test_help_that_nobody_reads_to_its_end_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:  # noqa: ARG002 (the base's)
            raise BrokenPipeError

    parser = Parser(prog="plan")
    parser.hide(["few"])
    monkeypatch.setattr(sys, "stdout", Closed())
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--help-all"])
    assert ended.value.code in (0, None)
