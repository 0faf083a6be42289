"""What an option means, in the words that stand beside it in the code:

    window: ZeroOrSize = 0  # restricted self-attention: number of tokens attended to; 0: all

`heed config show` and the JSON Schema show the same words.
"""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import tokenize
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal

from heedful.schema import Config
from heedful.settings import kinds


@cache
def remarks(schema: type[Config]) -> dict[str, str]:
    """By the name of a field the comment that stands behind it; of fields without one, nothing."""
    found: dict[str, str] = {}
    for part in reversed(schema.__mro__):
        if issubclass(part, Config):
            found |= written_in(part)
    return {name: remark for name, remark in found.items() if name in schema.model_fields}


def written_in(part: type[Config]) -> dict[str, str]:
    try:
        source = textwrap.dedent(inspect.getsource(part))
    except OSError:  # installed without its text
        return {}
    said = {
        token.start[0]: token.string.lstrip("# ").rstrip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and not token.string.startswith(("# type:", "# fmt:", "# noqa"))
    }
    (tree,) = ast.parse(source).body
    assert isinstance(tree, ast.ClassDef), "this is the source of a class"
    return {name: remark for name, lines in fields(tree) if (remark := "; ".join(said[line] for line in lines if line in said))}


def fields(tree: ast.ClassDef) -> Iterator[tuple[str, range]]:
    """Each field and the lines that it stands on."""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, range(node.lineno, (node.end_lineno or node.lineno) + 1)


def remark_on(config: object, parts: tuple[str, ...]) -> str | None:
    """The explanation of the option at the end of this path."""
    owner = owner_of(config, parts)
    return remarks(type(owner)).get(parts[-1]) if owner else None


def kind_of(config: object, parts: tuple[str, ...]) -> Any:
    """The type of the option at the end of this path; for the tag of a union of tables, with the tags of all of them."""
    owner = owner_of(config, parts)
    kind = kinds.fields(type(owner)).get(parts[-1]) if owner else None
    if len(parts) < 2 or len(kinds.choices(kind)) != 1:
        return kind
    tables = kinds.branches(kind_of(config, parts[:-1]))
    tags = tuple(tag for table in tables for tag in kinds.choices(kinds.fields(table).get(parts[-1])))
    return Literal[tags] if tags else kind


def owner_of(config: object, parts: tuple[str, ...]) -> Config | None:
    """The config that has the option at the end of this path."""
    for part in parts[:-1]:
        config = config[int(part)] if isinstance(config, list | tuple) else getattr(config, part, None)
    return config if isinstance(config, Config) else None


def every_config(schema: type[Config] = Config) -> Iterator[type[Config]]:
    for part in schema.__subclasses__():
        yield part
        yield from every_config(part)
