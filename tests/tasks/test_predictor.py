"""A loaded model: precision, and error messages that refer to arguments of Python, not to the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import heedful
from heedful.errors import ConfigError, HeedfulError
from heedful.runs.build import make_model
from heedful.runs.config import read_run
from heedful.runs.recipes import find_recipe
from heedful.tasks import TASKS
from heedful.tasks.predictor import Predictor
from heedful.tasks.system import System
from heedful.text.tokenizer import TokenizerConfig
from heedful.text.train import train_tokenizer


@pytest.fixture
def predictor() -> Predictor:
    config = read_run(find_recipe("demo"), ["model.dim=16", "model.heads=2"]).config
    tokenizer = train_tokenizer(TokenizerConfig(kind="characters"), ["ab"])
    models: list[Any] = [make_model(config, len(tokenizer), len(tokenizer))]
    system = System(models, tokenizer, tokenizer, torch.device("cpu"), max_length=8)
    return Predictor(config, system, Path("runs/demo/checkpoints/step-1"))


def test_an_unknown_keyword_argument_is_reported_as_an_argument(predictor: Predictor) -> None:
    with pytest.raises(ConfigError, match=r"^argument: beamm: unknown key\n\nhint: did you mean 'beam'\?"):
        predictor.search_config_from({"beamm": 3})
    with pytest.raises(ConfigError, match=r"^2 problems in the arguments:\n  argument: beam: given 0"):
        predictor.search_config_from({"beam": 0, "x": 1})


@pytest.mark.parametrize("value", [None, object(), 10**5000], ids=["none", "object", "huge"])
def test_a_value_of_a_wrong_type_is_an_error(predictor: Predictor, value: object) -> None:
    with pytest.raises(ConfigError, match=r"^argument: beam: given a value of type"):
        predictor.search_config_from({"beam": value})


def test_keyword_arguments_set_options(predictor: Predictor) -> None:
    config = predictor.search_config_from({"beam": 7, "length_penalty": 0.0})
    assert (config.beam, config.length_penalty) == (7, 0.0)


def test_an_unknown_override_is_reported_as_an_override() -> None:
    with pytest.raises(ConfigError, match=r"^override: model.dimm: unknown key"):
        heedful.train("demo", ["model.dimm=3"])


CALLS: dict[str, Callable[[Any], object]] = {
    "translation": lambda translator: [scored.log_probability for scored in translator.score(["w1 w2"], ["w2 w1"])],
    "language": lambda generator: generator.score("the cat", [" sees", " runs"]),
    "classification": lambda classifier: classifier.predict_proba(["the cat sees"]),
}


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("task", CALLS)
def test_a_run_of_any_task_is_loaded_in_a_precision(task: str, precision: str, tiny_runs: dict[str, Path]) -> None:
    plain, loaded = heedful.load(tiny_runs[task]), heedful.load(tiny_runs[task], precision=precision)
    assert type(loaded) is type(plain)
    assert CALLS[task](loaded) == CALLS[task](plain.at(precision))
    if precision == "bf16":
        assert CALLS[task](loaded) != CALLS[task](plain)
        assert all(weight.dtype == torch.bfloat16 for weight in loaded.model.parameters())


@pytest.mark.parametrize("task", TASKS)
def test_an_object_that_is_no_input_is_one_sentence(task: str, tiny_runs: dict[str, Path]) -> None:
    predictor: Any = heedful.load(tiny_runs[task])
    for given in (None, [None]):
        with pytest.raises(HeedfulError, match="expected"):
            predictor.predict(given)


def test_an_unknown_precision_is_an_error(tiny_runs: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match=r"unknown precision 'int9'.*\n\nhint: did you mean 'int8'\?"):
        heedful.load(tiny_runs["language"], precision="int9")
