"""The studio: a page for all models of the server. Its files are built from studio/ and are part of the package.

GET /                       the page
GET /studio/studio.js       its script, style and icon
POST /api/attention         the attention of every head of a kind, for the grid
POST /api/alignment         the word alignment of a text and its translation by given heads
POST /api/examples          inputs from the validation or the test data of a run
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache, lru_cache
from itertools import islice
from typing import Any, Literal

from pydantic import Field
from starlette.responses import Response

from heedful import inspection
from heedful.errors import HeedfulError
from heedful.inspection.analyses.alignment import find_heads
from heedful.inspection.measures.alignment_heads import Aligner, Moment
from heedful.inspection.measures.alignment_links import Cover, LinkRule
from heedful.inspection.result import replace_non_finite
from heedful.serving.body import Body
from heedful.serving.calls import Call, Endpoint
from heedful.serving.failures import ApiError
from heedful.serving.inspect_api import start_analysis
from heedful.serving.predict_api import Options, check_options, find_model
from heedful.serving.served import Served
from heedful.serving.worker import DeadlineExceeded
from heedful.storage.reading import read_package_text

MAX_EXAMPLES = 50
EXAMINED = 10  # inputs that are examined, for each that is asked for
FILES = {  # what is served, with its media type
    "index.html": "text/html; charset=utf-8",
    "studio.js": "text/javascript; charset=utf-8",
    "studio.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "tour.json": "application/json",
}


@cache
def content_of(name: str) -> str:
    return read_package_text("heedful.studio", name)


async def page(call: Call, given: None) -> Response:
    return Response(content_of("index.html"), media_type=FILES["index.html"])


async def file(call: Call, given: None) -> Response:
    name: str = call.request.path_params["file"]
    if name not in FILES:
        raise ApiError(404, f"the studio has no file {name!r:.40}")
    return Response(content_of(name), media_type=FILES[name])


class AttentionFields(Body):
    model: str | None = Field(default=None, description="Id of a model; may be omitted where there is only one.")
    text: str = Field(description="The text to analyze.")
    target: str | None = Field(default=None, description="Default: the output of the model.")
    kind: str = Field(description="Kind of attention: encoder, decoder, cross …")
    by: Literal["weights", "norms", "rollout"] = Field(default="weights", description="The values of the maps.")
    words: bool = Field(default=False, description="Merge the tokens of each word.")
    search: Options = Field(default_factory=dict, description="Search options, where the target is decoded.")


async def attention(call: Call, given: AttentionFields) -> Any:
    """The values of every head of a kind of attention."""
    served = find_model(call, given.model)
    call.check_texts([given.text, given.target or ""], "text", served)
    check_options(call, served, given.search)

    def compute() -> Any:
        predictor = served.inspected
        config = predictor.search_config_from(given.search) if given.search else None
        result = inspection.attention(predictor, given.text, given.target, config=config, kind=given.kind, by=given.by)
        return replace_non_finite(result.all_maps(given.words))

    return await analyze(call, served, compute)


async def analyze(call: Call, served: Served, compute: Callable[[], Any]) -> Any:
    """The result of a function, computed in the thread of analyses within their time limit."""
    try:
        return await asyncio.wait_for(
            asyncio.wrap_future(start_analysis(served, compute)), call.service.limits.analysis_deadline
        )
    except TimeoutError:
        raise DeadlineExceeded from None


class AlignmentFields(Body):
    model: str | None = Field(default=None, description="Id of a model; may be omitted where there is only one.")
    text: str = Field(description="The text to align.")
    target: str | None = Field(default=None, description="Default: the output of the model.")
    heads: str | None = Field(default=None, description="Heads, as 0.3,1: head 3 of layer 0, all of layer 1. Default: all.")
    moment: Moment = Field(default="predict", description="Use the step that predicts the target word or that consumes it.")
    row: float = Field(default=1.0, ge=0, le=1, description="Threshold: share of the target word's largest weight.")
    column: float = Field(default=0.0, ge=0, le=1, description="Threshold: share of the source word's largest weight.")
    cover: Cover = Field(default="none", description="Which words always get a link.")


async def alignment(call: Call, given: AlignmentFields) -> Any:
    """The links between the words of a text and of its translation."""
    served = find_model(call, given.model)
    call.check_texts([given.text, given.target or ""], "text")

    def compute() -> Any:
        predictor = served.inspected
        aligner = Aligner(find_heads(predictor, given.heads), given.moment, LinkRule(given.row, given.column, given.cover))
        target = predictor.encode_example(given.text).target.text if given.target is None else given.target
        return replace_non_finite(inspection.alignment(predictor, [(given.text, target)], aligner=aligner).first_pair())

    return await analyze(call, served, compute)


class ExampleFields(Body):
    model: str | None = Field(default=None, description="Id of a model; may be omitted where there is only one.")
    split: Literal["valid", "test"] = Field(default="valid", description="The data that the inputs are from.")
    count: int = Field(default=12, ge=1, le=MAX_EXAMPLES, description="The largest number of inputs.")


async def examples(call: Call, given: ExampleFields) -> Any:
    """Inputs from the data of a run, with what is expected of each: none where its data is not on this machine."""
    served = find_model(call, given.model)
    longest = call.longest_input(served)

    def found() -> list[dict[str, str | None]]:
        try:
            return first_examples(served, given.split, given.count, longest)
        except HeedfulError:  # not kept: the data may be there later
            return []

    return {"examples": await analyze(call, served, found)}


@lru_cache(64)
def first_examples(served: Served, split: str, count: int, longest: int) -> list[dict[str, str | None]]:
    """The first inputs that the server accepts, among the first EXAMINED x count."""
    inputs = islice(served.inspected.example_inputs(split), EXAMINED * count)
    return [one._asdict() for one in islice((one for one in inputs if len(one.text) <= longest), count)]


ENDPOINTS = [
    Endpoint("GET", "/", page, "The studio, a page for all models", answer=None, needs_key=False),
    Endpoint("GET", "/studio", page, "The studio, a page for all models", answer=None, needs_key=False),
    Endpoint("GET", "/studio/{file}", file, "A file of the studio", answer=None, needs_key=False, choices=list(FILES)),
    Endpoint("POST", "/api/attention", attention, "The attention of every head of a kind", fields=AttentionFields),
    Endpoint("POST", "/api/alignment", alignment, "Align the words of a text and its translation", fields=AlignmentFields),
    Endpoint("POST", "/api/examples", examples, "Inputs from the data of a run, to try a model with", fields=ExampleFields),
]
