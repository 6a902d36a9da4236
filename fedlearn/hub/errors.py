"""Answers for errors: `{error}` and the status."""

import sys

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from fedlearn.board.app import json_of
from fedlearn.hub.bodies import RefusedError
from fedlearn.storage.durable import StorageError

OURS = "the hub failed; its terminal says why"


def error_of(status: int, text: str) -> Response:
    """The answer."""
    answer = json_of({"error": text}, status=status)
    if status == 401:
        answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


async def answer_of(_: Request, error: Exception) -> Response:
    """The answer to an error. Texts of the hub's own errors are not sent, since they name files."""
    match error:
        case RefusedError():
            return error_of(error.status, error.text)
        case HTTPException():
            return error_of(error.status_code, error.detail)
        case StorageError() | OSError():
            print(f"hub: {error}", file=sys.stderr, flush=True)
    return error_of(500, OURS)
