"""Every option of every command is honored or refused, for runs of every task, and of analyses of one task of each kind: none
is ignored.

A command is run without the option and with it. The option is honored if the output changes or a file appears, and refused if
the command ends with an error of the user's. A new option needs a value below; a new task needs a run in `tiny_runs`."""

from __future__ import annotations

import shlex
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tiny_tasks import SERIES, example_of
from workshop import every_command, heed

from heedful.tasks import TASKS, find_task
from heedful.tasks.predictor import Predictor

TEXT = {"translation": "w1 w2 w3", "language": "the cat", "classification": "the cat sees"}
# One task of each kind of input: that every analysis works for every task is shown in contracts/test_tasks.py.
KINDS = (*TEXT, "captioning", "decisions")
ANALYZED = [task for task in KINDS if find_task(task).predictor.sample_texts is not Predictor.sample_texts]
HEADS = {"translation": "cross.0.0", "language": "within.0.0", "classification": "within.0.0"}
ANY_TEXT = {task: f"{{run}} '{text}'" for task, text in TEXT.items()}
# Arguments with which a command works, for the tasks that it works for; the words of a subcommand are separated by a space.
# {run}, {other}, {folder} and {out} are paths. Options that a task declares are tested in contracts/test_tasks.py.
COMMANDS: dict[str, dict[str, str]] = {
    "predict": {
        "translation": "{run} {folder}/sources.txt",
        "language": "{run} {folder}/prompts.txt --length 5",
        "classification": "{run} {folder}/prompts.txt",
    },
    "translate": {"translation": "{run} {folder}/sources.txt"},
    "classify": {"classification": "{run} {folder}/prompts.txt"},
    "fill": {"masked": "{run} {folder}/masks.txt"},
    "tag": {"tagging": "{run} {folder}/words.txt"},
    "embed": {"embedding": "{run} {folder}/prompts.txt"},
    "answer": {"span": "{run} {folder}/questions.txt"},
    "retrieve": {"retrieval": "{run} {folder}/prompts.txt"},
    "encode": {"skip_thought": "{run} {folder}/prompts.txt"},
    "search": {"retrieval": "{run} 'cat sees'"},
    "reply": {"chat": "{run} {folder}/prompts.txt"},
    "forecast": {"forecasting": "{run} {folder}/series.csv"},
    "classify-nodes": {"node_classification": "{run} {folder}/graphs.jsonl"},
    "decide": {"decisions": "{run} {folder}/histories.txt"},
    "classify-images": {"image_classification": "{run} {folder}/image.txt"},
    "caption": {"captioning": "{run} {folder}/image.txt"},
    "inspect image": {"captioning": f"{{run}} {example_of('captioning').inputs[0]}"},
    "classify-series": {"series_classification": "{run} {folder}/motion.csv"},
    "evaluate": {"translation": "{run} --bootstrap 0", "language": "{run}", "classification": "{run}"},
    "score": {"translation": "{run} --source {folder}/sources.txt --target {folder}/targets.txt"},
    "align": {"translation": "{run} --source {folder}/sources.txt --target {folder}/targets.txt"},
    "generate": {"language": "{run} --length 5"},
    "explain": ANY_TEXT,
    **{f"inspect {name}": ANY_TEXT for name in ("attention", "lens", "alternatives", "saliency", "report")},
    "inspect ablate": {task: f"{text} --head {HEADS[task]}" for task, text in ANY_TEXT.items()},
    "inspect patch": {
        "translation": "{run} 'w1 w2 w3' --from 'w1 w9 w3'",
        "classification": "{run} 'the cat sees' --from 'a dog runs'",
    },
    "inspect summary": dict.fromkeys(TASKS, "{run}"),
    **{f"inspect {name}": dict.fromkeys(ANALYZED, "{run} --sentences 4") for name in ("heads", "pruning")},
    "inspect positions": dict.fromkeys(ANALYZED, "{run}"),
    "inspect cost": dict.fromkeys(KINDS, "{run} --rows 2 --tokens 5"),
    "inspect alignment": {"translation": "{run} --source {folder}/sources.txt --target {folder}/targets.txt"},
    "inspect returns": {"decisions": "{run} --episodes 4"},
    "average": dict.fromkeys(TASKS, "{run} --steps 2"),
    "prune": {
        "translation": "{run} --out {out}/small --keep encoder=2",
        "language": "{run} --out {out}/small --keep within=1",
        "classification": "{run} --out {out}/small --keep within=1",
    },
}
# What an option is tried with; a value for one command is named command.option. None: a flag.
VALUES: dict[str, str | None] = {
    "against": "{other}",
    "approximate": None,  # refused without --rebuild
    "average.last": "1",  # not beside --steps
    "average.steps": "1",  # not there
    "baselines": None,
    "batch": None,
    "build": "{folder}/answers.tsv",
    "bootstrap": "50",
    "by": "norms",
    "choose_on": "{folder}/sources.txt,{folder}/targets.txt,{folder}/gold.txt",
    "column": "1.0",
    "commit_every": "4",  # refused without --output
    "conllu": "{folder}/trees.conllu",
    "cover": "both",
    "data": "{folder}/heads.tsv",
    "desired": "4",
    "episodes": "5",
    "greedy": None,
    "files": "{folder}/targets.txt",
    "gold": "{folder}/gold.txt",
    "head": "1",
    "inspect ablate.heads": "encoder.1.1",
    "align.heads": "0.1",
    "html": "{out}/page.html",
    "include": "lens",
    "instead": "w5",
    "keep": "cross=1",
    "inspect pruning.keep": "1",
    "inspect pruning.kind": "cross",
    "inspect alignment.target": "{folder}/sources.txt",
    "kind": "encoder",
    "layer": "1",
    "length": "3",
    "lines": None,
    "lowercase": None,
    "match": "questions",
    "metrics": "gleu",
    "moment": "consume",
    "out": "{out}/result",
    "output": "{out}/output.txt",
    "other": "w4 w5 w6",
    "picture": "{out}/picture.svg",
    "holdout": None,
    "pooling": "cls",
    "position": "1",
    "precision": "bf16",
    "prefixes": "{folder}/prefixes.txt",
    "nodes": "{folder}/nodes.csv",
    "edges": "{folder}/edges.csv",
    "prompt": "the dog",
    "reference": "{folder}/targets.txt",
    "rebuild": None,
    "replies": "1",
    "reply.search": "n_best=2",
    "reverse": "{other}",
    "row": "0.2",
    "shard": "1/2",  # refused without --output
    "rows": "4",
    "save": "{out}/maps.safetensors",
    "search": "max_length=2",
    "generate.search": "seed=5",
    "predict.search": "method=greedy",
    "sentences": "3",
    "source": "{folder}/targets.txt",
    "split": "valid",
    "step": None,
    "steps": "3",
    "stop": "dog",
    "top": "3",
    "symmetrize": "union",
    "split_punctuation": None,
    "target": "w7",
    "align.target": "{folder}/sources.txt",
    "score.target": "{folder}/sources.txt",
    "together": "{other}",
    "token": "0",
    "tokenize": "char",
    "tokens": "4",
    "tree": None,
}
# Options whose effect cannot be seen here: the runs have one checkpoint, every machine has a CPU, and in a model of two heads
# both rankings keep the same one, and a generated text is rarely another in bf16. A wrong value must be refused all the same.
NEUTRAL = {
    "checkpoint": "step-2",
    "device": "cpu",
    "prune.by": "ablation",
    "prune.sentences": "3",
    "generate.precision": "bf16",
    "predict.precision": "bf16",
}


