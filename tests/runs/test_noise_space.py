from pathlib import Path
from typing import Any

import msgspec
import pytest

from fedlearn.config import ConfigError, RunConfig, ServerSettings
from fedlearn.runs.noise_space import choose_space, warnings_if_open
from fedlearn.server.security import open_security
from fedlearn.tasks.rnn.kind import KIND as RNN
from fedlearn.tasks.user.task_kind import FUNCTION
from tests.run_folders import rnn_config, task_config

TRUST = "only this machine reaches the server"


def open_config(folder: Path, **settings: Any) -> RunConfig:  # noqa: ANN401 (values of any setting)
    return rnn_config(folder, **{"perturb": "auto", "head": "auto", **settings})


def placed(config: RunConfig, trust: str) -> tuple[str, str]:
    strategy = choose_space(config, RNN, trust)[0].strategy
    return strategy.perturb, strategy.head


def trust_of(folder: Path, host: str = "127.0.0.1", token: str = "", **settings: str) -> str:
    environ = {"FEDLEARN_TOKEN": token} if token else {}
    return open_security(msgspec.convert({"host": host, **settings}, ServerSettings), folder, environ).trust


def test_noise_goes_on_activations_where_all_volunteers_are_the_owners(tmp_path: Path) -> None:
    config = open_config(tmp_path)
    assert placed(config, TRUST) == ("activations", "closed-form")
    assert placed(config, "") == ("weights", "perturbed")


def test_the_place_is_said_with_its_reason(tmp_path: Path) -> None:
    config = open_config(tmp_path)
    assert [*map(str, choose_space(config, RNN, TRUST)[1])] == [
        "perturb = activations: it learns fastest, and all volunteers are yours: only this machine reaches the server",
        "head = closed-form: it learns more, and volunteers send sums anyway",
    ]
    (reason,) = choose_space(config, RNN, "")[1]
    assert str(reason).startswith("perturb = weights: anybody may join, and everybody can audit losses")


def test_what_was_given_stays_whoever_joins(tmp_path: Path) -> None:
    for perturb in ("weights", "activations"):
        for head in ("perturbed", "closed-form"):
            config = open_config(tmp_path, perturb=perturb, head=head)
            assert choose_space(config, RNN, "") == choose_space(config, RNN, TRUST) == (config, ())
    assert placed(open_config(tmp_path, head="perturbed"), TRUST) == ("activations", "perturbed")
    assert placed(open_config(tmp_path, perturb="activations"), "") == ("activations", "closed-form")
    assert placed(open_config(tmp_path, perturb="weights"), TRUST) == ("weights", "perturbed")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"cell": "gru"}, "cell = gru"),
        ({"cell": "lstm"}, "cell = lstm"),
        ({"antithetic": True}, "antithetic = true"),
        ({"rank": 0}, "rank = 0"),
        ({"fitness_shaping": "sign"}, "fitness_shaping = sign"),
        ({"exchange": "auto"}, "exchange = auto"),
    ],
    ids=str,
)
def test_settings_of_noise_on_weights_keep_it_there(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    config = open_config(tmp_path, **given)
    assert placed(config, TRUST) == ("weights", "perturbed")
    (reason,) = choose_space(config, RNN, TRUST)[1]
    assert reason.why == f"{said} goes with noise on weights alone"


def test_a_task_of_ones_own_has_noise_on_weights_without_a_word(tmp_path: Path) -> None:
    config = task_config(tmp_path, perturb="auto", head="auto")
    chosen, reasons = choose_space(config, FUNCTION, TRUST)
    assert (chosen.strategy.perturb, chosen.strategy.head, reasons) == ("weights", "perturbed", ())


def test_a_server_trusts_its_machine_a_token_and_a_list(tmp_path: Path) -> None:
    token, allowed = tmp_path / "token", tmp_path / "allowed"
    token.write_text("a long secret")
    token.chmod(0o600)
    allowed.write_text("")
    assert trust_of(tmp_path) == trust_of(tmp_path, "::1") == TRUST
    assert trust_of(tmp_path, "0.0.0.0") == trust_of(tmp_path, "10.1.2.3", tls="off") == ""
    assert trust_of(tmp_path, "0.0.0.0", token_file=str(token)) == "whoever joins knows the token"
    assert trust_of(tmp_path, "0.0.0.0", token="a long secret") == "whoever joins knows the token"
    assert trust_of(tmp_path, "0.0.0.0", allow=str(allowed)) == "whoever joins is on the list"


def test_strangers_who_may_send_sums_are_pointed_out(tmp_path: Path) -> None:
    losses, sums = rnn_config(tmp_path), rnn_config(tmp_path, perturb="activations")
    assert warnings_if_open(losses, "") == warnings_if_open(losses, TRUST) == warnings_if_open(sums, TRUST) == []
    for summed in (sums, rnn_config(tmp_path, head="closed-form")):
        (notice,) = warnings_if_open(summed, "")
        assert notice.startswith("anybody may join, and volunteers of this run send sums of gradients")


def test_a_kind_that_perturbs_activations_has_no_gradients_to_measure(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="measure: expected losses or auto with task = rnn, got gradients"):
        choose_space(open_config(tmp_path, measure="gradients", group_size=1), RNN, TRUST)


@pytest.mark.parametrize(
    ("given", "measure", "said"),
    [
        ({"perturb": "auto", "head": "auto"}, "auto", []),
        ({"perturb": "weights", "head": "auto"}, "losses", ["measure = losses: perturb = weights goes with noise"]),
        ({"perturb": "auto", "head": "perturbed"}, "losses", ["measure = losses: head = perturbed goes with noise"]),
    ],
)
def test_whoever_says_where_noise_goes_gets_noise(
    tmp_path: Path, given: dict[str, str], measure: str, said: list[str]
) -> None:
    config, reasons = choose_space(task_config(tmp_path, **given), FUNCTION, TRUST)
    assert config.strategy.measure == measure
    assert [*map(str, reasons)] == said


def test_a_kind_that_measures_no_gradients_takes_no_local_steps(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"local_steps: expected 0 or 1 with task = rnn, .*got 8; leave it out"):
        choose_space(open_config(tmp_path, local_steps=8), RNN, "")
