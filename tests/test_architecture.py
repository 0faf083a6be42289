"""Who may import whom: a package knows the packages below it and none above. Read from the source, lazy imports included."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import heedful

ROOT = Path(heedful.__file__).parent
LEVELS = [
    {"errors"},
    {"storage"},
    {"config"},
    {"text", "evaluation", "nn"},
    {"data", "models", "search", "training", "vectors"},
    {"tasks"},
    {"inspection"},
    {"runs"},
    {"exchange", "serving"},
    {"cli"},
]
LEVEL = {package: level for level, packages in enumerate(LEVELS) for package in packages}
NEVER = {
    "text": {"torch"},
    "evaluation": {"torch"},
    "search": {"heedful.models"},
    "training": {"heedful.models", "heedful.tasks"},
}


def files() -> dict[str, Path]:
    """Every module by its name; a package goes by the name of its folder."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = files()
SOME = [name for name in MODULES if name not in ("heedful", "heedful.__main__")]  # the package's own front is above all


def package_of(module: str) -> str:
    return module.split(".")[1]


def level_of(module: str) -> int:
    return LEVEL[package_of(module)]


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def named(tree: ast.AST) -> Iterator[str]:
    """Every module that is imported anywhere below: `from a import b` names a.b where that is a module, else a."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None, "imports are absolute"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else node.module


@cache
def imports(module: str) -> set[str]:
    return set(named(tree_of(module)))


def imports_on_loading(module: str) -> set[str]:
    """Without those inside functions and those for the type checker."""
    body: list[ast.stmt] = [node for node in tree_of(module).body if isinstance(node, ast.Import | ast.ImportFrom)]
    return set(named(ast.Module(body, []))) & MODULES.keys()


def test_there_is_something_to_check() -> None:
    assert len(SOME) > 40
    assert "heedful.nn.decoder_state" in imports("heedful.search.engine")
    assert "heedful.runs.load" in imports("heedful")  # seen although it is for the type checker


def test_every_package_has_a_level_and_errors_is_the_only_loose_module() -> None:
    packages = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    assert packages <= LEVEL.keys()
    assert {package_of(module) for module in SOME} - packages == {"errors"}


def test_a_package_imports_nothing_from_above() -> None:
    wrong = [
        f"{module} imports {other}"
        for module in SOME
        for other in sorted(imports(module))
        if other in SOME and level_of(other) > level_of(module)
    ]
    assert wrong == []


def test_a_package_never_imports_what_it_must_not_know() -> None:
    wrong = [
        f"{module} imports {other}"
        for module in SOME
        for other in sorted(imports(module))
        for banned in NEVER.get(package_of(module), ())
        if f"{other}.".startswith(f"{banned}.")
    ]
    assert wrong == []


OPENS = {  # what opens, writes or removes a file; `storage` has a function for each
    *("open", "read_text", "read_bytes", "write_text", "write_bytes", "memmap", "fromfile", "mkstemp", "rmtree", "fdopen"),
    *("FileIO", "TemporaryFile", "NamedTemporaryFile", "savefig"),
}
MAY_OPEN = {
    "heedful.exchange.standalone": "runs without heedful",
    "heedful.cli.process": "opens /dev/null in the place of a standard stream",
}


def files_opened(module: str) -> list[str]:
    """The calls that open a file, except those of functions that were imported from `storage` or defined in the module."""
    tree = tree_of(module)
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    stored = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("heedful.")
        for alias in node.names
    }
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in OPENS - own - stored:
            found.append(f"{module}:{node.lineno} {node.func.id}")
        elif ast.unparse(node) == "plot.savefig(content, format=format, dpi=DOTS)":
            continue  # into memory
        elif isinstance(node.func, ast.Attribute):
            name = ast.unparse(node.func)
            if name in ("os.replace", "os.rename") or (node.func.attr in OPENS and not name.startswith("self.")):
                found.append(f"{module}:{node.lineno} {name}")
    return found


def test_only_storage_opens_files() -> None:
    modules = [module for module in SOME if package_of(module) != "storage" and module not in MAY_OPEN]
    assert [call for module in modules for call in files_opened(module)] == []


def test_opening_a_file_is_found_in_the_source() -> None:
    assert files_opened("heedful.exchange.standalone") and files_opened("heedful.storage.reading")


def test_no_module_imports_the_front_of_the_package() -> None:
    """It names what stands above all packages. The command line may use it, and `Translator.load` calls `heedful.load`."""
    importing = [module for module in SOME if "heedful" in imports(module) and package_of(module) != "cli"]
    assert importing == ["heedful.tasks.predictor"]


def test_modules_load_in_some_order() -> None:
    try:
        order = list(TopologicalSorter({module: imports_on_loading(module) - {module} for module in SOME}).static_order())
    except CycleError as error:
        pytest.fail(f"a cycle: {error.args[1]}")
    assert set(order) >= set(SOME)


def test_packages_load_in_some_order() -> None:
    packages: dict[str, set[str]] = {package_of(module): set() for module in SOME}
    for module in SOME:
        packages[package_of(module)] |= {package_of(other) for other in imports(module) if other in SOME} - {package_of(module)}
    try:
        list(TopologicalSorter(packages).static_order())
    except CycleError as error:
        pytest.fail(f"a cycle: {error.args[1]}")


def test_every_module_opens_with_its_idea() -> None:
    """An empty file has none."""
    assert [module for module in MODULES if tree_of(module).body and not ast.get_docstring(tree_of(module))] == []


def heavy(code: str) -> str:
    """Which of the slow libraries a fresh interpreter has loaded after this code."""
    telling = f"{code}\nimport sys\nprint([name for name in ('torch', 'numpy') if name in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", telling], capture_output=True, text=True, check=True, timeout=60)
    return done.stderr.strip()


def test_importing_the_package_loads_neither_torch_nor_numpy() -> None:
    assert heavy("import heedful") == "[]"


@pytest.mark.skipif("heedful.cli" not in MODULES, reason="there is no command line yet")
def test_asking_for_help_loads_neither_torch_nor_numpy() -> None:
    asking = """
import contextlib, io, runpy, sys
sys.argv = ["heed", "--help"]
said = io.StringIO()
with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
    runpy.run_module("heedful", run_name="__main__")
assert "translate" in said.getvalue(), said.getvalue()
"""
    assert heavy(asking) == "[]"


def test_public_names_are_sorted_complete_and_there() -> None:
    assert sorted(heedful.__all__) == list(heedful.__all__)
    for name in heedful.__all__:
        assert getattr(heedful, name) is not None
    with pytest.raises(AttributeError, match="it has: "):
        heedful.no_such_name  # noqa: B018