# Options whose code is the same for all tasks. Figures and pages of every analysis and task: inspection/test_every_analysis.py
# and inspection/test_every_model_analysis.py.
SHARED = ("checkpoint", "device", "html", "picture")


class Case(NamedTuple):
    command: str
    option: str
    task: str

    def __str__(self) -> str:
        return f"{self.command} {self.option} {self.task}"


class Observed(NamedTuple):
    code: int
    output: str
    messages: str
    files: list[str]


PARAMETERS = {path: command.params for path, command in every_command()}
RESULTS: dict[tuple[str, ...], Observed] = {}  # of commands without the option


def options_of(command: str) -> dict[str, str]:
    """Parameter name: how the option is typed."""
    params = PARAMETERS[tuple(command.split())]
    return {one.name: one.opts[0] for one in params if one.param_type_name == "option" and one.name not in ("help", "json")}


def cases() -> Iterator[Case]:
    """Every option of every command with every task; an option of SHARED with every command, with the task that it has been
    tried with least, then with the tasks that are left."""
    tried: Counter[tuple[str, str]] = Counter()
    for command, tasks in COMMANDS.items():
        for option in options_of(command):
            if option not in SHARED:
                yield from (Case(command, option, task) for task in tasks)
                continue
            task = min(tasks, key=lambda task: tried[option, task])
            tried[option, task] += 1
            yield Case(command, option, task)
    for command, tasks in COMMANDS.items():
        for option in [option for option in SHARED if option in options_of(command)]:
            for task in [task for task in tasks if not tried[option, task]]:
                tried[option, task] += 1
                yield Case(command, option, task)


