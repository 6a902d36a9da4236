"""Sentences for people, found in the documentation of programs."""

import re
from collections.abc import Iterator

LEAST_WORDS = 6
PLAIN_SHARE = 0.9
"""The least share of words of letters alone; a paragraph with more names of code is hard to learn from."""

_PLAIN = str.maketrans("\u201c\u201d\u2018\u2019\u2014\u2013\t", "\"\"''-- ", "*`")
"""A translation of printed quotes and dashes to those of keyboards, which also removes marks of emphasis."""

_ITEM = r"(?:[*-]|\d+\.|\[\d+\]|\(\d+\))[ ]"
_BETWEEN = re.compile(rf"\n[ \t]*(?:\n\s*|(?={_ITEM}))")
_ITS_MARK = re.compile(rf"{_ITEM}\s*")
_JOINT = re.compile(r"[ \t]*\n[ \t]*|(?<=[.,:;!?)\"'])  ")
_SENTENCES = re.compile(r"""["(]?[A-Z][A-Za-z0-9 .,;:!?'"()/-]*[.:!?]["')]*""")
_WORD = re.compile(r"""["'(]*[A-Za-z]+(?:[-'/][A-Za-z]+)*[)"']*[.,;:!?]*["')]*""")


def prose_in(text: str) -> Iterator[str]:
    """The paragraphs and items of lists that are whole sentences, each in one line; tables, rulers, code and headings
    are left out."""
    for paragraph in _BETWEEN.split(text.strip()):
        mark = _ITS_MARK.match(paragraph)
        line = _JOINT.sub(" ", paragraph[mark.end() if mark else 0 :].translate(_PLAIN)).strip()
        if "  " not in line and _SENTENCES.fullmatch(line) and _is_plain(line.split(" ")):
            yield line


def _is_plain(words: list[str]) -> bool:
    n_plain = sum(_WORD.fullmatch(word) is not None for word in words)
    return len(words) >= LEAST_WORDS and n_plain >= PLAIN_SHARE * len(words)
