"""The API of OpenAI, as far as it applies: models, completions, chat completions, embeddings.

A translation model translates the last user message of a chat; a chat model replies to all turns. What has no effect on a
model, such as system messages, is listed in the field `ignored` of the reply. Without max_tokens the limit is that of the
model.
"""

from __future__ import annotations

import base64
import json
import secrets
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from time import time
from typing import Any, Literal, NamedTuple

from pydantic import Field
from starlette.responses import StreamingResponse

from heedful.serving.body import Body
from heedful.serving.calls import Call, Endpoint
from heedful.serving.failures import ApiError, api_error
from heedful.serving.generation import (
    Choice,
    Generation,
    choices_of,
    count_tokens,
    generates,
    generation_options,
    reads_turns,
    stops_by_itself,
)
from heedful.serving.predict_api import find_model
from heedful.serving.served import Served
from heedful.serving.worker import Delta, Event, Finished

API = "openai"
MAX_STOPS = 4
NOT_SUPPORTED = {  # name -> values without effect; any other is an error
    "tools": (None, []),
    "functions": (None, []),
    "suffix": (None, ""),
    "logit_bias": (None, {}),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "response_format": (None, {"type": "text"}),
}


class StreamOptions(Body):
    include_usage: bool = False


class GenerationFields(Body):
    model: str
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    n: int = Field(default=1, ge=1)
    stop: str | list[str] | None = None
    seed: int | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None


class CompletionFields(GenerationFields):
    prompt: str | list[str] = ""
    logprobs: int | None = Field(default=None, ge=0, le=20)
    echo: bool = False


class Message(Body):
    role: str
    content: str | list[dict[str, Any]] | None = None

    def text(self) -> str:
        if not isinstance(self.content, list):
            return self.content or ""
        parts = [part.get("text") for part in self.content if part.get("type") == "text"]
        if len(parts) < len(self.content) or not all(isinstance(part, str) for part in parts):
            raise ApiError(400, "messages: expected content of type text", param="messages")
        return "".join(map(str, parts))


class ChatFields(GenerationFields):
    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool = False
    top_logprobs: int | None = Field(default=None, ge=0, le=20)


class EmbeddingFields(Body):
    model: str
    input: str | list[str]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None


class Job(NamedTuple):
    """What to generate, and how to write it down."""

    call: Call
    served: Served
    texts: list[str]
    given: Generation
    prefix: str  # of the id
    object: str  # name of the reply
    is_chat: bool
    echo: bool = False
    include_usage: bool = False
    ignored: Sequence[str] = ()

    @property
    def head(self) -> dict[str, Any]:
        about: dict[str, Any] = {"id": f"{self.prefix}-{secrets.token_hex(12)}", "object": self.object}
        about |= {"created": int(time()), "model": self.served.id}
        return about | ({"ignored": list(self.ignored)} if self.ignored else {})

    def usage(self, choices: Sequence[Choice]) -> dict[str, int]:
        prompt = sum(count_tokens(self.served, text) for text in self.texts)
        completion = sum(choice.tokens for choice in choices)
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


async def models(call: Call, given: None) -> dict[str, Any]:
    return {"object": "list", "data": [describe(served) for served in call.service.models]}


async def model(call: Call, given: None) -> dict[str, Any]:
    return describe(find_model(call, call.request.path_params["model"]))


def describe(served: Served) -> dict[str, Any]:
    return {"id": served.id, "object": "model", "created": served.created, "owned_by": "heedful"}


async def completions(call: Call, given: CompletionFields) -> Any:
    served = find_generator(call, given.model)
    texts = [given.prompt] if isinstance(given.prompt, str) else given.prompt
    call.check_texts(texts, "prompt")
    generation = generation_of(call, given, given.logprobs)
    usage = bool(given.stream_options and given.stream_options.include_usage)
    job = Job(call, served, texts, generation, "cmpl", "text_completion", False, given.echo, usage)
    return await answer(job, given.stream)


