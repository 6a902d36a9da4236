"""An error of a computation in words: a short text for the server, and the person's own lines for the person."""

import sysconfig
import traceback
from itertools import dropwhile
from pathlib import Path

from fedlearn.wire.errors import RemoteProtocolError

_OURS = str(Path(__file__).parents[1])
_NOBODYS = (_OURS, sysconfig.get_path("stdlib"), "<")


def in_short(error: Exception) -> str:
    """The error in one line; its kind and place are left out where fedlearn's own message is enough."""
    text = " ".join(str(error).split())
    if isinstance(error, ValueError | RemoteProtocolError) and text and not _own_frames(error):
        return text
    place = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(place[-1].filename).name}, line {place[-1].lineno})" if place else ""
    return f"{type(error).__name__}{where}: {text}" if text else f"{type(error).__name__}{where}"


def own_lines(error: Exception) -> list[str]:
    """The lines of the person's own files that the error came through, outermost first; none if it came through
    none."""
    return [
        f"{frame.filename}, line {frame.lineno}, in {frame.name}: {(frame.line or '').strip()}"
        for frame in _own_frames(error)
    ]


def _own_frames(error: Exception) -> list[traceback.FrameSummary]:
    """The frames below fedlearn's own, without those of fedlearn, Python and installed packages."""
    frames = dropwhile(lambda frame: not frame.filename.startswith(_OURS), traceback.extract_tb(error.__traceback__))
    return [
        frame
        for frame in frames
        if not frame.filename.startswith(_NOBODYS) and "site-packages" not in Path(frame.filename).parts
    ]
