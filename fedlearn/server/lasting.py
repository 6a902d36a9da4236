"""Delays the report of a state until it has lasted."""

from typing import final


@final
class Lasting:
    """Reports each text once, until another one has been reported or there was none."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._text = self._said = ""
        self._since = 0.0

    def new(self, text: str, now: float) -> str:
        """The text, if it has been the same for long enough and is not reported yet; else empty."""
        if text != self._text:
            self._text, self._since = text, now
        if now - self._since < self._seconds or text == self._said:
            return ""
        self._said = text
        return text
