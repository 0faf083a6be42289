"""README and docs agree with the code: the first example runs; commands, options, config keys, imports and links exist."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest
import typer

import heedful
from heedful.cli import app
from heedful.runs.config import read_run
from heedful.runs.recipes import all_recipes

ROOT = Path(__file__).parents[1]
GENERATED = {"reference", "_build"}  # by `make docs`
DOCS = [path for path in sorted((ROOT / "docs").rglob("*.md")) if not GENERATED & set(path.relative_to(ROOT).parts)]
PAGES = [ROOT / "README.md", *(path for path in DOCS if path.name != "log.md")]
NAMES = [str(path.relative_to(ROOT)) for path in PAGES]


def code_blocks(page: str, language: str) -> list[str]:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    return [text for name, text in blocks if name == language]


def heed_commands(page: str) -> Iterator[list[str]]:
    """Arguments of all `heed` commands in the text and in code blocks without a language, up to a redirection or pipe."""
    shell = "".join(code_blocks(page, "")).replace("\\\n", " ").splitlines()
    inline = [code.replace("\n", " ") for code in re.findall(r"`(heed [^`]+)`", (ROOT / page).read_text())]
    for line in (*(line for line in shell if "heed " in line), *inline):
        words = shlex.shlex(line, posix=True, punctuation_chars="|&<>")
        words.whitespace_split = True
        for is_operator, command in groupby(words, lambda word: word[0] in "|&<>"):
            if not is_operator and (arguments := list(command))[0] == "heed":
                yield arguments[1:]


def options_of(command: Any, words: list[str]) -> set[str]:
    """Options of the command that `words` start with; command: the root of typer's command tree."""
    for word in words:
        if word.startswith("-") or not hasattr(command, "commands"):
            break
        assert word in command.commands, f"heed has no command {word!r}"
        command = command.commands[word]
    return {"--help", *(name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts))}


def test_the_first_code_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code = code_blocks("README.md", "python")[0]
    monkeypatch.chdir(tmp_path)
    smaller = ["training.steps=20", "data.counts={train=500, valid=20, test=20}"]  # seconds instead of minutes
    train = heedful.train
    monkeypatch.setattr(heedful, "train", lambda recipe, run: train(recipe, smaller, run=run))
    exec(compile(code, "README.md", "exec"), {})
    one, several, *attention = capsys.readouterr().out.splitlines()
    assert one.strip() is not None and several.startswith("[") and len(attention) > 5
    assert (tmp_path / "attention.png").read_bytes().startswith(b"\x89PNG")


def test_the_family_in_the_contributing_guide_is_the_one_that_passes_all_contracts() -> None:
    assert code_blocks("CONTRIBUTING.md", "python")[0] == (ROOT / "tests" / "toys" / "bag.py").read_text()


def test_every_command_and_option_in_the_docs_exists() -> None:
    commands = [(page, words) for page in NAMES for words in heed_commands(page)]
    assert len(commands) > 100
    root = typer.main.get_command(app)
    given = [(page, words, word) for page, words in commands for word in words if re.match(r"--?[a-z]", word)]
    assert not [(page, words) for page, words, option in given if option not in options_of(root, words)]


def test_files_that_a_command_on_the_demo_reads_exist() -> None:
    """The reader has just trained that run and has no file of text; other commands are for the reader's own files."""
    written = ("--html", "--picture", "--out", "--output", "--save")
    commands = [words for page in NAMES for words in heed_commands(page) if "runs/demo" in words]
    assert len(commands) > 5
    read = [
        word
        for words in commands
        for option, word in pairwise(words)
        if re.fullmatch(r"[\w./-]+\.[a-z]{2,}", word) and option not in written
    ]
    assert not [word for word in read if not (ROOT / word).exists()]


def test_every_recipe_and_override_in_the_docs_is_valid() -> None:
    checked = 0
    for page in NAMES:
        for words in heed_commands(page):
            if words[0] == "train" and words[1] in all_recipes():
                overrides = [word for word in words[2:] if "=" in word]
                read_run(all_recipes()[words[1]], overrides)
                checked += 1
    assert checked > 20


def test_every_import_in_the_docs_resolves() -> None:
    statements = [node for page in NAMES for block in code_blocks(page, "python") for node in ast.walk(ast.parse(block))]
    imports = [(node.module, alias.name) for node in statements if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert imports
    assert not [(module, name) for module, name in imports if not hasattr(importlib.import_module(module or ""), name)]


@pytest.mark.parametrize("page", NAMES)
def test_every_link_and_path_on_the_page_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    links = [link.partition("#") for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    missing = [link for link, _, _ in links if not ((ROOT / page).parent / link).exists()]
    paths = re.findall(r"`(?:python )?((?:benchmarks|docs|src|recipes)/[\w/.-]+\.\w+)", text)
    packages = "|".join(path.name for path in (ROOT / "src" / "heedful").iterdir() if path.is_dir())
    modules = re.findall(rf"`((?:{packages})/[\w/]+\.py)`", text)
    missing += [path for path in paths if not (ROOT / path).exists()]
    missing += [path for path in modules if not (ROOT / "src" / "heedful" / path).exists()]
    assert not missing


def test_public_names_are_sorted_complete_and_importable() -> None:
    assert heedful.__all__ == sorted(heedful.__all__) == sorted(heedful.MODULES)
    assert all(getattr(heedful, name) is not None for name in heedful.__all__)
    with pytest.raises(AttributeError, match="HeedfulError"):
        heedful.trian  # noqa: B018


def test_public_names_are_listed_for_completion() -> None:
    assert dir(heedful) == sorted(heedful.__all__)
