"""Language modeling: batches, scoring with a sliding window, metrics and text generation."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from workshop import heed

import heedful
from heedful.data.corpus_text import TextConfig, passages
from heedful.data.text_blocks import JoinedText
from heedful.data.text_store import TextStore, encode_text, open_text
from heedful.models.gpt import GPT, GPTConfig
from heedful.runs.config import Run, read_run
from heedful.search import SearchConfig
from heedful.tasks.language.data import TextData, TextSplits
from heedful.tasks.language.evaluate import evaluate_text, text_loss, windows
from heedful.tasks.language.generate import GenerationOptions, generate, score_endings
from heedful.tasks.language.predictor import TextGenerator
from heedful.tasks.language.task import LanguageModelingTask
from heedful.tasks.system import System
from heedful.tasks.translation.evaluate import score_pairs
from heedful.text import Tokenizer, TokenizerConfig, train_tokenizer

TEXT = "".join(f"{random.Random(at).choice(['a cat', 'the dog', 'a bird'])} ran to the river .\n" for at in range(40))


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text(TEXT)
    return path


def tokenizer_of(kind: str = "characters") -> Tokenizer:
    options: dict[str, Any] = {"min_frequency": 1} if kind == "spaces" else {}
    return train_tokenizer(TokenizerConfig(kind=kind, **options), TEXT.splitlines())  # type: ignore[arg-type]


def system_of(tokenizer: Tokenizer, window: int = 16, **options: Any) -> System:
    torch.manual_seed(0)
    config = GPTConfig.model_validate({"dim": 16, "layers": 2, "heads": 2, "max_positions": window, **options})
    model = GPT(config, len(tokenizer), len(tokenizer)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return System([model], tokenizer, tokenizer, torch.device("cpu"), max_length=window)


def store_of(book: Path, tokenizer: Tokenizer, tmp_path: Path) -> TextStore:
    data = TextConfig.model_validate({"form": "text", "file": str(book), "held_out": 0.0})
    return open_text(passages(data, "train"), tokenizer, tmp_path)


def task_of(book: Path, tmp_path: Path, **options: Any) -> LanguageModelingTask:
    data = {"form": "text", "file": str(book), "held_out": 0.0, "block": 16, "batch": 4, "prefetch": 0} | options
    model, search = {"family": "gpt", "dim": 16, "heads": 2}, {"method": "sample"}
    run = Run.model_validate({"seed": 3, "data": data, "task": {"name": "language"}, "model": model, "search": search})
    tokenizer = tokenizer_of()
    text = store_of(book, tokenizer, tmp_path)
    return LanguageModelingTask(run, TextSplits((text,), text), system_of(tokenizer))


@pytest.mark.parametrize(("tokens", "block", "stride"), [(5, 8, 8), (8, 8, 3), (50, 8, 8), (50, 8, 3), (51, 8, 1), (9, 8, 8)])
def test_every_token_is_scored_once_with_enough_context(tokens: int, block: int, stride: int) -> None:
    scored: list[int] = []
    for begin, first in windows(tokens, block, stride):
        end = min(begin + block, tokens)
        assert 0 <= begin <= first < end
        assert first == 0 or first - begin >= block - stride
        scored += range(first, end)
    assert scored == list(range(tokens))


@pytest.mark.parametrize("stride", [0, 1, 5])
def test_the_loss_of_a_text_is_the_sum_over_tokens_given_their_window(book: Path, tmp_path: Path, stride: int) -> None:
    tokenizer = tokenizer_of()
    system = system_of(tokenizer)
    ids = store_of(book, tokenizer, tmp_path).ids[:60]
    text = [tokenizer.specials.end, *ids.tolist()]
    (model,) = system.models
    total = 0.0
    with torch.inference_mode():
        for begin, first in windows(60, 16, stride or 16):
            for at in range(first, begin + 16 if begin + 16 < 60 else 60):
                given = torch.tensor([text[begin : at + 1]])
                hidden = model.step(given, model.start(given[:, :0], None, room=0)).hidden[0, -1]
                total -= float(model.project(hidden).log_softmax(-1)[text[at + 1]])
    assert text_loss(system, ids, 16, stride) == pytest.approx(total, rel=1e-5)


def test_the_number_of_logits_at_a_time_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(System, "batch_tokens", 2**20)
    system = system_of(tokenizer_of())
    (model,) = system.models
    project, sizes = model.project, []

    def recorded(hidden: Tensor) -> Tensor:
        sizes.append(hidden[..., 0].numel())
        return project(hidden)

    monkeypatch.setattr(model, "project", recorded)
    text_loss(system, np.full(40_000, 5), 16, 0)
    assert sum(sizes) >= 40_000 and max(sizes) <= 2**14
    sizes.clear()
    score_pairs(system, ["a"] * 6000, ["the dog"] * 6000)
    assert sum(sizes) >= 6000 * 8 and max(sizes) <= 2**14


def test_metrics_are_computed_from_the_loss_of_the_whole_text(book: Path, tmp_path: Path) -> None:
    tokenizer = tokenizer_of()
    system, text = system_of(tokenizer), store_of(book, tokenizer, tmp_path)
    nats = text_loss(system, text.ids, 16, 0)
    assert evaluate_text(system, text, 16, 0) == pytest.approx(
        {
            "loss": nats / len(TEXT),
            "perplexity": math.exp(nats / len(TEXT)),
            "word_perplexity": math.exp(nats / (len(TEXT.split()) + TEXT.count("\n"))),
            "bits_per_character": nats / len(TEXT) / math.log(2),
            "bits_per_byte": nats / len(TEXT.encode()) / math.log(2),
        }
    )
    words = tokenizer_of("spaces")
    figures = evaluate_text(system_of(words), store_of(book, words, tmp_path), 16, 0)
    assert figures["word_perplexity"] == pytest.approx(figures["perplexity"])


def test_every_epoch_cuts_and_shuffles_the_text_differently(book: Path, tmp_path: Path) -> None:
    task = task_of(book, tmp_path)
    assert isinstance(task.train, JoinedText)
    (ids,) = task.train.texts
    for epoch in range(3):
        starts = np.concatenate(task.plan(epoch))
        assert len(set((starts % 16).tolist())) == 1  # blocks side by side
        assert len(set(starts.tolist())) == len(starts) >= len(ids) // 16 - 1 - task.data.batch
        assert starts.tolist() != sorted(starts.tolist())
        assert np.array_equal(starts, np.concatenate(task_of(book, tmp_path).plan(epoch)))
    assert len({int(task.plan(epoch)[0][0] % 16) for epoch in range(9)}) > 1
    batch = task.batch(task.plan(0)[0])
    assert batch.inputs.shape == batch.targets.shape == (4, 16)
    assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    begin = int(task.plan(0)[0][2])
    assert [*batch.inputs[2].tolist(), int(batch.targets[2, -1])] == ids[begin : begin + 17].tolist()


def test_a_stream_continues_from_a_position(book: Path, tmp_path: Path) -> None:
    task = task_of(book, tmp_path)

    def take(stream: Iterator[Any], count: int) -> list[Any]:
        return [next(stream) for _ in range(count)]

    fed = take(task.stream(0, 0), 30)
    assert fed[-1].epoch > 0
    at = fed[16]
    for before, again in zip(fed[17:], take(task.stream(at.epoch, at.cursor), 13), strict=True):
        assert torch.equal(before.batch.inputs, again.batch.inputs)
        assert before[1:] == again[1:]


def test_the_loss_is_the_cross_entropy_and_parts_add_up(book: Path, tmp_path: Path) -> None:
    task = task_of(book, tmp_path)
    (model,) = task.system.models
    batch = task.batch(task.plan(0)[0])
    loss = task.loss(model, batch)
    logits = model.project(model.step(batch.inputs, model.start(batch.inputs[:, :0], None, room=0)).hidden)
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), reduction="sum")
    assert_close(loss.minimize.total, expected)
    assert int(loss.minimize.count) == task.count(batch) == 64
    parts = [task.loss(model, part).minimize.total for part in task.split(batch, 2)]
    assert_close(sum(parts), expected)


def greedy(system: System, prompt: str, length: int) -> str:
    """Greedy generation without a cache, within the window."""
    tokenizer, (model,) = system.target_tokenizer, system.models
    ids = [tokenizer.specials.end, *encode_text(tokenizer, prompt)]
    for _ in range(length):
        given = torch.tensor([ids])
        logits = model.project(model.step(given, model.start(given[:, :0], None, room=0)).hidden[0, -1])
        logits[tokenizer.specials.pad] = -math.inf
        ids.append(int(logits.argmax()))
    return "\n".join(tokenizer.decode_many(split_lines(ids[1:], tokenizer.specials.end)))


def texts_of(system: System, prompt: str, length: int, config: SearchConfig) -> list[str]:
    (continuation,) = generate(system, [prompt], GenerationOptions(length), config)
    return continuation.texts


def split_lines(ids: list[int], end: int) -> list[list[int]]:
    lines: list[list[int]] = [[]]
    for token in ids:
        if token == end:
            lines.append([])
        else:
            lines[-1].append(token)
    return lines


@pytest.mark.parametrize("prompt", ["", "a cat", "a cat\nthe "])
@torch.inference_mode()
def test_greedy_generation_appends_the_most_probable_tokens(prompt: str) -> None:
    system = system_of(tokenizer_of(), window=64)
    assert texts_of(system, prompt, 30, SearchConfig(method="greedy")) == [greedy(system, prompt, 30)]


def test_samples_differ_have_the_given_length_and_are_reproducible() -> None:
    system = system_of(tokenizer_of())
    config = SearchConfig(method="sample", n_best=3, seed=4)
    texts = texts_of(system, "a cat", 40, config)  # longer than the window
    assert len(set(texts)) == 3
    for text in texts:
        assert text.startswith("a cat")
        assert 41 <= len(text.replace("<unk>", "?")) <= 45  # a generated start token is not decoded
    assert texts_of(system, "a cat", 40, config) == texts
    assert texts_of(system, "a cat", 40, config.model_copy(update={"seed": 5})) != texts


def test_the_score_of_an_ending_is_the_sum_over_its_tokens() -> None:
    system = system_of(tokenizer_of(), window=64)
    tokenizer, (model,) = system.target_tokenizer, system.models
    scores = score_endings(system, "the dog ", ["ran", "r", "ran\nto"])
    text = [tokenizer.specials.end, *encode_text(tokenizer, "the dog ran\nto")]
    with torch.inference_mode():
        given = torch.tensor([text[:-1]])
        logs = model.project(model.step(given, model.start(given[:, :0], None, room=0)).hidden)[0].log_softmax(-1)
    each = logs.gather(-1, torch.tensor(text[1:])[:, None]).squeeze(-1)[8:]
    assert scores == pytest.approx([float(each[:3].sum()), float(each[0]), float(each.sum())], abs=1e-4)
    with pytest.raises(heedful.HeedfulError, match="adds no token"):
        score_endings(system, "the dog", [""])


RECIPE = """\
[data]
form = "text"
train = {{ file = "{book}" }}
valid = {{ file = "{book}" }}
test = {{ file = "{book}" }}
block = 16
batch = 4

