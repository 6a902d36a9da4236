from pathlib import Path

import pytest

from tests.benchmarks.conftest import ReadJson, Run

TINY = ("--threads", "1", "--hidden-size", "8", "--population-limit", "128")
TOKENS_PER_STEP = 128 * 16


@pytest.fixture
def alternating_text(tmp_path: Path) -> str:
    path = tmp_path / "alternating.txt"
    path.write_text("ab" * 5000)
    return str(path)


def test_report_is_one_object_with_the_documented_keys(read_json: ReadJson, alternating_text: str) -> None:
    report = read_json("learning", "--data", alternating_text, "--seconds", "0.2", *TINY)
    assert set(report) == {"benchmark", "text", "results", "notices"}
    assert report["text"]["name"] == "alternating.txt"
    assert [report["text"][f"{part}_characters"] for part in ("train", "validation", "test")] == [9000, 500, 500]
    for name, bits in report["text"]["baselines_bits_per_character"].items():
        assert bits == pytest.approx(2 * [1.0 if name == "unigram" else 0.0], abs=0.01)
    (result,) = report["results"]
    assert set(result) == {
        "recipe",
        "budget",
        "through_server",
        "machine",
        "threads",
        "settings",
        "config",
        "runs",
    }
    assert (result["recipe"], result["budget"]) == ("weights", {"unit": "seconds", "amount": 0.2})
    (run,) = result["runs"]
    looks = run["looks"]
    assert [set(look) for look in looks] == 11 * [{"seconds", "steps", "trial_tokens", "validation_bits_per_character"}]
    assert looks[0]["steps"] == 0
    assert looks[-1]["seconds"] >= 0.2
    assert looks[-1]["trial_tokens"] == looks[-1]["steps"] * TOKENS_PER_STEP
    assert run["validation_bits_per_character"] == looks[-1]["validation_bits_per_character"]
    assert run["validation_bits_per_character"] < looks[0]["validation_bits_per_character"]
    assert set(run["sample"]) <= {"a", "b"}


