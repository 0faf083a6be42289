"""The analyses of `heedful.inspection`, as `heed inspect --json` prints them.

    POST /api/inspect/attention      {"model": "demo", "text": "I am trendy", "options": {"layer": 1, "search": {"beam": 1}}}

Options are the arguments of the Python function, except those that name a file or are objects. An analysis runs in a thread of
its own, one at a time for each model, and not in the one that predicts.
"""

from __future__ import annotations

import asyncio
import inspect as signatures
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from threading import Thread
from typing import Any, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

from heedful import inspection
from heedful.config.bounds import MAX_SMALL
from heedful.inspection.result import map_texts, replace_non_finite
from heedful.serving.body import Body
from heedful.serving.calls import Call, Endpoint
from heedful.serving.failures import ApiError
from heedful.serving.predict_api import Options, check_options, find_model, is_plain
from heedful.serving.served import Served
from heedful.serving.worker import DeadlineExceeded, QueueFull

ANALYSES = sorted(name for name in inspection.__all__ if name.islower())
RETRY = 10  # seconds


class InspectFields(Body):
    model: str | None = Field(default=None, description="Id of a model; may be omitted where there is only one.")
    text: str | None = Field(default=None, description="The text to analyze, where the analysis has one.")
    options: Options = Field(default_factory=dict, description="Further arguments of the analysis; `search`: search options.")


async def inspect(call: Call, given: InspectFields) -> Any:
    """Run an analysis and return its result."""
    name: str = call.request.path_params["analysis"]
    if name not in ANALYSES:
        raise ApiError(404, f"unknown analysis {name!r:.40}; expected one of: {', '.join(ANALYSES)}")
    served = find_model(call, given.model)
    search = given.options.get("search")
    if search is not None:
        if not isinstance(search, dict) or "config" not in signature_of(name):
            raise ApiError(400, "options.search: expected an object, for an analysis that decodes", param="options")
        check_options(call, served, search)
    arguments = check_arguments(name, given, call.longest_input(served))
    try:
        result = start_analysis(served, lambda: analyze(served, name, arguments, search))
        return await asyncio.wait_for(asyncio.wrap_future(result), call.service.limits.analysis_deadline)
    except TimeoutError:
        raise DeadlineExceeded from None


def check_arguments(name: str, given: InspectFields, limit: int) -> Options:
    """The arguments of an analysis; an error for those that it does not have. limit: characters of a text."""
    known = {part: kind for part, kind in signature_of(name).items() if is_plain(kind)}
    options = {part: value for part, value in given.options.items() if part != "search"}
    if given.text is not None:
        options["texts" if "texts" in known else "text"] = given.text
    arguments = {}
    for part, value in options.items():
        if part not in known:
            expected = ", ".join(known) or "none"
            raise ApiError(400, f"{name} has no argument {part!r:.40}; expected one of: {expected}", param="options")
        arguments[part] = typed(f"options.{part}", known[part], value, limit)
    parameters = signatures.signature(getattr(inspection, name)).parameters.values()
    missing = [one.name for one in list(parameters)[1:] if one.default is one.empty and one.name not in arguments]
    if missing:
        raise ApiError(400, f"{name}: missing {missing[0]}", param=missing[0])
    return arguments


@cache
def signature_of(name: str) -> Options:
    """The parameters of an analysis after the predictor, with their types."""
    function = getattr(inspection, name)
    hints = get_type_hints(function)
    return {part: hints[part] for part in list(signatures.signature(function).parameters)[1:]}


def typed(name: str, kind: Any, value: Any, limit: int) -> Any:
    """A value as an analysis takes it. Integers are bounded, because they multiply the work; limit: characters of a text."""
    try:
        checked = TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise ApiError(400, f"{name}: {error.errors(include_url=False)[0]['msg']}", param="options") from None
    parts = checked if isinstance(checked, list | tuple) else [checked]
    if any(isinstance(part, int) and not 0 <= part <= MAX_SMALL for part in parts):
        raise ApiError(400, f"{name}: expected numbers from 0 to {MAX_SMALL:,}", param="options")
    if sum(len(part) for part in parts if isinstance(part, str)) > limit:
        raise ApiError(400, f"{name}: expected at most {limit:,} characters", param="options")
    return checked


def analyze(served: Served, name: str, arguments: Options, search: Options | None) -> Any:
    """The result of an analysis; the path of the run folder is replaced by the id of the model."""
    predictor = served.inspected
    config = {} if search is None else {"config": predictor.search_config_from(search)}
    found = getattr(inspection, name)(predictor, **arguments, **config).to_dict()
    return map_texts(replace_non_finite(found), lambda text: text.replace(str(served.folder), served.id))


def start_analysis(served: Served, function: Callable[[], Any]) -> Future[Any]:
    """Call a function in a new thread, after those that run. The thread does not keep the process alive."""
    if not served.analyses.acquire(blocking=False):
        raise QueueFull(RETRY)
    result: Future[Any] = Future()

    def work() -> None:
        try:
            with served.analyst:
                if result.set_running_or_notify_cancel():
                    result.set_result(function())
        except BaseException as error:
            result.set_exception(error)
        finally:
            served.analyses.release()

    Thread(target=work, name="analysis", daemon=True).start()
    return result


ENDPOINTS = [
    Endpoint(
        "POST",
        "/api/inspect/{analysis}",
        inspect,
        "Analyze a model, or its output for a text",
        fields=InspectFields,
        choices=ANALYSES,
    ),
]
