"""The lines of a person's own files that an error came through, without those of fedlearn, Python and packages."""

import sysconfig
import traceback
from itertools import dropwhile
from pathlib import Path

_OURS = str(Path(__file__).parents[1])
_NOBODYS = (_OURS, sysconfig.get_path("stdlib"), "<")


def own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames below fedlearn's own, without those of fedlearn, Python and installed packages, outermost first."""
    frames = dropwhile(lambda frame: not frame.filename.startswith(_OURS), traceback.extract_tb(error.__traceback__))
    return [
        frame
        for frame in frames
        if not frame.filename.startswith(_NOBODYS) and "site-packages" not in Path(frame.filename).parts
    ]


def own_lines(error: BaseException) -> list[str]:
    """The lines of the person's own files that the error came through, outermost first; none if it came through
    none."""
    return [
        f"{frame.filename}, line {frame.lineno}, in {frame.name}: {(frame.line or '').strip()}"
        for frame in own_frames(error)
    ]
