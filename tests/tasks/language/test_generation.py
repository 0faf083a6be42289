"""Generation: many prompts at once, stop strings, log-probabilities, shared prefixes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from heedful.errors import ConfigError
from heedful.models.gpt import GPT, FusedLayer, GPTConfig
from heedful.nn import few_rows
from heedful.nn.decoder_state import State
from heedful.tasks.continuous_batching import ContinuousBatch
from heedful.tasks.decoding import MIN_SHARED, Piece, shared_prefix
from heedful.tasks.language.generate import text_decoder
from heedful.tasks.language.predictor import TextGenerator
from heedful.tasks.system import System
from heedful.text import TokenizerConfig, train_tokenizer

PROMPTS = ["the cat", "", "a dog sees", "the cat sees a dog"]


@pytest.fixture
def generator(tiny_runs: dict[str, Path]) -> TextGenerator:
    return TextGenerator.load(tiny_runs["language"])


@pytest.mark.parametrize("search", [{"method": "greedy"}, {"method": "sample", "seed": 2, "n_best": 2}], ids=str)
def test_prompts_at_once_are_continued_as_one_by_one(generator: TextGenerator, search: dict[str, Any]) -> None:
    together = list(generator.predictions(PROMPTS, length=20, **search))
    (first,) = generator.predictions(PROMPTS[:1], length=20, **search)
    assert together[0] == first  # samples of other lines have other random numbers
    for continuation, prompt in zip(together, PROMPTS, strict=True):
        assert continuation.prompt == prompt
        assert [len(one.tokens) for one in continuation.completions] == [20] * len(continuation.completions)
        if search["method"] == "greedy":
            assert continuation.texts == generator.generate(prompt, 20, **search)


def test_a_stop_string_ends_the_text_before_it(generator: TextGenerator) -> None:
    (whole,) = generator.predictions(["the"], length=30, method="sample", seed=5)
    text = whole.completions[0].text
    stop = text.split()[3]
    (cut,) = generator.predictions(["the"], length=30, method="sample", seed=5, stop=["never", stop])
    (completion,) = cut.completions
    assert completion.finish_reason == "stop" and whole.completions[0].finish_reason == "length"
    assert completion.text == text[: text.index(stop)]
    assert stop not in completion.text
    assert completion.tokens == whole.completions[0].tokens[: len(completion.tokens)]


def test_streamed_text_never_shows_a_part_of_a_stop_string(generator: TextGenerator) -> None:
    (whole,) = generator.predictions(["the"], length=30, method="sample", seed=5)
    text = whole.completions[0].text
    stop = text[8:13]
    job = generator.job("the", length=30, method="sample", seed=5, stop=stop, stream=True)
    batch, shown = ContinuousBatch(generator.decoder()), ""
    batch.submit(job)
    while batch.busy:
        batch.step()
        shown += job.new_text(0)
        assert text[: text.index(stop)].startswith(shown)
    assert shown == text[: text.index(stop)] == job.prediction().completions[0].text


@pytest.mark.parametrize("length", [6, 40])  # within the model's context, and beyond it
def test_log_probabilities_are_those_of_the_model(generator: TextGenerator, length: int) -> None:
    (found,) = generator.predictions(["the cat"], length=length, method="greedy", logprobs=3)
    (completion,) = found.completions
    assert completion.log_probabilities is not None and len(completion.log_probabilities) == length
    for one in completion.log_probabilities:
        assert len(one.top) == 3
        assert one.log_probability == pytest.approx(one.top[0][1], abs=1e-5)  # greedy, unless padding is the most probable
        assert [score for _, score in one.top] == sorted((score for _, score in one.top), reverse=True)
    if length == 6:
        (score,) = generator.score("the cat", [completion.text])
        assert sum(one.log_probability for one in completion.log_probabilities) == pytest.approx(score, abs=1e-4)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"stop": [""]}, "stop: given \\[''\\], expected a text"),
        ({"stop": 3}, "stop: given 3, expected a text"),
        ({"logprobs": 21}, "logprobs: given 21, expected an integer from 0 to 20"),
    ],
)
def test_invalid_options_are_an_error(generator: TextGenerator, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        generator.predict("the", **options)


@pytest.mark.parametrize("options", [{}, {"position": "rotary"}, {"reach": ["local", "compressed"], "block": 8}], ids=str)
@torch.inference_mode()
def test_a_shared_prefix_is_encoded_once_and_changes_no_state(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps after prompts that share a prefix give the logits of steps after prompts that are encoded one by one."""
    system = tiny_system(**options)
    decoder, (model,) = text_decoder(system), system.models
    prefix = torch.randint(4, 20, (MIN_SHARED + 3,)).tolist()
    rows = [[*prefix, 5, 6, 7], prefix, [*prefix, 8]]
    assert shared_prefix(rows) == len(prefix)
    calls: list[tuple[int, ...]] = []
    start = model.start

    def record_start(source: Tensor, source_mask: Tensor | None, *, room: int) -> State:
        calls.append(tuple(source.shape))
        return start(source, source_mask, room=room)

    monkeypatch.setattr(model, "start", record_start)
    state = decoder.encode([Piece(at, row, [], "") for at, row in enumerate(rows)], 4, length=0)
    assert calls == [(1, len(prefix))]
    tokens = torch.tensor([[9], [10], [11]])
    for _ in range(3):
        step = model.step(tokens, state)
        state = step.state
        for at, row in enumerate(rows):
            rows[at] = [*row, int(tokens[at])]
            alone = model.forced(None, None, torch.tensor([rows[at]]))
            assert_close(step.hidden[at, -1], alone.hidden[0, -1], rtol=1e-4, atol=1e-5)


def tiny_system(**options: Any) -> System:
    torch.manual_seed(0)
    tokenizer = train_tokenizer(TokenizerConfig(kind="characters"), ["abcdefghijklmnopqrstuvw"])
    model = GPT(GPTConfig.model_validate({"dim": 32, "layers": 2, "heads": 2, **options}), len(tokenizer), len(tokenizer))
    return System([model.eval()], tokenizer, tokenizer, torch.device("cpu"), max_length=64)


@pytest.mark.parametrize("activation", ["relu", "gelu_tanh"])
@torch.inference_mode()
def test_a_fused_layer_computes_what_a_plain_one_does(activation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the plain operations in place of its kernels, which need a GPU."""
    system = tiny_system(activation=activation)
    (model,) = system.models
    source, tokens = torch.randint(4, 20, (3, 6)), torch.randint(4, 20, (3, 1))
    plain = model.step(tokens, model.start(source, None, room=2)).hidden
    used: list[FusedLayer] = []

    def fits(layer: FusedLayer, x: Tensor) -> bool:
        used.append(layer)
        return True

    monkeypatch.setattr(FusedLayer, "fits", fits)
    monkeypatch.setattr("heedful.models.gpt.few_rows_linear", few_rows.reference)
    assert_close(model.step(tokens, model.start(source, None, room=2)).hidden, plain)
    assert used


@pytest.mark.parametrize("options", [{"norm": "post"}, {"activation": "swiglu"}, {"activation": "gelu"}], ids=str)
def test_other_layers_have_no_fused_form(options: dict[str, Any]) -> None:
    (model,) = tiny_system(**options).models
    assert all(layer.fused() is None for layer in model.layers)  # type: ignore[union-attr]
