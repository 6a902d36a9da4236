"""Reasons for a run's settings, which a terminal shows as sentences and a page by setting."""

import msgspec


class Reason(msgspec.Struct, frozen=True):
    """The reason for a setting's value, or a remark about the whole run; `str` gives the sentence."""

    why: str
    key: str = ""
    """The key of the setting that the run chose itself; empty for a remark."""
    value: str = ""
    """The value that was chosen."""

    def __str__(self) -> str:
        return f"{self.key} = {self.value}: {self.why}" if self.key else self.why


Reasons = tuple[Reason, ...]
