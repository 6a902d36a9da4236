"""Sizes as people write them: 500MB, 1.5 GiB."""

import re

_UNITS = {unit: 1000**power for power, unit in enumerate(("b", "kb", "mb", "gb", "tb"))} | {
    unit: 1024**power for power, unit in enumerate(("kib", "mib", "gib", "tib"), start=1)
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?b)\s*", re.IGNORECASE)


def parse_size(text: str) -> int:
    """The size in bytes.

    Raises:
        ValueError: the text is no size; the message shows the form.
    """
    found = _SIZE.fullmatch(text)
    if found is None or found[2].lower() not in _UNITS:
        raise ValueError(f"expected a number of bytes with its unit, such as 500MB or 1.5GiB, got {text!r}")
    return int(float(found[1]) * _UNITS[found[2].lower()])
