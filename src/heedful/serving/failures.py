"""Errors of requests: a status, a sentence, and its form in each API.

LibreTranslate and /api    {"error": "…"}
OpenAI                     {"error": {"message": "…", "type": "…", "param": null, "code": null}}
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from typing import Any

from heedful.errors import ConfigError, DataError, HeedfulError, MissingFile
from heedful.serving.worker import Cancelled, DeadlineExceeded, Draining, ModelEnded, QueueFull

log = logging.getLogger(__name__)
TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error", 503: "overloaded_error"}
LEFT = 499  # the client closed the connection: no one reads the reply
CLOSE = {"Connection": "close"}


class ApiError(Exception):
    """A request that is answered with an error."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.headers = status, message, param, code, dict(headers or {})

    def body(self, api: str) -> dict[str, Any]:
        """The error in the form of an API."""
        if api != "openai":
            return {"error": self.message}
        kind = TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def log_bug(error: Exception) -> None:
    """Log where an error occurred, without its message, which may contain text of the request."""
    frames = "".join(traceback.format_tb(error.__traceback__)).rstrip()
    log.error("error: %s while answering a request\n%s", type(error).__name__, frames)


def api_error(error: Exception) -> ApiError:
    """The reply to any exception."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, QueueFull):
        message = f"Slowdown: {error}"
        return ApiError(429, message, code="rate_limit_exceeded", headers={"Retry-After": str(error.retry_after)})
    if isinstance(error, Draining):
        return ApiError(503, "the server is stopping", headers={"Retry-After": "5", **CLOSE})
    if isinstance(error, ModelEnded):
        return ApiError(503, "the process of the model ended; it is being started again", headers={"Retry-After": "10"})
    if isinstance(error, DeadlineExceeded):
        return ApiError(504, "the deadline of the request passed before its reply was computed")
    if isinstance(error, Cancelled):
        return ApiError(LEFT, "the client left")
    if isinstance(error, MissingFile):
        return ApiError(400, "the data of this model is not on the server, and what was asked for needs it")
    if isinstance(error, ConfigError | DataError):
        return ApiError(400, str(error.args[0]))
    log_bug(error)
    what = "the model cannot compute this" if isinstance(error, HeedfulError) else "internal error"
    return ApiError(500, what)