def split(arguments: str, paths: dict[str, Path]) -> list[str]:
    return shlex.split(arguments.format(**paths))


@pytest.fixture(scope="module")
def folder(tiny_runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of the runs, which commands may change, and files for the options."""
    made = tmp_path_factory.mktemp("options")
    for name in (*TASKS, "other"):
        shutil.copytree(tiny_runs["translation"].parent / name, made / name, symlinks=True)
    (made / "sources.txt").write_text("w1 w2\nw3 w4 w5\n")
    (made / "targets.txt").write_text("w2 w1\nw5 w4 w3\n")
    (made / "prompts.txt").write_text("the cat sees\n")
    (made / "masks.txt").write_text("the [MASK] sees\n")
    (made / "words.txt").write_text("the cat sees.\n")
    (made / "questions.txt").write_text("where is the cat?\tthe cat is in the box\n")
    (made / "answers.tsv").write_text("a cat\tyes\na dog\tno\n")
    (made / "series.csv").write_text(SERIES)
    for name, content in example_of("node_classification").files.items():
        (made / name).write_text(content)
    (made / "motion.csv").write_text("x,y\n0,1\n1,2\n")
    (made / "graphs.jsonl").write_text("".join(f"{line}\n" for line in example_of("node_classification").inputs))
    (made / "histories.txt").write_text(example_of("decisions").inputs[0] + "\n")
    (made / "image.txt").write_text(example_of("image_classification").inputs[0] + "\n")
    (made / "prefixes.txt").write_text("w2\nw6\n")
    (made / "gold.txt").write_text("0-1 1-0\n0-2 1-1 2-0\n")
    (made / "heads.tsv").write_text("w1 w2\tw2 w1\t0-1 1-0\n")
    (made / "trees.conllu").write_text("1\tw1\t_\t_\t_\t_\t2\tnsubj\t_\t_\n2\tw2\t_\t_\t_\t_\t0\troot\t_\t_\n\n")
    return made


def observe(capsys: pytest.CaptureFixture[str], arguments: list[str], out: Path) -> Observed:
    """Exit code, output, messages, and the files that the command wrote."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    capsys.readouterr()
    code = heed(*arguments)
    told = capsys.readouterr()
    return Observed(code, told.out, told.err, sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()))


def test_the_commands_that_take_a_run_are_all_here() -> None:
    takes_run = {
        " ".join(path)
        for path, params in PARAMETERS.items()
        if any(param.name == "run" and param.param_type_name == "argument" for param in params)
    }
    assert takes_run - COMMANDS.keys() == {
        "backtranslate",
        "chat",
        "export",
        "inspect document",
        "inspect experts",
        "inspect graph",
    }  # tested in runs/test_bulk.py, test_chat.py, and in tests/exchange and tests/inspection with models of their own


def test_every_option_is_tried_with_every_command_and_every_task() -> None:
    """Of the commands that have it and of the tasks of these commands."""
    tried = list(cases())
    for command, tasks in COMMANDS.items():
        for option in options_of(command):
            assert any((case.command, case.option) == (command, option) for case in tried)
            assert {case.task for case in tried if case.option == option} >= tasks.keys()


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_an_option_is_honored_or_refused(case: Case, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    option, out = options_of(case.command)[case.option], folder / "out"
    paths = {"run": folder / case.task, "other": folder / "other", "folder": folder, "out": out}
    plain = [*case.command.split(), "--json", *split(COMMANDS[case.command][case.task], paths)]
    named = f"{case.command}.{case.option}"
    neutral = NEUTRAL.get(named, NEUTRAL.get(case.option))
    if neutral is not None:
        assert observe(capsys, [*plain, option, neutral], out).code == 0
        wrong = observe(capsys, [*plain, option, "wrong"], out)
        assert wrong.code == 2 and (option in wrong.messages or "wrong" in wrong.messages)
        return
    value = VALUES[named if named in VALUES else case.option]
    typed = [option] if value is None else [option, value.format(**paths)]
    replaced = plain
    if option in plain:  # it is part of the plain command: change its value
        at = plain.index(option)
        replaced = plain[:at] + plain[at + (1 if value is None else 2) :]
    seen = observe(capsys, [*replaced, *typed], out)
    if seen.code:
        assert seen.code in (2, 3, 4), seen.messages  # usage, a file of another task, or a checkpoint that is not there
        return
    if tuple(plain) not in RESULTS:
        RESULTS[tuple(plain)] = observe(capsys, plain, out)
    before = RESULTS[tuple(plain)]
    assert before.code == 0, before.messages
    assert (seen.output, seen.files) != (before.output, before.files), f"{option} was ignored"
