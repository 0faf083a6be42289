"""Predictions of every task, as `heed predict --json` prints them.

    POST /api/predict        {"model": "sst2", "inputs": ["a dull film"], "options": {}}

Options are those of the task and of search, except the ones that name a file: nothing of a request reaches the file system.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import Field

from heedful.config.base import plain
from heedful.data.gridworld import GridWorld
from heedful.inspection.analyses.summary import attentions_of, list_analyses
from heedful.inspection.result import replace_non_finite
from heedful.search import SearchConfig
from heedful.serving.body import Body
from heedful.serving.calls import Call, Endpoint
from heedful.serving.failures import ApiError
from heedful.serving.generation import generates, reads_turns
from heedful.serving.served import Served
from heedful.tasks import find_command
from heedful.tasks.translation.predictor import Translator

Options = dict[str, Any]
UNLISTED = {"explain": "attention", "pruning_curve": "heads"}  # analyses that models have with those that are listed


class PredictFields(Body):
    model: str | None = Field(default=None, description="Id of a model; may be omitted where there is only one.")
    inputs: str | list[str] = Field(description="Texts, as lines of `heed predict`.")
    options: Options = Field(default_factory=dict, description="Options of the task and of search, by name.")


def find_model(call: Call, name: str | None) -> Served:
    """The model with this id; without one, the only model."""
    models = call.service.models.by_id
    if name is None and len(models) == 1:
        return next(iter(models.values()))
    if name is None:
        raise ApiError(400, f"model: missing; expected one of: {', '.join(models)}", param="model")
    if name not in models:
        message = f"The model {name!r:.80} does not exist; expected one of: {', '.join(models)}"
        raise ApiError(404, message, param="model", code="model_not_found")
    return models[name]


async def predict(call: Call, given: PredictFields) -> Options:
    served = find_model(call, given.model)
    texts = [given.inputs] if isinstance(given.inputs, str) else given.inputs
    call.check_texts(texts, "inputs", served)
    predictions = await call.predict(served, texts, check_options(call, served, given.options))
    found = [replace_non_finite(prediction.to_dict()) for prediction in predictions]
    return {"model": served.id, "task": served.task, "predictions": found}


def check_options(call: Call, served: Served, given: Options) -> Options:
    """The options of a prediction; an error for unknown ones and for those that are too large."""
    known, limits = known_options(served.task), call.service.limits
    most = dict.fromkeys(("length", "max_length", "max_extra"), limits.max_tokens)
    most |= dict.fromkeys(("beam", "n_best", "top"), limits.max_candidates)
    for name, value in given.items():
        if name not in known:
            expected = f"; expected one of: {', '.join(sorted(known))}" if known else "; this task has none"
            raise ApiError(400, f"options: unknown option {name!r:.40}{expected}", param="options")
        if not isinstance(value, str | int | float | bool):
            raise ApiError(400, f"options.{name}: expected a number or a text", param="options")
        if isinstance(value, int | float) and value > most.get(name, value):
            raise ApiError(400, f"options.{name}: given {value}, expected at most {most[name]}", param="options")
    return given


def known_options(task: str) -> set[str]:
    """The options of a task and of search that do not name a file."""
    command = find_command(task)
    hints = get_type_hints(command.predict)
    names = {field.name for field in fields(command.predict) if is_plain(hints[field.name]) and field.name != "prompt"}
    return names | (SearchConfig.model_fields.keys() - {"dictionary"} if "predict" in command.search else set())


def is_plain(kind: Any) -> bool:
    """Whether a type consists of numbers, texts, None, fixed values and lists of these; a path is none of them."""
    origin = get_origin(kind)
    if origin in (Union, UnionType, Sequence, list, tuple):
        return all(is_plain(part) for part in get_args(kind) if part is not ...)
    return origin is Literal or kind in (str, int, float, bool, NoneType)


async def models(call: Call, given: None) -> Options:
    return {"models": [served.describe() | abilities(served) for served in call.service.models]}


def abilities(served: Served) -> Options:
    """What a client can do with a model: an example of its input, and its heads and analyses."""
    heads: dict[str, dict[int, int]] = {}
    for one in attentions_of(served.predictor):
        heads.setdefault(one.kind.name, {})[one.layer] = one.heads
    world: GridWorld | None = getattr(served.predictor.run.data, "grid_world", None)
    listed = {arguments.split()[0] for arguments in list_analyses(served.predictor)} - {"report"}
    unlisted = {name for name, needed in UNLISTED.items() if needed in listed}
    return {
        "example": example_text(served),
        "generates": generates(served.predictor),
        "reads_turns": reads_turns(served.predictor),
        "translates": isinstance(served.predictor, Translator),
        "inputs": list(served.predictor.input_names),
        "reads_text": served.predictor.reads_text,
        "grid_world": None if world is None else world.to_dict(),
        "options": sorted(known_options(served.task)),
        "search": search_defaults(served),
        "attention": [
            {"kind": kind, "layers": [{"layer": layer, "heads": count} for layer, count in layers.items()]}
            for kind, layers in heads.items()
        ],
        "analyses": sorted(listed | unlisted),
    }


@cache
def example_text(served: Served) -> str:
    """A text to try: of generated data, whose words the model knows, the first test example; else that of the task; none for a
    model of numbers."""
    if served.predictor.run.model.numeric_inputs or not served.predictor.reads_text:
        return ""
    if not getattr(served.predictor.run.data, "builtin", None) or reads_turns(served.predictor):
        return served.canary
    sample = next(served.predictor.sample_texts("test"))
    return sample.source or sample.target or served.canary


def search_defaults(served: Served) -> Options | None:
    """The search options of the run; None: its predictions are not searched for."""
    if "predict" not in find_command(served.task).search:
        return None
    return {name: value for name, value in plain(served.predictor.run.search).items() if name != "dictionary"}


ENDPOINTS = [
    Endpoint("GET", "/api/models", models, "List the models, with their tasks and languages"),
    Endpoint("POST", "/api/predict", predict, "Predict with a model of any task", fields=PredictFields),
]
