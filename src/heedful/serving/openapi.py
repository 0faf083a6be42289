"""The OpenAPI document of the server, made from its endpoints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from pydantic import TypeAdapter

from heedful.serving.calls import Endpoint

REFERENCES = "#/components/schemas/{model}"
ERRORS = {
    400: "The request is wrong.",
    401: "An API key is missing or wrong.",
    403: "The API key, the host or the origin is not accepted.",
    404: "There is no such thing.",
    408: "The request arrived too slowly.",
    413: "The request is too large.",
    429: "The queue is full; Retry-After has the seconds to wait.",
    500: "A bug.",
    503: "The server is stopping or not ready.",
    504: "The deadline passed.",
}
FORMS = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")


def document(endpoints: Sequence[Endpoint], *, keys: bool) -> dict[str, Any]:
    """The whole document; keys: whether requests need one."""
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation(endpoint, schemas, keys=keys)
    components: dict[str, Any] = {"schemas": schemas}
    if keys:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    info = {"title": "Heedful", "version": version("heedful")}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": components}


def operation(endpoint: Endpoint, schemas: dict[str, Any], *, keys: bool) -> dict[str, Any]:
    answer = {"description": "The result."}
    if endpoint.answer is not None:
        answer["content"] = {"application/json": {"schema": schema_of(endpoint.answer, schemas)}}  # type: ignore[assignment]
    error = {"application/json": {"schema": error_schema(endpoint.api)}}
    responses = {"200": answer} | {
        str(code): {"description": text, "content": error} for code, text in ERRORS.items() if code != 500
    }
    about: dict[str, Any] = {"summary": endpoint.summary, "tags": [endpoint.api], "responses": responses}
    if names := re.findall(r"{(\w+)}", endpoint.path):
        text: dict[str, Any] = {"type": "string"} | ({"enum": list(endpoint.choices)} if endpoint.choices else {})
        about["parameters"] = [{"name": name, "in": "path", "required": True, "schema": text} for name in names]
    if endpoint.fields is not None:
        schema = schema_of(endpoint.fields, schemas)
        about["requestBody"] = {"required": True, "content": {form: {"schema": schema} for form in forms_of(endpoint)}}
    if keys and endpoint.needs_key:
        about["security"] = [{"key": []}]
    return about


def forms_of(endpoint: Endpoint) -> Sequence[str]:
    """The media types of a body: LibreTranslate's are forms, too; a file is in multipart only."""
    assert endpoint.fields is not None, "the endpoint has a body"
    if "file" in endpoint.fields.model_fields:
        return FORMS[2:]
    return FORMS if endpoint.api == "libretranslate" else FORMS[:1]


def schema_of(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of a type; named parts are added to `schemas`."""
    schema = TypeAdapter(kind).json_schema(ref_template=REFERENCES)
    schemas |= schema.pop("$defs", {})
    return schema


def error_schema(api: str) -> dict[str, Any]:
    text = {"type": "string"}
    if api != "openai":
        return {"type": "object", "properties": {"error": text}, "required": ["error"]}
    maybe = {"type": ["string", "null"]}
    detail = {"type": "object", "properties": {"message": text, "type": text, "param": maybe, "code": maybe}}
    return {"type": "object", "properties": {"error": detail | {"required": ["message", "type"]}}, "required": ["error"]}
