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
    expected = "plan: argument --often: expected one argument; plan --help shows what there is\n"
    assert capsys.readouterr().err == expected


def test_parser_that_hides_nothing_has_one_help() -> None:
    assert "--help-all" not in Parser(prog="plan").format_help()


def test_arguments_that_are_added_late_are_added_once(parser: Parser) -> None:
    parser.complete_with(lambda late: late.add_argument("--late"))
    assert "--late" not in parser.format_help()
    assert [parser.parse_args(["--late", value]).late for value in "12"] == ["1", "2"]
