"""What somebody probably meant who wrote a name that there is not."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question for the end of an error, with the nearest known word; empty where none is near."""
    nearest = get_close_matches(word, [*known], n=1, cutoff=0.7)
    return f"did you mean {nearest[0]}?" if nearest else ""
