"""What is wrong with a config, in our words: pydantic finds the problems, this says them.

Each problem is (dotted path, sentence, near miss): what was given, what was expected, which right name is close.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from heedful.errors import nearest
from heedful.schema import Problems

Complaint = tuple[str, str, str | None]

# What a value of each kind is called; the kind is the front of pydantic's error type.
KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "a text",
    "list": "a list",
    "tuple": "a list",
    "dict": "a table",
    "model": "a table",
    "mapping": "a table",
}
BOUNDS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "greater_than": lambda context: f"a number > {context['gt']}",
    "greater_than_equal": lambda context: f"a number >= {context['ge']}",
    "less_than": lambda context: f"a number < {context['lt']}",
    "less_than_equal": lambda context: f"a number <= {context['le']}",
    "too_short": lambda context: f"at least {context['min_length']} of them",
    "too_long": lambda context: f"at most {context['max_length']} of them",
    "string_pattern_mismatch": lambda context: f"a text like {context['pattern']}",
    "finite_number": lambda context: "a finite number",
    "int_from_float": lambda context: "a whole number",
}


def complaints(schema: type[BaseModel], table: Mapping[str, Any], error: ValidationError) -> list[Complaint]:
    """Every problem once; the branches of a choice ("a whole number or a list") are told together."""
    found: list[Complaint] = []
    choices: dict[str, list[str]] = {}
    for one in error.errors(include_url=False):
        path = place(one["loc"], table, missing=one["type"] == "missing")
        if one["type"] == "value_error":
            found += own_words(path, one["ctx"]["error"])
        elif one["type"] == "missing":
            found.append((path, "missing, but needed", None))
        elif one["type"] == "extra_forbidden":
            path = ".".join([path, str(one["loc"][-1])]).strip(".") if not path.endswith(str(one["loc"][-1])) else path
            close = nearest(str(one["loc"][-1]), known_keys(schema, path.split(".")[:-1]))
            found.append((path, "unknown key", close))
        elif one["type"] == "literal_error":
            names = re.findall(r"'([^']*)'", one["ctx"]["expected"])
            close = nearest(str(one["input"]), names)
            found.append((path, f"given {one['input']!r}, expected one of: {', '.join(names)}", close))
        else:
            choices.setdefault(path, []).append(expectation(one["type"], one.get("ctx", {})))
            if len(choices[path]) == 1:
                found.append((path, f"given {one['input']!r}, expected ", None))
    return [(path, told(sentence, choices.get(path, [])), close) for path, sentence, close in found]


def told(sentence: str, expected: list[str]) -> str:
    return sentence + " or ".join(dict.fromkeys(expected)) if sentence.endswith("expected ") else sentence


def expectation(kind: str, context: Mapping[str, Any]) -> str:
    if kind in BOUNDS:
        return BOUNDS[kind](context)
    return KINDS.get(kind.split("_")[0], kind.replace("_", " "))


def own_words(path: str, error: Exception) -> Iterator[Complaint]:
    """What one of our own validators said: several problems, or one sentence."""
    if isinstance(error, Problems):
        for problem in error.problems:
            yield f"{path}.{problem.path}".strip("."), problem.sentence, problem.suggestion
    else:
        yield path, str(error), None


def place(location: tuple[int | str, ...], table: Any, *, missing: bool) -> str:
    """The dotted path that the user typed; names of branches, which pydantic puts between, are left out."""
    parts: list[str] = []
    inside: Any = table
    for number, part in enumerate(location):
        if holds(inside, part):
            inside = inside[part]
        elif not (missing and number == len(location) - 1):
            continue
        parts.append(str(part))
    return ".".join(parts)


def holds(inside: Any, part: int | str) -> bool:
    if isinstance(inside, Mapping):
        return part in inside
    return isinstance(inside, list | tuple) and isinstance(part, int) and part < len(inside)


def known_keys(schema: Any, path: list[str]) -> list[str]:
    """The keys that may stand in the table at that path."""
    models = list(models_in(schema))
    for part in path:
        models = [
            inner for model in models if part in model.model_fields for inner in models_in(model.model_fields[part].annotation)
        ] or (models if part.isdigit() else [])
    return [key for model in models for key in model.model_fields]


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The config classes inside a type: of unions, lists and annotations all."""
    if typing.get_origin(annotation) is None and isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from models_in(inner)