async def chat_completions(call: Call, given: ChatFields) -> Any:
    served = find_generator(call, given.model)
    if len(given.messages) > call.service.limits.max_texts:
        raise ApiError(400, f"messages: expected at most {call.service.limits.max_texts}", param="messages")
    text, ignored = chat_input(served, given.messages)
    call.check_texts([text], "messages")
    logprobs = (given.top_logprobs or 0) if given.logprobs else None
    given = given.model_copy(update={"max_tokens": given.max_completion_tokens or given.max_tokens})
    usage = bool(given.stream_options and given.stream_options.include_usage)
    generation = generation_of(call, given, logprobs)
    name = "chat.completion.chunk" if given.stream else "chat.completion"
    job = Job(call, served, [text], generation, "chatcmpl", name, True, include_usage=usage, ignored=ignored)
    return await answer(job, given.stream)


def find_generator(call: Call, name: str) -> Served:
    served = find_model(call, name)
    if not generates(served.predictor):
        message = f"model {served.id!r} is of task {served.task!r}, which generates no text; use /api/predict"
        raise ApiError(400, message, param="model")
    return served


def generation_of(call: Call, given: GenerationFields, logprobs: int | None) -> Generation:
    for name, neutral in NOT_SUPPORTED.items():
        if call.fields.get(name) not in neutral:
            raise ApiError(400, f"{name} is not supported", param=name)
    stop = [given.stop] if isinstance(given.stop, str) else given.stop or []
    if len(stop) > MAX_STOPS or any(len(one) > call.service.limits.max_characters for one in stop):
        raise ApiError(400, f"stop: expected at most {MAX_STOPS} texts", param="stop")
    return Generation(given.max_tokens, given.temperature, given.top_p, given.seed, given.n, stop, logprobs)


def chat_input(served: Served, messages: Sequence[Message]) -> tuple[str, list[str]]:
    """The input of a model for a chat, and what of it has no effect."""
    turns = [(message.role, message.text()) for message in messages if message.role in ("user", "assistant")]
    ignored = sorted({f"{one.role} messages" for one in messages if one.role not in ("user", "assistant")})
    if not turns or turns[-1][0] != "user":
        raise ApiError(400, "messages: expected a user message at the end", param="messages")
    if not reads_turns(served.predictor):
        return turns[-1][1], ignored + (["all messages but the last"] if len(turns) > 1 else [])
    merged: list[tuple[str, str]] = []
    for role, text in turns:  # two speakers alternate
        words = " ".join(text.split())
        if merged and merged[-1][0] == role:
            merged[-1] = role, f"{merged[-1][1]} {words}"
        else:
            merged.append((role, words))
    return "\t".join(text for _, text in merged), ignored


async def answer(job: Job, stream: bool) -> Any:
    options = generation_options(job.served, job.given, job.texts, job.call.service.limits)
    if stream:
        events = job.call.events(job.served, job.texts, options, stream=True)
        first = await anext(events, None)  # an error before it has a status of its own
        return StreamingResponse(chunks(job, first, events), media_type="text/event-stream")
    predictions = await job.call.predict(job.served, job.texts, options)
    found = [choices_of(job.served, prediction, job.given) for prediction in predictions]
    choices = [choice for one in found for choice in one]
    written = [
        write_choice(job, number * job.given.n + rank, job.texts[number], choice)
        for number, one in enumerate(found)
        for rank, choice in enumerate(one)
    ]
    return job.head | {"choices": written, "usage": job.usage(choices)}


def write_choice(job: Job, index: int, prompt: str, choice: Choice) -> dict[str, Any]:
    """A choice of a reply that is not streamed."""
    ending = {"finish_reason": choice.finish_reason, "logprobs": write_logprobs(job, choice)}
    if job.is_chat:
        return {"index": index, "message": {"role": "assistant", "content": choice.text, "refusal": None}} | ending
    return {"index": index, "text": f"{prompt if job.echo else ''}{choice.text}"} | ending


def write_logprobs(job: Job, choice: Choice) -> dict[str, Any] | None:
    found = choice.log_probabilities
    if found is None:
        return None
    if job.is_chat:
        return {"content": [token_logprob(one.token, one.log_probability, one.top) for one in found], "refusal": None}
    offsets, at = [], 0
    for one in found:
        offsets.append(at)
        at += len(one.token)
    return {
        "tokens": [one.token for one in found],
        "token_logprobs": [one.log_probability for one in found],
        "top_logprobs": [dict(one.top) for one in found],
        "text_offset": offsets,
    }


