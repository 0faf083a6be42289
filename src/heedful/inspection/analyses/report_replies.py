"""What the studio's views ask beyond the results of a report: the prediction, alternatives at every position, the search tree,
and the computation inside heads. A report holds these replies, so that its views work without a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from heedful import inspection
from heedful.config.base import plain
from heedful.errors import ConfigError
from heedful.inspection.analyses.summary import attentions_of
from heedful.inspection.page import request_key
from heedful.tasks import find_command
from heedful.tasks.predictor import Predictor
from heedful.tasks.translation.predictor import Translator

MAX_POSITIONS = 64  # whose alternatives are recorded
MAX_CHARACTERS = 400_000  # of the heads whose computation is recorded; the others are not part of the file


def replies_of(predictor: Predictor, text: str) -> dict[str, Any]:
    """Replies by request; heads that cannot be explained stage by stage have none."""
    return dict([*of_output(predictor, text), *of_heads(predictor, text)])


def describe_model(predictor: Predictor) -> dict[str, Any]:
    """What the views have to know of a model, as /api/models says it."""
    task = predictor.run.task.name
    command = find_command(task)
    search = {name: value for name, value in plain(predictor.run.search).items() if name != "dictionary"}
    return {
        "task": task,
        "command": command.name,
        "inputs": list(predictor.input_names),
        "search": search if "predict" in command.search else None,
    }


def of_output(predictor: Predictor, text: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(predictor, Translator):
        return
    (prediction,) = predictor.predictions([text])
    yield request_key("/api/predict", {"inputs": text, "options": {}}), {"predictions": [prediction.to_dict()]}
    first = inspection.alternatives(predictor, text)
    for position in range(min(len(first.example.outputs), MAX_POSITIONS)):
        options = {"position": position}
        yield inspect_key("alternatives", text, options), inspection.alternatives(predictor, text, position).to_dict()
    yield inspect_key("explain", text, {"about": "tree"}), inspection.explain(predictor, text, about="tree").to_dict()


def of_heads(predictor: Predictor, text: str) -> Iterator[tuple[str, Any]]:
    """The heads in the order in which the page offers them: those of the last kind first."""
    kinds = list(dict.fromkeys(one.kind.name for one in attentions_of(predictor)))
    layers = sorted(attentions_of(predictor), key=lambda one: (-kinds.index(one.kind.name), one.layer))
    written = 0
    for options in ({"kind": one.kind.name, "layer": one.layer, "head": at} for one in layers for at in range(one.heads)):
        try:
            reply = inspection.explain(predictor, text, **options).to_dict()  # type: ignore[arg-type]
        except ConfigError:
            continue
        written += len(str(reply))
        if written > MAX_CHARACTERS:
            return
        yield inspect_key("explain", text, options), reply


def inspect_key(analysis: str, text: str, options: dict[str, Any]) -> str:
    return request_key(f"/api/inspect/{analysis}", {"text": text, "options": options})
