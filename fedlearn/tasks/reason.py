"""Why a run is as it is: for people at a terminal in sentences, for pages by the setting."""

import msgspec


class Reason(msgspec.Struct, frozen=True):
    """Why a setting has its value, or a remark about the whole run; `str` gives the sentence."""

    why: str
    key: str = ""
    """Of the setting that the run chose itself; empty for a remark."""
    value: str = ""
    """What was chosen."""

    def __str__(self) -> str:
        return f"{self.key} = {self.value}: {self.why}" if self.key else self.why


Reasons = tuple[Reason, ...]
