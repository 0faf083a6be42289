"""Whether the server works, what it serves, and its metrics."""

from __future__ import annotations

from importlib.metadata import version as package_version
from time import monotonic
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from heedful.serving.calls import Call, Endpoint
from heedful.serving.failures import ApiError
from heedful.serving.served import Served
from heedful.serving.worker import QueueFull

FRESH = 1.0  # seconds for which a correct canary is not computed again
ATTEMPTS = 3  # in low precision a prediction may depend on its batch


async def livez(call: Call, given: None) -> dict[str, str]:
    return {"status": "ok"}


async def readyz(call: Call, given: None) -> dict[str, str]:
    """Ready if every model gives the output for its canary that it gave when it was loaded."""
    if call.service.draining:
        raise ApiError(503, "the server is stopping")
    for served in call.service.models:
        if monotonic() - call.service.checked.get(served.id, -FRESH) >= FRESH:
            await check_canary(call, served)
            call.service.checked[served.id] = monotonic()
    return {"status": "ready"}


async def check_canary(call: Call, served: Served) -> None:
    if served.recorded is None:
        return
    for _ in range(ATTEMPTS):
        try:
            (prediction,) = await call.predict(served, [served.canary], served.canary_options)
        except QueueFull:  # busy, and so at work
            return
        if prediction.text == served.recorded:
            return
    raise ApiError(503, f"model {served.id!r} no longer gives the output for its canary that it gave when it was loaded")


async def version(call: Call, given: None) -> dict[str, Any]:
    return {"version": package_version("heedful"), "models": [served.describe() for served in call.service.models]}


async def metrics(call: Call, given: None) -> Response:
    return Response(call.service.metrics.text(), media_type=CONTENT_TYPE_LATEST)


ENDPOINTS = [
    Endpoint("GET", "/livez", livez, "Whether the process runs", answer=dict[str, str], needs_key=False, while_draining=True),
    Endpoint("GET", "/readyz", readyz, "Whether all models work", answer=dict[str, str], needs_key=False, while_draining=True),
    Endpoint("GET", "/version", version, "Version, models and the hashes of their weights"),
    Endpoint("GET", "/metrics", metrics, "Metrics for Prometheus", answer=None, while_draining=True),
]
