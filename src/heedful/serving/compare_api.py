"""What a reply depends on, and how similar texts are: results of predictors that have no analysis of their own.

POST /api/why           {"model": "bot", "history": ["hello"], "reply": "hi"}
POST /api/similarity    {"model": "vectors", "texts": ["a cat"], "others": ["a dog", "a car"]}
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pydantic import Field

from heedful.errors import ConfigError
from heedful.inspection.result import replace_non_finite
from heedful.serving.body import Body
from heedful.serving.calls import Call, Endpoint
from heedful.serving.failures import ApiError
from heedful.serving.inspect_api import start_analysis
from heedful.serving.predict_api import find_model
from heedful.serving.served import Served
from heedful.serving.worker import DeadlineExceeded
from heedful.tasks.conversation import Replier
from heedful.tasks.embedding.predictor import Embedder


class WhyFields(Body):
    model: str | None = Field(default=None, description="Id of a model; may be omitted where there is only one.")
    history: list[str] = Field(min_length=1, description="The turns of a dialogue, oldest first.")
    reply: str = Field(description="The reply to the last turn.")


class SimilarityFields(Body):
    model: str | None = Field(default=None, description="Id of a model; may be omitted where there is only one.")
    texts: list[str] = Field(min_length=1, description="Texts, each of which is compared with all others.")
    others: list[str] = Field(min_length=1, description="The texts to compare with.")


async def why(call: Call, given: WhyFields) -> Any:
    """The attention of a reply to the turns before it, or the stored entries that a retrieved reply was found by."""
    served = find_model(call, given.model)
    call.check_texts([*given.history, given.reply], "history")
    if not isinstance(served.predictor, Replier):
        raise ApiError(400, f"model {served.id!r} is of task {served.task!r}, which replies to no dialogue", param="model")

    def compute() -> Any:
        replier: Any = served.inspected
        return replier.why(given.history, given.reply).to_dict()

    return await compute_result(call, served, compute)


async def similarity(call: Call, given: SimilarityFields) -> Any:
    """The cosine similarity of each text with each of the others."""
    served = find_model(call, given.model)
    call.check_texts([*given.texts, *given.others], "texts")

    def compute() -> Any:
        try:
            embedder = Embedder.of(served.inspected)
        except ConfigError:  # its message contains the path of the run folder
            message = f"model {served.id!r} is of task {served.task!r}, which computes no embeddings"
            raise ApiError(400, message, param="model") from None
        values = embedder.similarity(given.texts, given.others)
        return {"texts": given.texts, "others": given.others, "similarity": values.tolist()}

    return await compute_result(call, served, compute)


async def compute_result(call: Call, served: Served, compute: Callable[[], Any]) -> Any:
    """The result of a computation in the thread of analyses; an error after the deadline."""
    try:
        result = await asyncio.wait_for(
            asyncio.wrap_future(start_analysis(served, compute)), call.service.limits.analysis_deadline
        )
    except TimeoutError:
        raise DeadlineExceeded from None
    return replace_non_finite(result)


ENDPOINTS = [
    Endpoint("POST", "/api/why", why, "What a reply depends on", fields=WhyFields),
    Endpoint("POST", "/api/similarity", similarity, "The cosine similarity of texts", fields=SimilarityFields),
]
