"""A new task is a folder and a line in `TASKS`, a new family is a file, its import and a line in `MODELS`: both then pass all
contracts and, without a recipe or a line in a test, every other test over families.

The toys of tests/toys/ are added to a copy of the package, in which the contracts are run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import heedful

TESTS = Path(__file__).parent
CONTRACTS = ["tasks", "structure", "stepping", "masking", "searching", "recording", "training_signal", "flat", "capturing"]
OVER_FAMILIES = re.compile(
    r"^from (tiny import .*\b(FAMILIES|VARIANTS|PLAIN)\b|heedful\.models import .*\bMODELS\b)", re.MULTILINE
)


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that imports a copy of the package with the toys in it."""
    root = tmp_path_factory.mktemp("extended")
    package = Path(shutil.copytree(Path(heedful.__file__).parent, root / "heedful"))
    shutil.copytree(TESTS / "toys" / "reverse_label", package / "tasks" / "reverse_label", dirs_exist_ok=True)
    shutil.copy(TESTS / "toys" / "bag.py", package / "models")
    shutil.copytree(TESTS.parent / "recipes", package / "recipes")
    insert(package / "tasks" / "__init__.py", "TASKS = {", '    "reverse_label": "heedful.tasks.reverse_label",')
    insert(package / "models" / "__init__.py", "MODELS: dict", '    "bag": Bag,')
    insert(package / "models" / "__init__.py", "from heedful.models.bahdanau", "from heedful.models.bag import Bag")
    return {**os.environ, "PYTHONPATH": str(root)}


def insert(file: Path, after: str, line: str) -> None:
    """Insert a line after the only one that begins with `after`."""
    lines = file.read_text().splitlines()
    (at,) = (i for i, one in enumerate(lines) if one.startswith(after))
    file.write_text("\n".join([*lines[: at + 1], line, *lines[at + 1 :]]) + "\n")


def run(command: list[str], env: dict[str, str]) -> str:
    """The output of a Python command that succeeds."""
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=env, cwd=TESTS.parent, timeout=300)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    return done.stdout


def files_over_families() -> list[str]:
    """The contracts, and every other file with tests of all families; of the benchmarks, the one of their recipes."""
    files = [TESTS / "contracts" / f"test_{name}.py" for name in CONTRACTS]
    others = {
        path
        for path in TESTS.rglob("test_*.py")
        if OVER_FAMILIES.search(text := path.read_text()) and "mark.benchmark" not in text
    }
    return [str(path) for path in (*files, *sorted(others - set(files)), TESTS / "test_families.py")]


def test_a_toy_task_and_a_toy_family_pass_all_contracts(extended: dict[str, str]) -> None:
    names = "bag or reverse_label or test_the_recipes_of_families_have_the_data_and_the_search_of_the_demo"
    output = run(["-m", "pytest", "-p", "no:cacheprovider", "-rA", "-k", names, *files_over_families()], extended)
    passed = re.findall(r"^PASSED \S*test_(\w+)\.py::\S*(bag|reverse_label)", output, re.MULTILINE)
    assert {name for name, _ in passed} >= {*CONTRACTS, "cost", "saliency", "bounds", "memory_check", "sequence_level"}
    assert re.search(r"^PASSED tests/test_families\.py", output, re.MULTILINE), "a family needs no recipe"
    assert {toy for _, toy in passed} == {"bag", "reverse_label"} and len(passed) > 50
    skipped = re.findall(r"^SKIPPED .*", output, re.MULTILINE)
    assert all("the model has no attention" in one for one in skipped), skipped


def test_a_run_of_a_toy_family_is_trained_and_used(extended: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a b\tb a\nc\tc\n" * 20)
    recipe = f'[data]\ntrain = {{ tsv = "{tmp_path}/pairs.tsv" }}\nvalid = {{ tsv = "{tmp_path}/pairs.tsv" }}\n'
    recipe += '[tokenizer]\nkind = "words"\nmin_frequency = 1\n[model]\nfamily = "bag"\ndim = 16\n[training]\nsteps = 2\n'
    (tmp_path / "recipe.toml").write_text(recipe)
    commands = [
        f"config show {tmp_path}/recipe.toml",
        f"train {tmp_path}/recipe.toml --run {tmp_path}/run",
        f"predict {tmp_path}/run {tmp_path}/pairs.tsv",
        f"evaluate {tmp_path}/run --split valid --bootstrap 0",
    ]
    program = "import sys; from heedful.cli import run; sys.exit(max(run(line.split()) for line in sys.argv[1:]))"
    output = run(["-c", program, *commands], extended)
    assert 'family = "bag"' in output and len(output.splitlines()) > 40
