import pytest

from fedlearn.commands.parser import Parser
from fedlearn.commands.train.serve import add_serve


@pytest.fixture
def parser() -> Parser:
    parser = Parser()
    add_serve(parser)
    return parser


def test_a_mesh_is_three_settings(parser: Parser) -> None:
    given = parser.parse_args(["--mesh", "crews=3,shards=2"])
    assert (given.seats, given.shards, given.volunteers) == ("2", "2", "6")
    assert parser.parse_args(["--mesh", "crews=3,shards=2", "--volunteers", "0"]).volunteers == "0"


@pytest.mark.parametrize("text", ["crews=2", "crews=0,shards=2", "crews=2,shards=0", "2,2", "crews=2,shards=2,more"])
def test_what_is_no_mesh_is_refused(parser: Parser, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser.parse_args(["--mesh", text])
    assert "expected crews=C,shards=S such as crews=2,shards=2, got" in capsys.readouterr().err
