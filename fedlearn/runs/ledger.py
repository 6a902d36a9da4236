"""The contributions of each identity to a run, read from `credit.jsonl` and checked against the journal."""

from collections.abc import Iterable

import msgspec

from fedlearn.coordination.people.credit import Earned, Entry
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.es.update import Update
from fedlearn.storage.logs.lines import read_lines
from fedlearn.storage.runs import RunFolder


class RunCredit(msgspec.Struct, frozen=True):
    """The credit of a whole run."""

    earned: dict[str, Earned]
    """Contributions by identity."""
    false_entries: tuple[Entry, ...]
    """Entries whose number of members differs from that of the journal's Updates."""
    n_unclaimed: int
    """Members of Updates that no entry covers, because the server was killed before it wrote one."""


def read_credit(folder: RunFolder) -> dict[str, Earned]:
    """Reads the contributions of each identity."""
    earned: dict[str, Earned] = {}
    for entry in read_lines(folder.credit, Entry):
        for identity, part in entry.earned.items():
            earned.setdefault(identity, Earned()).add(part)
    return earned


def check_credit(folder: RunFolder, journal: Iterable[Update]) -> RunCredit:
    """Checks the credit of a run: each entry is compared with the Updates of its steps as far as the journal has
    them."""
    members = {update.step: update.n_members for update in journal}
    false, claimed = [], set[int]()
    for entry in read_lines(folder.credit, Entry):
        steps = range(entry.first_step, entry.step + 1)
        claimed.update(steps)
        is_whole = all(step in members for step in steps)
        if is_whole and sum(part.members for part in entry.earned.values()) != sum(members[step] for step in steps):
            false.append(entry)
    unclaimed = sum(count for step, count in members.items() if step not in claimed)
    return RunCredit(read_credit(folder), tuple(false), unclaimed)


def reputations_of(earned: dict[str, Earned]) -> list[Reputation]:
    """The reputations of identities so far, in a run that is resumed."""
    return [
        Reputation(
            identity,
            part.name,
            n_agreed=0 if part.caught else part.agreed,
            n_caught=part.caught,
            doubt=part.doubt or 0.0,
        )
        for identity, part in earned.items()
        if part.agreed or part.caught
    ]