def token_logprob(token: str, log_probability: float, top: Sequence[tuple[str, float]] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"token": token, "logprob": log_probability, "bytes": list(token.encode())}
    return found if top is None else found | {"top_logprobs": [token_logprob(*one) for one in top]}


async def chunks(job: Job, first: Event | None, events: AsyncGenerator[Event, None]) -> AsyncIterator[str]:
    """The reply as server-sent events: a chunk for each new text, one with the reason of the end, then [DONE]."""
    head = job.head | ({"usage": None} if job.include_usage else {})
    written: dict[int, str] = {}  # index of an input -> its text so far
    choices: list[Choice] = []

    def chunk(index: int, text: str, finish: str | None = None, logprobs: Any = None, role: bool = False) -> str:
        ending = {"finish_reason": finish, "logprobs": logprobs}
        delta: dict[str, str] = ({"role": "assistant"} if role else {}) | ({} if finish else {"content": text})
        body = {"index": index, "delta": delta} if job.is_chat else {"index": index, "text": text}
        return event(head | {"choices": [body | ending]})

    def start(index: int, number: int) -> str:
        return chunk(index, job.texts[number] if job.echo else "", role=True)

    def next_chunks(one: Event) -> list[str]:
        n = job.given.n
        if isinstance(one, Delta) and n == 1 and (not job.given.stop or stops_by_itself(job.served.predictor)):
            opened = [] if one.index in written else [start(one.index, one.index)]
            written[one.index] = written.get(one.index, "") + one.text
            return [*opened, chunk(one.index, one.text)]
        if not isinstance(one, Finished):
            return []
        made = []
        for rank, choice in enumerate(choices_of(job.served, one.prediction, job.given)):
            index = one.index * n + rank
            made += [] if one.index in written and n == 1 else [start(index, one.index)]
            so_far = written.get(one.index, "")
            rest = choice.text[len(so_far) :] if choice.text.startswith(so_far) else ""
            made += [chunk(index, rest)] if rest else []
            made.append(chunk(index, "", choice.finish_reason, write_logprobs(job, choice)))
            choices.append(choice)
        return made

    try:
        async with aclosing(events):  # if the client leaves, the work is cancelled at once
            for text in [] if first is None else next_chunks(first):
                yield text
            async for one in events:
                for text in next_chunks(one):
                    yield text
    except Exception as error:
        yield event(api_error(error).body(API))
        return
    if job.include_usage:
        yield event(head | {"choices": [], "usage": job.usage(choices)})
    yield "data: [DONE]\n\n"


def event(content: dict[str, Any]) -> str:
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n"


async def embeddings(call: Call, given: EmbeddingFields) -> dict[str, Any]:
    served = find_model(call, given.model)
    texts = [given.input] if isinstance(given.input, str) else given.input
    call.check_texts(texts, "input")
    predictions: list[Any] = list(await call.predict(served, texts, {}))
    if not all(hasattr(one, "vector") for one in predictions):
        message = f"model {served.id!r} is of task {served.task!r}, which computes no embeddings"
        raise ApiError(400, message, param="model")
    vectors = [one.vector for one in predictions]
    if given.dimensions is not None and any(len(vector) != given.dimensions for vector in vectors):
        raise ApiError(400, f"dimensions: this model has {len(vectors[0])}", param="dimensions")
    written = vectors if given.encoding_format == "float" else list(map(pack_floats, vectors))
    tokens = sum(count_tokens(served, text) for text in texts)
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(written)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": served.id, "usage": usage}


def pack_floats(vector: Sequence[float]) -> str:
    """Little-endian 32-bit numbers in base64."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


ENDPOINTS = [
    Endpoint("GET", "/v1/models", models, "List the models", API),
    Endpoint("GET", "/v1/models/{model}", model, "Describe a model", API),
    Endpoint("POST", "/v1/completions", completions, "Continue, translate or answer a text", API, CompletionFields),
    Endpoint("POST", "/v1/chat/completions", chat_completions, "Reply to a chat, or translate its end", API, ChatFields),
    Endpoint("POST", "/v1/embeddings", embeddings, "Compute the embeddings of texts", API, EmbeddingFields),
]