[tokenizer]
kind = "characters"

[model]
family = "gpt"
dim = 16
layers = 1
heads = 2
position = "rotary"

[task]
name = "language"
sample_length = 5

[training]
steps = 4
save_every = 2
validate_every = 2
report_every = 1

[search]
method = "sample"
"""


def test_a_run_is_trained_continued_evaluated_and_used(book: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, run, other = tmp_path / "recipe.toml", tmp_path / "run", tmp_path / "other"
    recipe.write_text(RECIPE.format(book=book))
    assert heed("train", recipe, "--run", run, "training.steps=2") == 0
    assert heed("train", recipe, "--run", run) == 0
    assert heed("train", recipe, "--run", other) == 0
    capsys.readouterr()
    weights = [heedful.load(folder, "step-4").model.state_dict() for folder in (run, other)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert heed("evaluate", run, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["figures"]["loss"] == pytest.approx(TextGenerator.load(run).evaluate("valid")["loss"])
    assert heed("generate", run, "--prompt", "a cat", "--length", "7", "-s", "n_best=2", "--json") == 0
    texts = json.loads(capsys.readouterr().out)["texts"]
    assert len(texts) == 2 and all(text.startswith("a cat") for text in texts)
    assert "heedful.load" in (run / "README.md").read_text()
    assert heed("translate", run) == 2
    assert "is a run of task 'language', expected a run of task 'translation'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["model.family=transformer"], "given 'transformer', an encoder-decoder; task 'language' expects one of: gpt"),
        (["tokenizer.shared=false"], "tokenizer.shared: given false, but task 'language' has one side only"),
        (["model.position=learned", "model.max_positions=8"], "model.max_positions: given 8, expected at least 16"),
        (["training.metric=bleu"], "expected one of: loss, perplexity, word_perplexity"),
        (["task.name=translation"], "given 'text', but task 'translation' reads 'pairs'"),
    ],
)
def test_conflicting_options_are_an_error(
    book: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: list[str], sentence: str
) -> None:
    recipe = tmp_path / "recipe.toml"
    text = RECIPE.format(book=book)
    if "task.name=translation" in changes:
        text = text.replace("sample_length = 5\n", "")
    recipe.write_text(text)
    assert heed("train", recipe, *changes, "--run", tmp_path / "run") == 2
    assert sentence in capsys.readouterr().err


def mixed_recipe(book: Path, tmp_path: Path, *options: str) -> Path:
    """The recipe with two training corpora: half of the book, and twice a text of other characters."""
    (tmp_path / "digits.txt").write_text("0123456789\n" * 30)
    train = f'train = [{{ file = "{book}", weight = 0.5 }}, {{ file = "{tmp_path}/digits.txt", weight = 2 }}]'
    recipe = tmp_path / "mixed.toml"
    lines = RECIPE.format(book=book).splitlines()
    lines[2] = "\n".join((train, *options))
    recipe.write_text("\n".join(lines))
    return recipe


def test_mixed_corpora_are_drawn_by_weight_and_reported(
    book: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEED_CACHE", str(tmp_path / "cache"))
    recipe, run = mixed_recipe(book, tmp_path), tmp_path / "run"
    characters = len(TEXT), 330
    assert heed("data", "check", recipe) == 0
    checked = capsys.readouterr().out
    assert (
        f"({characters[0]:,} characters, 0.5 passes per epoch)" in checked and "(330 characters, 2 passes per epoch)" in checked
    )
    assert checked.count("per epoch") == 2, "valid and test are not weighted"
    assert heed("train", recipe, "--run", run) == 0
    counts = [round(weight * ((size - 16) // 16)) for weight, size in zip((0.5, 2), characters, strict=True)]
    sentence = f"{counts[0]} + {counts[1]} blocks of the corpora in an epoch"
    assert sentence in capsys.readouterr().err
    assert sentence in (run / "README.md").read_text()
    task = mixed_task(recipe)
    digits = set(task.system.target_tokenizer.encode("0123456789"))
    for epoch in range(2):
        rows = torch.cat([task.batch(starts).inputs for starts in task.plan(epoch)])
        kinds = [len(digits & set(row)) for row in rows.tolist()]
        assert sorted(kinds)[0] == 0 and all(kind in (0, 10) for kind in kinds), "a block is inside one corpus"
        assert abs(sum(kind == 10 for kind in kinds) - counts[1]) < task.data.batch > abs(kinds.count(0) - counts[0])
        assert kinds != sorted(kinds), "in random order"


def mixed_task(recipe: Path) -> LanguageModelingTask:
    run = read_run(recipe).config
    data = TextData(run)
    tokenizer = train_tokenizer(run.tokenizer, data.lines("target"))
    return LanguageModelingTask(run, data.prepare((tokenizer, tokenizer), data.check()), system_of(tokenizer))


def test_a_run_on_mixed_corpora_continues_with_the_same_blocks(book: Path, tmp_path: Path) -> None:
    recipe, run, other = mixed_recipe(book, tmp_path, "temperature = 3"), tmp_path / "run", tmp_path / "other"
    assert heed("train", recipe, "--run", run, "training.steps=2") == 0
    assert heed("train", recipe, "--run", run) == 0
    assert heed("train", recipe, "--run", other) == 0
    weights = [heedful.load(folder, "step-4").model.state_dict() for folder in (run, other)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_corpus_of_a_mixture_that_is_shorter_than_a_block_is_named(
    book: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = mixed_recipe(book, tmp_path)
    (tmp_path / "digits.txt").write_text("0123456\n")
    assert heed("train", recipe, "--run", tmp_path / "run") == 3
    assert f"{tmp_path}/digits.txt has 8 tokens; expected more than data.block, which is 16" in capsys.readouterr().err


def test_streamed_text_is_not_evaluated_and_its_batches_fit_into_a_window(
    book: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, run = mixed_recipe(book, tmp_path, "max_store_megabytes = 1"), tmp_path / "run"
    assert heed("train", recipe, "--run", run, "data.batch=900") == 2
    counts = [round(weight * ((size - 16) // 16)) for weight, size in zip((0.5, 2), (len(TEXT), 330), strict=True)]
    assert f"data.batch: given 900, expected at most {sum(counts)}, the number of blocks" in capsys.readouterr().err
    assert heed("train", recipe, "--run", run) == 0
    assert f"{counts[0]} + {counts[1]} blocks of the corpora in an epoch" in capsys.readouterr().err
    assert heed("evaluate", run, "--split", "train") == 2
    assert "data.max_store_megabytes limits its size on the disk" in capsys.readouterr().err
    assert heed("evaluate", run, "--split", "valid") == 0
    whole = heed("train", recipe, "--run", tmp_path / "whole", "data.max_store_megabytes=1000")
    weights = [heedful.load(folder, "step-4").model.state_dict() for folder in (run, tmp_path / "whole")]
    assert whole == 0 and all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_the_loss_of_training_blocks_is_that_of_the_beginning_of_the_stored_text(book: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(book=book))
    assert heed("train", recipe, "--run", tmp_path / "run") == 0
    generator = TextGenerator.load(tmp_path / "run")
    ids = open_text(passages(generator.run.data, "train"), generator.system.target_tokenizer).ids
    losses = torch.cat([loss() for loss in generator.training_losses(3)])
    rows = torch.from_numpy(ids[: 3 * 16 + 1].astype(np.int64))
    hidden = generator.model.forced(None, None, rows[:-1].view(3, 16)).hidden
    expected = -generator.model.project(hidden).log_softmax(-1).gather(-1, rows[1:].view(3, 16, 1)).sum((1, 2))
    assert_close(losses, expected, rtol=1e-4, atol=1e-4)
