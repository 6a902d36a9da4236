"""An error of a computation in words: a short text for the server."""

import traceback
from pathlib import Path

from fedlearn.system.own_frames import own_frames
from fedlearn.wire.errors import RemoteProtocolError


def in_short(error: BaseException) -> str:
    """The error in one line; its kind and place are left out where fedlearn's own message is enough."""
    text = " ".join(str(error).split())
    if isinstance(error, ValueError | RemoteProtocolError) and text and not own_frames(error):
        return text
    place = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(place[-1].filename).name}, line {place[-1].lineno})" if place else ""
    return f"{type(error).__name__}{where}: {text}" if text else f"{type(error).__name__}{where}"
