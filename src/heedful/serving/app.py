"""The HTTP application: its routes, and what is common to all: host and origin, keys, errors, headers, metrics.

Starlette, not FastAPI: the fields of a request come as JSON, form, multipart or query string, whichever the client prefers.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic
from typing import Any

from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedful.serving import compare_api, inspect_api, libretranslate, openai, predict_api, runs_api, status, studio
from heedful.serving.body import parse, read_fields
from heedful.serving.calls import Call, Endpoint, Service
from heedful.serving.failures import ApiError, api_error
from heedful.serving.openapi import document
from heedful.serving.security import HEADERS, find_key, host_is_allowed, origin_is_allowed
from heedful.serving.worker import Draining

REFUSED_KEY = {"libretranslate": 403, "openai": 401, "heedful": 401}
REASONS = {401: "key", 403: "key", 408: "slow body", 413: "size", 429: "queue full", 503: "stopping", 504: "deadline"}
NAME = "heedful.endpoint"  # in the scope: the endpoint of a request


def create_app(service: Service) -> ASGIApp:
    """The application with all of its middleware."""
    modules = (libretranslate, openai, predict_api, inspect_api, compare_api, runs_api, status, studio)
    endpoints = [endpoint for module in modules for endpoint in module.ENDPOINTS]
    described = document(endpoints, keys=bool(service.keys))

    async def describe(call: Call, given: None) -> dict[str, Any]:
        return described

    endpoints.append(Endpoint("GET", "/openapi.json", describe, "This document", needs_key=False))
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    routes = [Route(path, Resource(service, methods)) for path, methods in by_path.items()]
    app: ASGIApp = Router(routes, redirect_slashes=False, default=not_found)
    if service.origins:
        app = CORSMiddleware(app, allow_origins=service.origins, allow_methods=["GET", "POST"], allow_headers=["*"])
    return Front(app, service)


async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
    await error_response(scope, ApiError(404, "there is no such path; /openapi.json lists them"))(scope, receive, send)


def error_response(scope: Scope, error: ApiError) -> Response:
    endpoint = scope.get(NAME)
    api = endpoint.api if endpoint else "openai" if scope["path"].startswith("/v1") else "heedful"
    return JSONResponse(error.body(api), error.status, error.headers)


class Resource:
    """A path, for all of its methods."""

    def __init__(self, service: Service, methods: dict[str, Endpoint]) -> None:
        self.service, self.methods = service, methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self.handle(Request(scope, receive))
        await response(scope, receive, send)

    async def handle(self, request: Request) -> Response:
        endpoint = self.methods.get("GET" if request.method == "HEAD" else request.method)
        try:
            if endpoint is None:
                allowed = ", ".join(self.methods)
                raise ApiError(405, f"{request.method:.20} is not allowed; expected {allowed}", headers={"Allow": allowed})
            request.scope[NAME] = endpoint
            answer = await respond(self.service, endpoint, request)
        except Exception as error:
            failure = api_error(error)
            if failure.status in REASONS:
                self.service.metrics.rejected.labels(REASONS[failure.status]).inc()
            return error_response(request.scope, failure)
        return answer if isinstance(answer, Response) else JSONResponse(answer)


async def respond(service: Service, endpoint: Endpoint, request: Request) -> Any:
    """The answer of an endpoint; whatever is wrong with the request is raised."""
    if service.draining and not endpoint.while_draining:
        raise Draining
    arrived = monotonic()
    fields = await read_fields(request, service.limits)
    key = find_key(given_key(request, fields), service.keys)
    if service.keys and endpoint.needs_key and key is None:
        raise ApiError(REFUSED_KEY[endpoint.api], "Invalid API key", code="invalid_api_key")
    address = request.client.host if request.client else ""
    given = None if endpoint.fields is None else parse(endpoint.fields, fields)
    return await endpoint.handler(Call(service, request, key or address, arrived, fields), given)


def given_key(request: Request, fields: dict[str, Any]) -> str:
    """The key of a request, as OpenAI or as LibreTranslate sends it."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else str(fields.get("api_key", ""))


class Front:
    """Outermost: checks Host and Origin, cleans the path, adds headers, counts."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no lifespan, no websockets
        service, started, code = self.service, monotonic(), 500

        async def send_with_headers(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
                message["headers"] = [*message["headers"], *SECURITY]
            await send(message)

        scope["path"] = "/" + "/".join(part for part in scope["path"].split("/") if part)
        service.in_flight += 1
        try:
            await (self.refusal(scope) or self.app)(scope, receive, send_with_headers)
        finally:
            service.in_flight -= 1
            endpoint = scope.get(NAME)
            route, api = (endpoint.path, endpoint.api) if endpoint else ("other", "other")
            service.metrics.requests.labels(api, route, str(code)).inc()
            service.metrics.request_seconds.labels(api).observe(monotonic() - started)

    def refusal(self, scope: Scope) -> Response | None:
        """The reply to a request for another host, or from a page of another origin."""
        headers = dict(reversed(decode(scope["headers"])))
        host, origin = headers.get("host", ""), headers.get("origin")
        if not host_is_allowed(host, self.service.hosts):
            return error_response(scope, ApiError(403, "the Host header does not name this server; see --allow-host"))
        if origin is not None and not origin_is_allowed(origin, host, self.service.origins):
            return error_response(scope, ApiError(403, "requests of this origin are not allowed; see --cors"))
        return None


SECURITY = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


def decode(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers]
