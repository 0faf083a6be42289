"""Help texts, errors, option descriptions, documentation and recipes use the words of the field and American spelling."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from configs import option_configs

from heedful.cli import app
from heedful.runs.config import Run

ROOT = Path(__file__).parents[2]
DOCUMENTS: tuple[str, ...] = ("README.md", "docs/**/*.md")
BANNED = re.compile(
    r"\b(said|told(?! apart)|mistrust|nobody|somebody|whoever|so many|looks at|(is|are) looked at|a look|whose look"
    r"|wall of heads|the best there is|every verb|strangers?)\b",
    re.IGNORECASE,
)
BRITISH = re.compile(
    r"(optimi|normali|tokeni|initiali|minimi|maximi|symmetri|randomi|summari|quanti|generali|recogni|analy)s(e|ed|er|ing|ation)\b"
    r"|colour|behaviour|neighbour|favour|catalogue|labell|modell|\b(centred?|licence|grey|learnt|misspelt)\b",
    re.IGNORECASE,
)


def offences(text: str) -> list[str]:
    return [match[0] for pattern in (BANNED, BRITISH) for match in pattern.finditer(text)]


def help_texts(command: Any = None, path: tuple[str, ...] = ("heed",)) -> Iterator[tuple[str, str]]:
    """Every help text of a command and its subcommands: where it is, and the text."""
    command = command or typer.main.get_command(app)
    yield " ".join(path), f"{command.help or ''} {command.epilog or ''}"
    for parameter in command.params:
        yield " ".join((*path, parameter.opts[0])), f"{' '.join(parameter.opts)} {getattr(parameter, 'help', None) or ''}"
    for name, below in getattr(command, "commands", {}).items():
        yield from help_texts(below, (*path, name))


def error_texts(path: Path) -> Iterator[tuple[str, str]]:
    """Every string in the construction of an error or in a `hint=`, also as an assigned `hint`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        parts: list[ast.AST] = []
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            parts = [node] if name.endswith("Error") else [one.value for one in node.keywords if one.arg == "hint"]
        elif isinstance(node, ast.Assign) and any(getattr(one, "id", "") == "hint" for one in node.targets):
            parts = [node.value]
        for constant in (one for part in parts for one in ast.walk(part)):
            if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
                yield f"{path.relative_to(ROOT)}:{constant.lineno}", constant.value


def documents() -> list[Path]:
    """The documents that are checked: those that match DOCUMENTS."""
    return sorted(path for pattern in DOCUMENTS for path in ROOT.glob(pattern))


def prose(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a document without code blocks; of the log only its headings."""
    is_code = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        is_code ^= line.lstrip().startswith("```")
        if not is_code and (path.name != "log.md" or line.startswith("#")):
            yield f"{path.relative_to(ROOT)}:{number}", line


def recipe_comments() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "recipes").rglob("*.toml")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if "#" in line:
                yield f"{path.relative_to(ROOT)}:{number}", line.partition("#")[2]


def check(texts: Iterator[tuple[str, str]]) -> None:
    listed = list(texts)
    assert listed, "there is something to check"
    bad = [f"{place}: {', '.join(words)}: {text.strip()[:100]}" for place, text in listed if (words := offences(text))]
    assert not bad, "\n".join(bad)


def test_help_texts() -> None:
    check(help_texts())


def test_errors_and_hints() -> None:
    check(text for path in sorted((ROOT / "src").rglob("*.py")) for text in error_texts(path))


def test_config_keys_and_descriptions() -> None:
    check(
        (f"{config.__name__}.{name}", f"{name.replace('_', ' ')}: {field.description or ''}")
        for config in option_configs(Run)
        for name, field in config.model_fields.items()
    )


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_documentation(path: Path) -> None:
    check(prose(path))


def test_comments_of_recipes() -> None:
    check(recipe_comments())


def test_banned_words_are_detected() -> None:
    assert offences("4 layers unless said; the colour is told") == ["said", "told", "colour"]
    assert offences("The default is 4 layers; the color is given.") == []
