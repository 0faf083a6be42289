"""The API of OpenAI, with its own client: sync, async, streamed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from serving.running_server import Running

import heedful

SYSTEM = {"role": "system", "content": "Translate into German."}
TEXT = "w1 w2 w3"


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def test_models_are_listed(client: openai.OpenAI) -> None:
    ids = [model.id for model in client.models.list()]
    assert {"translation", "other", "language", "chat", "embedding"} <= set(ids)
    assert client.models.retrieve("chat").owned_by == "heedful"
    with pytest.raises(openai.NotFoundError) as missing:
        client.models.retrieve("gpt-4")
    assert missing.value.code == "model_not_found" and missing.value.param == "model"


def test_a_translation_model_translates_the_last_message(client: openai.OpenAI, tiny_runs: dict[str, Path]) -> None:
    messages = [SYSTEM, user("w9"), {"role": "assistant", "content": "w8"}, user(TEXT)]
    found = client.chat.completions.create(model="translation", messages=messages)
    translator = heedful.Translator.load(tiny_runs["translation"])
    (best,) = translator.translations([TEXT])
    assert found.object == "chat.completion" and len(found.choices) == 1
    message = found.choices[0].message
    assert (message.role, message.content) == ("assistant", best.text) and found.choices[0].finish_reason == "stop"
    assert found.model_extra == {"ignored": ["system messages", "all messages but the last"]}
    assert found.usage is not None
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (3, len(best.candidates[0].tokens) + 1)
    assert found.usage.total_tokens == 3 + found.usage.completion_tokens


def test_a_chat_model_replies_to_all_turns(client: openai.OpenAI, server: Running, tiny_runs: dict[str, Path]) -> None:
    turns = ["the cat", "cat sees", "a dog"]
    messages = [user("the"), user("cat"), {"role": "assistant", "content": "cat\tsees"}, user("a\ndog")]
    found = client.chat.completions.create(model="chat", messages=messages)
    assert found.choices[0].message.content == heedful.ChatBot.load(tiny_runs["chat"]).reply(turns).text
    asked = server.http.post("/api/predict", json={"model": "chat", "inputs": "\t".join(turns)}).json()
    assert asked["predictions"][0]["history"] == turns


def test_parts_of_a_message_are_joined(client: openai.OpenAI) -> None:
    parts: Any = [{"type": "text", "text": "w1 w2"}, {"type": "text", "text": " w3"}]
    whole = client.chat.completions.create(model="translation", messages=[user(TEXT)])
    found = client.chat.completions.create(model="translation", messages=[{"role": "user", "content": parts}])
    assert found.choices[0].message.content == whole.choices[0].message.content
    picture: Any = [{"type": "image_url", "image_url": {"url": "x"}}]
    with pytest.raises(openai.BadRequestError, match="type text"):
        client.chat.completions.create(model="translation", messages=[{"role": "user", "content": picture}])


def test_a_language_model_continues_prompts(client: openai.OpenAI) -> None:
    options: Any = {"model": "language", "max_tokens": 5, "temperature": 0}
    found = client.completions.create(prompt=["the cat", "a dog"], **options)
    assert [choice.index for choice in found.choices] == [0, 1]
    assert {choice.finish_reason for choice in found.choices} == {"length"}
    again = client.completions.create(prompt="a dog", **options)
    assert again.choices[0].text == found.choices[1].text and not again.choices[0].text.startswith("a dog")
    echoed = client.completions.create(prompt="a dog", echo=True, **options)
    assert echoed.choices[0].text == "a dog" + again.choices[0].text


def test_without_max_tokens_the_limit_is_that_of_the_model(client: openai.OpenAI, tiny_runs: dict[str, Path]) -> None:
    found = client.completions.create(model="language", prompt="the cat", temperature=0)
    most = heedful.load(tiny_runs["language"]).system.max_length
    assert found.usage is not None and 5 < found.usage.completion_tokens <= most and most != 16 + 2


def test_seeds_and_temperature(client: openai.OpenAI) -> None:
    def sample(**options: Any) -> list[str]:
        found = client.completions.create(model="language", prompt="the", max_tokens=12, **options)
        return [choice.text for choice in found.choices]

    assert sample(temperature=1.5, seed=3) == sample(temperature=1.5, seed=3) != sample(temperature=1.5, seed=4)
    assert len({sample(temperature=2)[0] for _ in range(4)}) > 1  # without a seed every reply is another
    assert sample(temperature=0) == sample(temperature=0, seed=-5)
    several = sample(temperature=2, seed=1, n=3)
    assert len(set(several)) == 3


def test_n_translations_are_those_of_the_beam(client: openai.OpenAI, tiny_runs: dict[str, Path]) -> None:
    found = client.chat.completions.create(model="translation", messages=[user(TEXT)], n=3)
    (best,) = heedful.Translator.load(tiny_runs["translation"]).translations([TEXT], n_best=3)
    assert [choice.message.content for choice in found.choices] == [one.text for one in best.candidates]
    assert [choice.index for choice in found.choices] == [0, 1, 2]


def test_stop_strings_end_the_text(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="translation", messages=[user(TEXT)]).choices[0].message.content
    assert whole is not None and len(whole.split()) > 2
    stop = whole.split()[1]
    found = client.chat.completions.create(model="translation", messages=[user(TEXT)], stop=[stop, "none"])
    assert found.choices[0].message.content == whole[: whole.index(stop)]
    assert found.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("stop", [None, "w15"])
@pytest.mark.parametrize("n", [1, 2])
def test_a_streamed_chat_is_the_whole_one_in_parts(n: int, stop: str | None, client: openai.OpenAI) -> None:
    options: Any = {"model": "translation", "messages": [SYSTEM, user(TEXT)], "n": n, "stop": stop}
    whole = client.chat.completions.create(**options)
    chunks = list(client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}))
    assert len({chunk.id for chunk in chunks}) == 1 and {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage
    for index in range(n):
        own = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
        assert own[0].delta.role == "assistant" and [one.finish_reason for one in own[:-1]] == [None] * (len(own) - 1)
        assert "".join(one.delta.content or "" for one in own) == whole.choices[index].message.content
        assert own[-1].finish_reason == whole.choices[index].finish_reason and own[-1].delta.content is None


def test_streamed_completions_of_several_prompts(client: openai.OpenAI) -> None:
    options: Any = {"model": "language", "prompt": ["the cat", "a"], "max_tokens": 4, "temperature": 0}
    whole = client.completions.create(**options)
    parts = ["", ""]
    for chunk in client.completions.create(**options, stream=True):
        for choice in chunk.choices:
            parts[choice.index] += choice.text
    assert parts == [choice.text for choice in whole.choices]


def test_many_requests_at_once_with_the_async_client(server: Running, tiny_runs: dict[str, Path]) -> None:
    texts = [f"w{i % 20} w{i * 7 % 20} w{i * 3 % 20}" for i in range(24)]

    async def ask() -> list[str | None]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            asked = [client.chat.completions.create(model="translation", messages=[user(text)]) for text in texts]
            return [found.choices[0].message.content for found in await asyncio.gather(*asked)]

    async def stream() -> str:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            found = await client.chat.completions.create(model="translation", messages=[user(texts[0])], stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in found])

    expected = heedful.load(tiny_runs["translation"]).predict(texts)
    assert asyncio.run(ask()) == expected
    assert asyncio.run(stream()) == expected[0]


@pytest.mark.parametrize("model", ["embedding", "skip_thought"])
def test_embeddings(model: str, client: openai.OpenAI, tiny_runs: dict[str, Path]) -> None:
    texts = ["the cat", "a dog runs"]
    vectors = heedful.Embedder.load(tiny_runs[model]).encode(texts)
    for form in ("float", "base64"):
        found = client.embeddings.create(model=model, input=texts, encoding_format=form)
        assert [one.index for one in found.data] == [0, 1] and found.usage.total_tokens == found.usage.prompt_tokens > 0
        if form == "float":
            assert [one.embedding for one in found.data] == [pytest.approx(vector.tolist(), abs=1e-5) for vector in vectors]
    decoded = client.embeddings.create(model=model, input=texts[0]).data[0].embedding  # the client decodes base64
    assert decoded == pytest.approx(vectors[0].tolist(), abs=1e-5)


WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "an unknown model": ("model", {"model": "gpt-4"}),
    "a model of another task": ("model", {"model": "classification"}),
    "no user message": ("messages", {"messages": [SYSTEM]}),
    "an empty chat": ("messages", {"messages": []}),
    "a high temperature": ("temperature", {"temperature": 9}),
    "too many choices": ("n", {"n": 1000}),
    "too many tokens": ("max_tokens", {"max_tokens": 10**6}),
    "tools": ("tools", {"tools": [{"type": "function", "function": {"name": "f"}}]}),
    "a penalty": ("presence_penalty", {"presence_penalty": 1}),
    "logprobs of a translation": ("logprobs", {"logprobs": True}),
    "too many stops": ("stop", {"stop": list("abcde")}),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_the_parameter(case: str, client: openai.OpenAI) -> None:
    param, changes = WRONG[case]
    with pytest.raises(openai.APIStatusError) as refused:
        client.chat.completions.create(**{"model": "translation", "messages": [user(TEXT)], **changes})
    assert refused.value.status_code == (404 if case == "an unknown model" else 400)
    assert refused.value.param == param and refused.value.body is not None
    assert refused.value.type == ("not_found_error" if case == "an unknown model" else "invalid_request_error")


def test_no_embeddings_of_a_model_without_them(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="computes no embeddings"):
        client.embeddings.create(model="translation", input="w1")
    with pytest.raises(openai.BadRequestError, match="this model has 16"):
        client.embeddings.create(model="embedding", input="cat", dimensions=8)


def test_a_language_model_streams_stops_and_returns_log_probabilities(client: openai.OpenAI) -> None:
    options: Any = {"model": "language", "prompt": "the", "max_tokens": 24, "seed": 3, "temperature": 1.0}
    whole = client.completions.create(**options, logprobs=2)
    (choice,) = whole.choices
    assert choice.finish_reason == "length" and whole.usage is not None and whole.usage.completion_tokens == 24
    assert choice.logprobs is not None and choice.logprobs.tokens is not None and choice.logprobs.top_logprobs is not None
    assert "".join(choice.logprobs.tokens) == choice.text
    assert [len(top) for top in choice.logprobs.top_logprobs] == [2] * 24
    stop = choice.text.split()[4]
    expected = choice.text[: choice.text.index(stop)]
    cut = client.completions.create(**options, stop=stop)
    assert (cut.choices[0].text, cut.choices[0].finish_reason) == (expected, "stop")
    for stops, text in ((None, choice.text), ([stop], expected)):
        parts = list(client.completions.create(**options, stop=stops, stream=True))
        assert "".join(part.choices[0].text for part in parts) == text
        assert len([part for part in parts if part.choices[0].text]) > 2  # token by token, not at the end
