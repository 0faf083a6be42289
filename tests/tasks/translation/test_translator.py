"""A loaded translator: documented calls, use by several threads, and the error in a forked child process."""

from __future__ import annotations

import copy
import doctest
import random
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import forward_of
from workshop import WORDS, heed, write_recipe

from heedful import inspection
from heedful.errors import ConfigError
from heedful.inspection.explaining.recording import record_attention
from heedful.inspection.measures.importance import gate_gradients
from heedful.inspection.measures.interventions import HeadName, without_heads
from heedful.nn.hooks import ablate, any_hooks, hook, hook_points, record
from heedful.tasks.system import collate_one
from heedful.tasks.translation.predictor import Translator, examples_from

LINES = [" ".join(WORDS[at : at + 2 + at % 5]) for at in range(8)]
CROSS = "decoder.*.cross_attention.weights"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("build")
    quick = (
        "training.steps=40",
        "training.validate_every=40",
        "training.save_every=40",
        "training.schedule.learning_rate=0.01",
    )
    assert heed("train", write_recipe(folder), *quick, "--run", folder / "run") == 0
    return folder / "run"


@pytest.fixture(scope="module")
def translator(run: Path) -> Translator:
    return Translator.load(run)


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Threads switch every ten microseconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def translated(translator: Translator, line: str) -> object:
    return translator.translate([line], beam=2)


def scored(translator: Translator, line: str) -> object:
    return translator.score([line], [line])


def recorded(translator: Translator, line: str) -> object:
    with record(translator.model, CROSS) as weights:
        scores = translator.score([line], [line])
    return scores, {name: value.tolist() for name, value in weights.items()}


def ablated(translator: Translator, line: str) -> object:
    with ablate(translator.model, "*.cross_attention.context"):
        return translator.translate([line]), translator.score([line], [line])


def inspected(translator: Translator, line: str) -> object:
    return inspection.attention(translator, line).html()


def salient(translator: Translator, line: str) -> object:
    return [part.tolist() for part in inspection.saliency(translator, line).saliency]


def explained(translator: Translator, line: str) -> object:
    ids = translator.system.source_tokenizer.encode(line)
    attention = record_attention(
        translator.model, forward_of(*collate_one(translator.system, ids, ids)), "decoder.1.cross_attention.weights"
    )
    parts = {name: [inputs[0].tolist() for inputs, _ in calls] for name, calls in attention.part_calls.items()}
    return attention.weights.tolist(), len(attention.core_calls), parts


def weighed(translator: Translator, line: str) -> object:
    source, target = collate_one(translator.system, *[translator.system.source_tokenizer.encode(line)] * 2)

    def loss() -> torch.Tensor:
        step = translator.model.step(target, translator.model.start(source, None, room=0))
        return -translator.model.project(step.hidden).log_softmax(-1)[..., 5].sum(-1)

    return {name: slopes.tolist() for name, slopes in gate_gradients(translator.model, loss).items()}


def silenced(translator: Translator, line: str) -> object:
    with without_heads(translator, [HeadName("cross", 1, 0)]):
        return [translation.candidates for translation in translator.translations([line])]


USES: list[Callable[[Translator, str], object]] = [
    translated, scored, recorded, ablated, inspected, salient, explained, weighed, silenced,
]  # fmt: skip


def test_threads_that_share_a_translator_get_the_same_results_as_alone(translator: Translator, frequent_switches: None) -> None:
    work = [(use, line) for use in USES for line in LINES[:2]]
    alone = [use(translator, line) for use, line in work]
    order = list(range(len(work))) * 3
    random.Random(1).shuffle(order)
    before = copy.deepcopy(translator.model.state_dict())
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda at: work[at][0](translator, work[at][1]), order))
    wrong = {work[at][0].__name__ for at, result in zip(order, together, strict=True) if result != alone[at]}
    assert not wrong
    model = translator.model
    assert not any_hooks() and not any(point.hooks for point in hook_points(model).values())
    assert not any(module._forward_hooks or module._forward_pre_hooks or module.training for module in model.modules())
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def test_hooks_of_the_caller_affect_an_inspection(translator: Translator) -> None:
    """Also where it uses a copy of the modules."""
    for use in (salient, explained, weighed):
        with hook(translator.model, "encoder.0.out", lambda name, x: 2 * x):
            changed = use(translator, LINES[0])
        assert changed != use(translator, LINES[0])


def test_the_documented_calls_run(translator: Translator) -> None:
    (example,) = doctest.DocTestFinder().find(Translator.evaluate, globs={"translator": translator})
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


@pytest.mark.parametrize("given", ["a text", ["w1", "w2"], (["w1"],), (["w1"], ["w2"], ["w3"])])
def test_evaluate_requires_two_lists(given: Any) -> None:
    with pytest.raises(ConfigError, match="expected \\(sources, references\\), two lists of texts"):
        examples_from(given)


FORKED = """
import os, signal, sys, torch, heedful
from heedful.errors import HeedfulError

torch.set_num_threads(2)
translator = heedful.load(sys.argv[1], device="cpu")
big = torch.randn(600, 600)
(big @ big).exp().sum()  # now torch has threads
expected = translator.translate(["w1 w2"])
reading, writing = os.pipe()
if os.fork() == 0:
    signal.alarm(30)  # ends a child that hangs
    try:
        answer = str(translator.translate(["w1 w2"]))
    except HeedfulError as error:
        answer = str(error)
    torch.set_num_threads(1)
    same = translator.translate(["w1 w2"]) == expected
    os.write(writing, f"{same} {answer}".encode())
    os._exit(0)
os.close(writing)
print(os.read(reading, 4096).decode())
os.wait()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_forked_child_with_two_threads_gets_an_error_and_with_one_works(run: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORKED), run], capture_output=True, text=True, timeout=60, check=True
    )
    same, _, answer = result.stdout.partition(" ")
    assert same == "True"
    assert answer.startswith("a model loaded before os.fork() was used in the child process with 2 torch threads")
    assert "hint: call torch.set_num_threads(1) in the child" in answer