def test_figures_of_both_parts_are_told_apart(read_json: ReadJson, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("ab" * 4750 + "b" * 500)
    (result,) = read_json("learning", "--data", str(text), "--tokens", "100000", *TINY)["results"]
    (run,) = result["runs"]
    assert run["validation_bits_per_character"] < 0.8
    assert run["test_bits_per_character"] > 1.2


def test_each_budget_of_tokens_is_a_run_that_ends_with_it(read_json: ReadJson, alternating_text: str) -> None:
    flags = ("--tokens", "10240", "20480", "--seeds", "3", "4")
    results = read_json("learning", "--data", alternating_text, *flags, *TINY)["results"]
    assert [result["config"]["steps"] for result in results] == [5, 10]
    for result in results:
        assert [run["seed"] for run in result["runs"]] == [3, 4]
        assert [run["looks"][-1]["trial_tokens"] for run in result["runs"]] == 2 * [result["budget"]["amount"]]
        first, second = (run["validation_bits_per_character"] for run in result["runs"])
        assert first != second


def test_every_recipe_of_the_product_learns_with_the_settings_of_its_budget(
    read_json: ReadJson, alternating_text: str
) -> None:
    recipes = ("weights", "weights-closed-form", "activations", "activations-closed-form")
    flags = ("--recipes", *recipes, "--tokens", "50000", "--threads", "1", "--hidden-size", "8")
    results = read_json("learning", "--data", alternating_text, *flags)["results"]
    assert [result["recipe"] for result in results] == list(recipes)
    for result in results:
        assert result["settings"].items() <= result["config"].items()
        looks = result["runs"][0]["looks"]
        assert looks[-1]["validation_bits_per_character"] < looks[0]["validation_bits_per_character"]
    spaces = [(result["config"]["perturb"], result["config"]["head"]) for result in results]
    assert len(set(spaces)) == 4


def test_a_recipe_may_leave_all_settings_to_the_run(read_json: ReadJson, alternating_text: str) -> None:
    flags = ("--recipes", "automatic", "--seconds", "0.2", "--threads", "1")
    (result,) = read_json("learning", "--data", alternating_text, *flags)["results"]
    assert result["settings"] == {"perturb": "activations", "head": "closed-form"}
    config = result["config"]
    assert (config["optimizer"], config["weight_decay"]) == ("muon", 0.1)
    assert min(config[key] for key in ("hidden_size", "group_size", "population_limit", "learning_rate")) > 0


@pytest.mark.parametrize("peer", ["plain-es", "backprop"])
def test_peer_begins_where_the_product_does_and_learns(read_json: ReadJson, alternating_text: str, peer: str) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    flags = ("--recipes", "weights", peer, "--tokens", "200000")
    ours, theirs = read_json("learning", "--data", alternating_text, *flags, *TINY)["results"]
    assert theirs["recipe"] == peer
    settings = theirs["settings"]
    assert settings["learning_rate"] > 0
    tokens_per_step = settings.get("population", 1) * settings["windows"] * 16
    ours, theirs = (result["runs"][0]["looks"] for result in (ours, theirs))
    assert theirs[0] == ours[0] | {"seconds": theirs[0]["seconds"]}
    assert theirs[-1]["validation_bits_per_character"] < theirs[0]["validation_bits_per_character"] - 0.02
    assert 200_000 <= theirs[-1]["trial_tokens"] == theirs[-1]["steps"] * tokens_per_step < 240_000


def test_peer_takes_other_settings(read_json: ReadJson, run_benchmark: Run, alternating_text: str) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    flags = ("--data", alternating_text, "--recipes", "plain-es", "--tokens", "1000", *TINY, "--peer")
    (result,) = read_json("learning", *flags, "population=8", "sigma=0.5")["results"]
    assert (result["settings"]["population"], result["settings"]["sigma"]) == (8, 0.5)
    assert result["runs"][0]["looks"][-1]["trial_tokens"] == 8 * result["settings"]["windows"] * 16
    for wrong in ("windoes=8", "population=many"):
        done = run_benchmark("learning", *flags, wrong)
        assert done.returncode == 1
        assert "--peer: expected settings of plain-es" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_server_with_its_volunteer_learns_for_a_time(read_json: ReadJson, alternating_text: str) -> None:
    flags = ("--data", alternating_text, "--through-server", "--seconds", "8")
    (result,) = read_json("learning", *flags, *TINY)["results"]
    assert result["through_server"] is True
    (run,) = result["runs"]
    last = run["looks"][-1]
    assert last["trial_tokens"] == last["steps"] * TOKENS_PER_STEP > 0
    assert run["validation_bits_per_character"] < 1.0
    assert set(run["sample"]) <= {"a", "b"}


@pytest.mark.parametrize(
    ("flags", "code", "complaint"),
    [
        (["--recipes", "backprop", "--through-server", "--seconds", "1"], 1, "backprop is a peer: it has no server"),
        (["--recipes", "automatic", "--tokens", "1"], 1, "automatic: expected budgets in --seconds"),
        (["--through-server", "--tokens", "1e6"], 1, "--through-server: expected budgets in --seconds"),
        (["--tokens", "2048", "--data", "absent.txt"], 1, "absent.txt"),
        *((["--tokens", amount], 2, "--tokens") for amount in ("0", "inf", "much")),
    ],
)
def test_what_can_not_be_run_is_refused(
    run_benchmark: Run, alternating_text: str, flags: list[str], code: int, complaint: str
) -> None:
    done = run_benchmark("learning", "--data", alternating_text, *TINY, *flags)
    assert done.returncode == code
    assert complaint in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_people_get_a_table(run_benchmark: Run, alternating_text: str) -> None:
    flags = ("--tokens", "2048", "--seeds", "1", "2")
    done = run_benchmark("learning", "--data", alternating_text, *flags, *TINY)
    assert done.returncode == 0, done.stderr
    assert "bits per character" in done.stdout
    assert "weights, 2048 trial-tokens, seed 2:" in done.stderr
    header, row = done.stdout.splitlines()[-2:]
    assert header.split()[:6] == ["recipe", "hidden", "threads", "budget", "seeds", "validation"]
    assert row.split()[:6] == ["weights", "8", "1", "2048", "trial-tokens", "2"]
    assert row.count("[") == 2


def test_help_names_settings_of_the_run(run_benchmark: Run) -> None:
    done = run_benchmark("learning", "--help")
    assert done.returncode == 0
    assert "--seconds" in done.stdout
    assert "plain-es" in done.stdout
    assert "--hidden-size" in done.stdout
