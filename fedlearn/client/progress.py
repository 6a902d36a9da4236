"""What a volunteer's terminal says of its own part in a run."""

from typing import final

from fedlearn.coordination.effects import Begin, Build, Compute, Evaluate, Load
from fedlearn.es.replica import Replica
from fedlearn.terminal import format_count, format_duration
from fedlearn.wire.messages import Credit

LINE_INTERVAL_S = 10.0


@final
class Progress:
    """A line for what was joined, then one every LINE_INTERVAL_S for how it goes."""

    def __init__(self) -> None:
        self._run = ""
        self._since: float | None = None
        self._n_members = 0

    def performed(
        self, compute: Compute, replica: Replica | None, *, n_steps: int, now: float, credited: str = ""
    ) -> str | None:
        """What there is to say once this computation is done.

        `n_steps` are those taken since the machine joined, `credited` is what its identity has earned, in words.
        """
        match compute:
            case Build(welcome):
                self._run = welcome.run
            case Load() | Begin() if self._since is None and replica is not None:
                self._since = now
                return f"joined run {self._run} at step {replica.step}: {replica.weights.size} parameters"
            case Evaluate(trials):
                self._n_members += trials.n_members
        if self._since is None or now < self._since + LINE_INTERVAL_S:
            return None
        members_per_s = self._n_members / (now - self._since)
        self._since, self._n_members = now, 0
        line = f"{n_steps} steps taken, {format_count(members_per_s)} members/s of its own"
        return f"{line}; {credited}" if credited else line


def credit_in_words(credit: Credit, unit: str) -> str:
    """What the server says that this identity has earned; `unit` is that of the work."""
    sentence = (
        f"its identity is credited with {format_count(credit.members)} members, {format_count(credit.work)} "
        f"trial-{unit} and {format_duration(credit.seconds)} in all"
    )
    if credit.agreed:
        sentence += f"; groups checked and right: {format_count(credit.agreed)}"
    if credit.caught:
        sentence += f"; results checked and false: {format_count(credit.caught)}"
    return sentence
