"""The fields of a request, from its query string and its body: JSON, a form, or multipart. Nothing is written to a file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from heedful.serving.failures import CLOSE, ApiError
from heedful.serving.limits import Limits
from heedful.serving.worker import Cancelled

MAX_FIELDS = 100
DISCARDED = 64  # times the limit of a body that is read and thrown away, so that the client reads the error


class Body(BaseModel):
    """Base class of the fields of a request; others are ignored, because clients send many."""

    model_config = ConfigDict(extra="ignore")


Fields = TypeVar("Fields", bound=Body)


async def read_fields(request: Request, limits: Limits) -> dict[str, Any]:
    """All fields of a request; those of the body win."""
    body = await read_body(request, limits)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        fields: dict[str, Any] = parse_form(request.scope["query_string"])
        if not body.strip():
            pass  # some clients name a type without a body
        elif kind == "multipart/form-data":
            fields |= await parse_multipart(request, body)
        elif kind.endswith("json") or body.lstrip()[:1] in (b"{", b"["):
            fields |= parse_json(body)
        else:
            fields |= parse_form(body)
        check_texts(fields)
    except UnicodeDecodeError:
        raise ApiError(400, "the request is not UTF-8") from None
    except RecursionError:
        raise ApiError(400, "the JSON of the body is nested too deeply") from None
    return fields


async def read_body(request: Request, limits: Limits) -> bytes:
    """The body; 413 if it is too large, 408 if it arrives too slowly."""
    declared = request.headers.get("content-length", "0")
    size, parts = 0, []
    too_large = ApiError(413, f"the body is larger than {limits.max_body:,} bytes", headers=CLOSE)
    if declared.isdecimal() and int(declared) > DISCARDED * limits.max_body:
        raise too_large
    try:
        async with asyncio.timeout(limits.body_timeout):
            async for part in request.stream():
                size += len(part)
                if size <= limits.max_body:
                    parts.append(part)
                elif size > DISCARDED * limits.max_body:
                    raise too_large
    except TimeoutError:
        raise ApiError(408, f"the body did not arrive within {limits.body_timeout:g} s", headers=CLOSE) from None
    except ClientDisconnect:
        raise Cancelled from None
    if size > limits.max_body:
        raise too_large
    return b"".join(parts)


def parse_json(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body.decode(), parse_constant=refuse_constant)
    except UnicodeDecodeError:
        raise
    except ValueError as error:
        place = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise ApiError(400, f"the body is not valid JSON{place}") from None
    if not isinstance(fields, dict):
        raise ApiError(400, f"the body is a JSON {type(fields).__name__}; expected an object")
    return fields


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def parse_form(body: bytes) -> dict[str, Any]:
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except UnicodeDecodeError:
        raise
    except ValueError:
        raise ApiError(400, f"the request has more than {MAX_FIELDS} fields") from None
    return dict(pairs)


async def parse_multipart(request: Request, body: bytes) -> dict[str, Any]:
    """The fields and files, which stay in memory: a spooled file of maximum size 0 is never written to the disk."""

    async def parts() -> AsyncGenerator[bytes, None]:
        yield body

    parser = MultiPartParser(request.headers, parts(), max_files=1, max_fields=MAX_FIELDS, max_part_size=len(body) + 1)
    parser.spool_max_size = 0
    try:
        return dict(await parser.parse())
    except (MultiPartException, KeyError):
        raise ApiError(400, "the body is not valid multipart/form-data") from None


def check_texts(value: Any) -> None:
    """Raise an error for a text that cannot be computed or returned: with NUL, or half of a surrogate pair."""
    if isinstance(value, str):
        if "\0" in value:
            raise ApiError(400, "the request contains the character NUL")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ApiError(400, "the request contains half of a surrogate pair, which is not a character") from None
    elif isinstance(value, dict):
        for name, part in value.items():
            check_texts(name)
            check_texts(part)
    elif isinstance(value, list):
        for part in value:
            check_texts(part)


def parse(form: type[Fields], fields: dict[str, Any]) -> Fields:
    """The fields as typed values; 400 with the first problem."""
    try:
        return form.model_validate(fields)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        name = str(problem["loc"][0]) if problem["loc"] else "body"
        if problem["type"] == "missing" and len(problem["loc"]) == 1:
            raise ApiError(400, f"Invalid request: missing {name} parameter", param=name) from None
        raise ApiError(400, f"{name}: {problem['msg']}", param=name) from None
