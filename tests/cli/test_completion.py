"""Shell completion, as bash and zsh call it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from workshop import heed, run_heed

import heedful
from heedful.cli import app
from heedful.cli.completion import COMPLETIONS
from heedful.runs.recipes import all_recipes

HEED = Path(sys.executable).with_name("heed")
SOURCE = str(Path(heedful.__file__).parents[1])

pytestmark = pytest.mark.skipif(not HEED.exists(), reason="the command heed is not installed beside this Python")


def environment(**variables: str) -> dict[str, str]:
    path = f"{HEED.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PYTHONPATH": SOURCE, "PATH": path, **variables}


def completions(line: str, folder: Path) -> list[str]:
    """What bash offers after this line, of which the last word is incomplete."""
    words = line.split(" ")
    asked = environment(_HEED_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1))
    done = run_heed(env=asked, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return str(done.stdout).split()


def bash(script: str, folder: Path, **variables: str) -> str:
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{script}\n:"],  # a command after the last one, so that bash stays the parent process
        env=environment(**variables), cwd=folder, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def parameters(command: Any = None) -> Iterator[tuple[str, Any]]:
    """All parameters with the names of their commands."""
    command = command or typer.main.get_command(app)
    yield from ((command.name, parameter) for parameter in command.params)
    for subcommand in getattr(command, "commands", {}).values():
        yield from parameters(subcommand)


def test_commands_and_subcommands_are_completed(tmp_path: Path) -> None:
    assert completions("heed tr", tmp_path) == ["train", "translate"]
    assert set(completions("heed ", tmp_path)) == set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert completions("heed data ch", tmp_path) == ["check"]


def test_options_are_completed(tmp_path: Path) -> None:
    assert completions("heed train demo --pl", tmp_path) == ["--plan"]
    assert {"--json", "--columns", "--strict"} <= set(completions("heed data check --", tmp_path))


def test_recipes_are_completed(tmp_path: Path) -> None:
    expected = [name for name in all_recipes() if name.startswith("multi30k-")]
    assert len(expected) > 3 and completions("heed train multi30k-", tmp_path) == sorted(expected)
    assert completions("heed config show multi30k-en-f", tmp_path) == ["multi30k-en-fr"]
    assert completions("heed data check multi30k-en-f", tmp_path) == ["multi30k-en-fr"]


def test_run_folders_are_completed_and_other_folders_are_not(tiny_runs: dict[str, Path], tmp_path: Path) -> None:
    for name in ("runs/mine", "runs/sweep-demo/seed=1", "elsewhere/other"):
        (tmp_path / name).mkdir(parents=True)
        shutil.copy(tiny_runs["translation"] / "run.json", tmp_path / name)
    (tmp_path / "runs" / "notes").mkdir()
    for command in ("translate", "evaluate", "predict", "average", "explain", "runs", "runs runs/mine", "score x --with"):
        assert completions(f"heed {command} ru", tmp_path) == ["runs/mine", "runs/sweep-demo/seed=1"], command
    assert completions("heed translate elsewhere/", tmp_path) == ["elsewhere/other"]
    assert completions("heed train ru", tmp_path) == ["runs/mine", "runs/sweep-demo/seed=1"], "to resume it"
    assert completions("heed translate notes", tmp_path) == [], "then the shell completes files"


def test_every_argument_that_is_a_run_folder_is_completed() -> None:
    names = {(parameter.name, f"{command}.{parameter.name}"): parameter for command, parameter in parameters()}
    folders = [
        either
        for either, parameter in names.items()
        if parameter.param_type_name == "argument" and "run folder" in (parameter.help or "").lower()
    ]
    assert len(folders) > 5 and [either for either in folders if not COMPLETIONS.keys() & either] == []
    assert COMPLETIONS.keys() <= {name for either in names for name in either}, "all of them exist"


def test_the_script_that_is_shown_completes_in_bash(tmp_path: Path) -> None:
    script = 'eval "$(heed --show-completion)"; COMP_WORDS=(heed tr); COMP_CWORD=1; _heed_completion heed; echo ${COMPREPLY[@]}'
    assert bash(script, tmp_path).split() == ["train", "translate"]


def test_the_installed_script_completes_in_bash(tmp_path: Path) -> None:
    assert "bash completion installed in" in bash("heed --install-completion", tmp_path, HOME=str(tmp_path))
    script = (
        "source ~/.bashrc; COMP_WORDS=(heed train multi30k-en-f); COMP_CWORD=2; _heed_completion heed; echo ${COMPREPLY[@]}"
    )
    assert bash(script, tmp_path, HOME=str(tmp_path)).split() == ["multi30k-en-fr"]


def test_zsh_is_completed(tmp_path: Path) -> None:
    asked = environment(_HEED_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS="heed train multi30k-en-f")
    done = subprocess.run([HEED], env=asked, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == """_arguments '*: :(("multi30k-en-fr"))'"""


def test_completing_loads_neither_torch_nor_numpy(tmp_path: Path) -> None:
    code = "import sys; from heedful.cli import run; run([]); print([n for n in ('torch', 'numpy') if n in sys.modules])"
    for line in ("heed train m", "heed translate ru"):
        asked = environment(_HEED_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD="2")
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=asked, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.splitlines()[-1] == "[]"


def test_an_unknown_shell_is_an_error_of_usage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("typer._completion_shared._get_shell_name", lambda: "tcsh")
    assert heed("--install-completion") == 2
    assert "tcsh is not supported" in capsys.readouterr().out
