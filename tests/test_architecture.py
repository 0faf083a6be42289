"""Who may import whom: a package knows the packages below it and none above; who may name a family or a hook point. Read from
the source, lazy imports included."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import heedful
from heedful.tasks import TASKS

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


@cache
def nodes(tree: ast.AST) -> list[ast.AST]:
    """The tree and everything below it."""
    return list(ast.walk(tree))


def named(tree: ast.AST) -> Iterator[str]:
    """Every module that is imported anywhere below: `from a import b` names a.b where that is a module, else a."""
    for node in nodes(tree):
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
    "heedful.data.image_files": "Pillow opens bytes in memory",
}


def files_opened(module: str) -> list[str]:
    """The calls that open a file, except those of functions that were imported from `storage` or defined in the module."""
    tree = tree_of(module)
    own = {node.name for node in nodes(tree) if isinstance(node, ast.FunctionDef)}
    stored = {
        alias.asname or alias.name
        for node in nodes(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("heedful.")
        for alias in node.names
    }
    found = []
    for node in nodes(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in OPENS - own - stored:
            found.append(f"{module}:{node.lineno} {node.func.id}")
        elif isinstance(node.func, ast.Attribute) and node.func.attr in OPENS | {"replace", "rename"}:
            name = ast.unparse(node.func)
            if ast.unparse(node) == "plot.savefig(content, format=format, dpi=DOTS)":
                continue  # into memory
            if name in ("os.replace", "os.rename") or (node.func.attr in OPENS and not name.startswith("self.")):
                found.append(f"{module}:{node.lineno} {name}")
    return found


def test_only_storage_opens_files() -> None:
    modules = [module for module in SOME if package_of(module) != "storage" and module not in MAY_OPEN]
    assert [call for module in modules for call in files_opened(module)] == []


def test_opening_a_file_is_found_in_the_source() -> None:
    assert files_opened("heedful.exchange.standalone") and files_opened("heedful.storage.reading")


def literal(module: str, name: str) -> ast.expr:
    """The value assigned to a name at the top of a module."""
    for node in tree_of(module).body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            assert isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
            return node.value
    raise LookupError(f"{module} assigns no {name}")


@cache
def families() -> dict[str, str]:
    """The keys of MODELS with the names of their classes, read from the source: importing it would load torch."""
    models = literal("heedful.models", "MODELS")
    assert isinstance(models, ast.Dict)
    return {ast.literal_eval(key): ast.unparse(value) for key, value in zip(models.keys, models.values, strict=True) if key}


def constants(tree: ast.AST) -> Iterator[ast.Constant]:
    """Every string that stands alone: neither a docstring nor a part of an f-string."""
    parts = {id(part) for node in nodes(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node


def families_named(tree: ast.AST) -> list[str]:
    """Strings that are the name of a family, in the order of the source, and imported modules of one family."""
    named_classes = set(families().values())
    found = [(node.lineno, f"{node.lineno} {node.value!r}") for node in constants(tree) if node.value in families()]
    for node in nodes(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("heedful.models"):
            names = {alias.name.removesuffix("Config") for alias in node.names}
            found += [(node.lineno, f"{node.lineno} imports {name}") for name in sorted(names & named_classes)]
    return [text for _, text in sorted(found)]


MAY_NAME_FAMILIES = {
    "heedful.evaluation.metrics": "case:mixed in the signature of a metric, as sacreBLEU writes it",
    "heedful.runs.config": "the default of [model]; to be a name in heedful.models, such as DEFAULT_MODEL",
}


def test_only_models_knows_the_names_of_families() -> None:
    """Others read what a model or its config declares. A name inside a sentence, such as a hint, is allowed."""
    modules = [module for module in SOME if package_of(module) != "models" and module not in MAY_NAME_FAMILIES]
    assert [f"{module}:{named}" for module in modules for named in families_named(tree_of(module))] == []


def test_a_name_of_a_family_is_found_in_the_source() -> None:
    assert {"transformer", "gpt"} <= families().keys() and len(families()) > 8
    code = """
def f(config, model):
    "gpt"
    hint = "use a transformer or gpt"
    if config.family == "gpt" or isinstance(model, GPT):
        raise ValueError(f"{config.family} is not {'luong' if model else 'gpt2'}, transformer")
    from heedful.models.transformer import Transformer, TransformerConfig
