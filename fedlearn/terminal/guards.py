"""What keeps texts from the network from being obeyed: control characters become visible escapes."""


def escape(text: str) -> str:
    """The text in one line, with escapes such as \\x1b for all that a terminal would obey rather than show."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable(text: str) -> str:
    """The text with its lines, and escapes for all else that a terminal would obey."""
    return "\n".join(escape(line) for line in text.split("\n"))
