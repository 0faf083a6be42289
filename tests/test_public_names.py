"""Public names: each has a docstring with an example that runs, and README's Python code has no `Any` for the type checker."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful import inspection

ROOT = Path(__file__).parents[1]
PUBLIC = {f"heedful.{name}": getattr(heedful, name) for name in heedful.__all__ if name != "inspection"}
PUBLIC |= {f"heedful.inspection.{name}": getattr(inspection, name) for name in inspection.__all__}


def documentation(thing: Any) -> str:
    own = thing if inspect.isfunction(thing) or inspect.isclass(thing) else type(thing)
    return inspect.getdoc(own) or ""


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_has_an_example_that_runs(
    name: str, tiny_runs: dict[str, Path], tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = documentation(PUBLIC[name])
    names = {f"{task}_run": str(run) for task, run in tiny_runs.items()} | {"run": str(tiny_runs["translation"])}
    names |= {"pooling_run": str(tiny_encoder)}
    names |= {"heedful": heedful}  # type: ignore[dict-item]
    if "translator" in text:
        names["translator"] = heedful.Translator.load(tiny_runs["translation"])  # type: ignore[assignment]
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest(text, names, name, None, None)
    assert test.examples, "there is an example"
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
    assert result.failed == 0


def test_every_name_of_the_readme_has_a_type(tmp_path: Path) -> None:
    """The first example passes mypy --strict, and what it assigns and prints is not `Any`."""
    (code, *_) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    tree = ast.parse(code)
    names = {target.id for node in tree.body for target in getattr(node, "targets", ()) if isinstance(target, ast.Name)}
    names |= {
        ast.unparse(item.optional_vars)
        for node in tree.body
        for item in getattr(node, "items", ())
        if is_name(item.optional_vars)
    }
    printed = [ast.unparse(one) for node in ast.walk(tree) if is_print(node) for one in getattr(node, "args", ())]
    revealed = [*sorted(names), *printed]
    assert names and printed
    file = tmp_path / "readme_example.py"
    file.write_text(code + "".join(f"reveal_type({one})\n" for one in revealed))
    config, beginning = (ROOT / "pyproject.toml").read_text(), 'module = ["sentencepiece'
    assert config.count(beginning) == 1
    # Without the types of torch, which take most of the time: a name that has one of them would be `Any`.
    (tmp_path / "pyproject.toml").write_text(config.replace(beginning, 'module = ["torch.*", "sentencepiece'))
    options = ["--strict", "--follow-imports=silent", f"--cache-dir={tmp_path}", f"--config-file={tmp_path}/pyproject.toml"]
    done = subprocess.run([sys.executable, "-m", "mypy", *options, str(file)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("Revealed type") == len(revealed)
    assert "Any" not in done.stdout


def is_print(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"


def is_name(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Name)