"""
    assert families_named(ast.parse(code)) == ["3 'gpt'", "5 'gpt'", "6 'luong'", "7 imports Transformer"]
    outdated = [module for module in MAY_NAME_FAMILIES if module not in MODULES or not families_named(tree_of(module))]
    assert outdated == []


@cache
def hook_point_names() -> set[str]:
    """The attributes that hold a hook point, in any module."""
    assigned = [node for module in SOME for node in nodes(tree_of(module)) if isinstance(node, ast.Assign)]
    return {
        target.attr
        for node in assigned
        if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "HookPoint"
        for target in node.targets
        if isinstance(target, ast.Attribute)
    }


STRING_METHODS = {"startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition", "split", "rsplit"}
HOOKING = {"record", "hook", "ablate", "patch", "matching_points"}


def names_parsed(tree: ast.AST) -> list[str]:
    """Code that parses the names of hook points or selects them by a pattern: imports of fnmatch, regular expressions and
    string methods with such a name, and literal patterns given to the functions of nn/hooks.py."""
    names = "|".join(sorted(hook_point_names()))
    in_pattern, in_path = re.compile(rf"(?<![a-z_])({names})(?![a-z_])"), re.compile(rf"(.*\.)?({names})(\..*)?")
    found = []
    for node in nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and "fnmatch" in named(node):
            found.append(f"{node.lineno} imports fnmatch")
        if not isinstance(node, ast.Call):
            continue
        function = ast.unparse(node.func)
        method = function.rpartition(".")[2]
        parses = function.startswith("re.") or method in STRING_METHODS
        strings = [one.value for argument in node.args for one in constants(argument)] if parses else []
        if (
            (function.startswith("re.") and any(in_pattern.search(str(text)) for text in strings))
            or (method in STRING_METHODS and any("." in str(text) and in_path.fullmatch(str(text)) for text in strings))
            or (method in HOOKING and any(isinstance(argument, ast.Constant | ast.JoinedStr) for argument in node.args))
        ):
            found.append(f"{node.lineno} {function}")
    return found


MAY_PARSE_NAMES: dict[str, str] = {
    "heedful.nn.hooks": "the only place that matches names with patterns",
    "heedful.nn.model": "makes the names that a model declares",
    "heedful.training.head_gates": "matches names of parameters with patterns given by users",
    # To be removed: these cut the last part off a name to show it; a declared attention and layer output should have the path.
    "heedful.inspection.analyses.attention": "names tensors of a safetensors file after the attention",
    "heedful.inspection.analyses.lens": "labels of the rows of a table",
}


def test_only_hooks_matches_the_names_of_hook_points_with_patterns() -> None:
    """Others take names from `attentions()` and `layer_outputs()` of a model."""
    modules = [module for module in SOME if module not in MAY_PARSE_NAMES]
    assert [f"{module}:{parsed}" for module in modules for parsed in names_parsed(tree_of(module))] == []


def test_parsing_the_name_of_a_hook_point_is_found_in_the_source() -> None:
    assert {"weights", "context", "out", "read", "gates"} <= hook_point_names()
    code = r"""
from fnmatch import fnmatchcase
OUTPUTS = re.compile(r"(decoder|layers)(\.\d+)?\.out")
owner = name.removesuffix(".weights")
is_self = name.endswith("self_attention.context") or path.split(".")
with record(model, f"{name}.context"), record(model, *names), hook(model, "*", function): ...
word = re.sub(r"readers|outer", "", text).split(". ")
"""
    assert sorted(names_parsed(ast.parse(code))) == [
        "2 imports fnmatch",
        "3 re.compile",
        "4 name.removesuffix",
        "5 name.endswith",
        "6 hook",
        "6 record",
    ]
    outdated = [module for module in MAY_PARSE_NAMES if module not in MODULES or not names_parsed(tree_of(module))]
    assert outdated == []


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


# Modules outside the folders of tasks that may compare names of tasks.
MAY_COMPARE_TASKS: set[str] = set()


def listed_texts(node: ast.AST) -> Iterator[str]:
    """A text, or the texts of a tuple, list or set."""
    for part in node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]:
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def compared(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every text constant that something is compared with: by ==, !=, in, `match`, or as a key of a dictionary of names."""
    for node in nodes(tree):
        if isinstance(node, ast.Compare):
            yield from ((node.lineno, text) for part in (node.left, *node.comparators) for text in listed_texts(part))
        elif isinstance(node, ast.MatchValue):
            yield from ((node.lineno, text) for text in listed_texts(node.value))
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Dict):  # {"translation": …}[name]
            yield from ((node.lineno, text) for key in node.value.keys if key is not None for text in listed_texts(key))


def task_comparisons(module: str) -> list[str]:
    """Comparisons with names of tasks; a task may compare its own."""
    found = [(line, text) for line, text in compared(tree_of(module)) if text in TASKS]
    return [f"{module}:{line} {text}" for line, text in found if not f"{module}.".startswith(f"{TASKS[text]}.")]


def test_no_module_compares_the_name_of_a_task_outside_its_folder() -> None:
    """What differs between tasks is a method or a declaration of the task."""
    assert [one for module in SOME if module not in MAY_COMPARE_TASKS for one in task_comparisons(module)] == []


def test_comparisons_of_names_are_found_in_the_source() -> None:
    code = """
if task == "translation" or task.name not in ("language", other): ...
match task:
    case "classification": ...
value = {"translation": 1, "language": 2}[task]
call(task="translation")
"""
    found = [text for _, text in compared(ast.parse(code))]
    assert sorted(found) == ["classification", "language", "language", "translation", "translation"]
    assert [module for module in MAY_COMPARE_TASKS if module in MODULES and not task_comparisons(module)] == []


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
