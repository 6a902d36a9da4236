from pathlib import Path

import pytest

from fedlearn.coordination.people.credit import Earned, Entry
from fedlearn.coordination.people.reputation import PROOF_GROUPS
from fedlearn.runs.ledger import check_credit, read_credit, reputations_of
from fedlearn.storage.logs.lines import LineLog
from fedlearn.storage.runs import RunFolder
from tests.run_folders import created, rnn_config, update_of


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Steps 0 to 5 of 16 members each; two volunteers, and an entry that is missing."""
    folder = RunFolder(tmp_path)
    log = LineLog(folder.credit)
    log.append(Entry(0, 1, {"a": Earned(name="anna", members=32, agreed=3)}))
    log.append(Entry(2, 3, {"a": Earned(members=16), "b": Earned(name="bert", members=16, caught=1)}))
    log.append(Entry(5, 5, {"c": Earned(name="carl", members=17)}))
    log.close()
    return folder


def test_credit_adds_up_over_the_entries(folder: RunFolder) -> None:
    assert read_credit(folder) == {
        "a": Earned(name="anna", members=48, agreed=3),
        "b": Earned(name="bert", members=16, caught=1),
        "c": Earned(name="carl", members=17),
    }


def test_entries_are_held_against_the_journal(folder: RunFolder, tmp_path: Path) -> None:
    run = created(rnn_config(tmp_path))
    credit = check_credit(folder, (update_of(run, step) for step in range(6)))
    assert [entry.first_step for entry in credit.false_entries] == [5]
    assert credit.n_unclaimed == 16  # of step 4
    later = check_credit(folder, (update_of(run, step) for step in range(3, 6)))
    assert [entry.first_step for entry in later.false_entries] == [5]


def test_reputation_of_a_resumed_run_is_what_was_shown_before(folder: RunFolder) -> None:
    reputations = {reputation.name: reputation for reputation in reputations_of(read_credit(folder))}
    assert not any(reputation.doubt for reputation in reputations.values())
    assert {name: (s.n_agreed, s.n_caught) for name, s in reputations.items()} == {"anna": (3, 0), "bert": (0, 1)}


def test_what_adds_up_against_an_identity_outlasts_a_restart(folder: RunFolder) -> None:
    log = LineLog(folder.credit)
    for step, doubt in ((6, 1.5), (7, 7.25), (8, None)):
        log.append(Entry(step, step, {"a": Earned(members=16, doubt=doubt)}))
    log.append(Entry(9, 9, {"b": Earned(doubt=3.0)}))
    log.append(Entry(10, 10, {"b": Earned(doubt=0.0)}))
    log.close()
    reputations = {reputation.name: reputation for reputation in reputations_of(read_credit(folder))}
    assert {name: reputation.doubt for name, reputation in reputations.items()} == {"anna": 7.25, "bert": 0.0}


def test_who_was_caught_is_trusted_by_no_resumed_run_for_what_was_right_before() -> None:
    (dora,) = reputations_of({"d": Earned(name="dora", members=48, agreed=10 * PROOF_GROUPS, caught=1)})
    assert (dora.n_agreed, dora.n_caught, dora.is_trusted) == (0, 1, False)
