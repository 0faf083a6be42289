"""Windows, the tokens of an answer, and the best span."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import heedful
from heedful.data.spans import Answer, Question
from heedful.errors import ConfigError, DataError
from heedful.tasks.span.data import SpanData, windows_of
from heedful.tasks.span.evaluate import FoundSpan, best_of_windows, find_spans
from heedful.tasks.span.model import best_spans, span_losses
from heedful.text.tokenizer import TokenizerConfig
from heedful.text.train import train_tokenizer

CONTEXT = "the dog is in the red car, and the cat is out. The key: it's under the old box!"


def test_the_best_span_is_that_of_an_exhaustive_search() -> None:
    torch.manual_seed(1)
    logits = torch.randn(6, 2, 9)
    logits[0, :, 3:6] = -math.inf
    logits[1, 0, 0] = 50.0  # the start token is no answer
    for most in (1, 3, 20):
        found = best_spans(logits, most)
        for row, chances in enumerate(logits.softmax(-1).tolist()):
            spans = {(i, j): chances[0][i] * chances[1][j] for i in range(1, 9) for j in range(i, min(i + most, 9))}
            best = max(spans, key=lambda span: spans[span])
            assert (int(found.first[row]), int(found.last[row])) == best
            assert math.exp(float(found.log_probability[row])) == pytest.approx(spans[best], rel=1e-4)


def test_the_loss_is_the_mean_of_both_tokens() -> None:
    torch.manual_seed(1)
    logits = torch.randn(2, 2, 5)
    chances = logits.softmax(-1)
    losses = span_losses(logits, torch.tensor([1, 0]), torch.tensor([4, 0]))
    expected = [-(chances[0, 0, 1] * chances[0, 1, 4]).log() / 2, -(chances[1, 0, 0] * chances[1, 1, 0]).log() / 2]
    torch.testing.assert_close(losses, torch.stack(expected))


@pytest.mark.parametrize(("count", "room", "stride"), [(10, 10, 3), (11, 10, 3), (40, 7, 5), (40, 4, 9), (0, 5, 2)])
def test_windows_cover_all_tokens(count: int, room: int, stride: int) -> None:
    windows = list(windows_of(count, room, stride))
    assert {at for begin, end in windows for at in range(begin, end)} == set(range(count))
    assert all(end - begin <= room for begin, end in windows)
    assert all(after - before == min(stride, room) for (before, _), (after, _) in pairwise(windows))


@pytest.mark.parametrize("kind", ["words", "characters", "bytes"])
def test_the_tokens_of_an_answer_have_its_characters(kind: str, tiny_runs: dict[str, Path]) -> None:
    run = heedful.load(tiny_runs["span"]).run
    vocab = {} if kind == "characters" else {"vocab": 300, "min_frequency": 1}
    tokenizer = train_tokenizer(TokenizerConfig(kind=kind, **vocab), [CONTEXT, "where is the key?"])  # type: ignore[arg-type]
    data = SpanData(run.model_copy(update={"data": run.data.model_copy(update={"max_length": 48})}))  # type: ignore[attr-defined]
    for answer in ("in the red car", "out", "under the old box", "it", "the dog"):
        rows = data.encode([Question("where?", CONTEXT, (Answer(answer, CONTEXT.index(answer)),))], tokenizer).rows
        inside = [row for row in rows if row.first]
        assert inside and (kind != "characters" or len(inside) < len(rows))
        for row in inside:
            start, end = row.spans[row.first - row.second][0], row.spans[row.last - row.second][1]
            assert CONTEXT[start:end] == answer
            assert row.tokens[row.second - 1] == tokenizer.specials.end and len(row.tokens) <= 48
            batch = data.collate(rows, tokenizer.specials.pad)
            assert bool(
                batch.choices.gather(1, batch.first[:, None]).all() and batch.choices.gather(1, batch.last[:, None]).all()
            )


def test_an_answer_is_the_best_of_all_windows(tiny_runs: dict[str, Path]) -> None:
    extractor = heedful.SpanExtractor.load(tiny_runs["span"])
    question, long = "where is the cat?", "the dog is in the car and " * 6 + "the cat is in the box"
    (answer,) = extractor.predictions([(question, long)])
    assert answer.text == long[answer.start : answer.end] != ""
    rows = extractor.encoded([Question(question, long, ())]).rows
    assert len(rows) > 2
    single = [find_spans(extractor.extractor, extractor.system, extractor.spans, [row])[0] for row in rows]
    best = max(single, key=lambda span: span.log_probability)
    assert (answer.start, answer.end) == (best.start, best.end)
    assert answer.probability == pytest.approx(math.exp(best.log_probability), rel=1e-4)
    together = find_spans(extractor.extractor, extractor.system, extractor.spans, rows)
    assert best_of_windows(rows, together)[0][1:3] == (best.start, best.end)
    other = [row._replace(example=at % 2) for at, row in enumerate(rows[:4])]
    spans = [FoundSpan(-float(at), at, at + 1, 0.0) for at in (3, 2, 1, 4)]
    assert best_of_windows(other, spans) == [spans[2], spans[1]]


def test_wrong_inputs_are_errors(tiny_runs: dict[str, Path]) -> None:
    extractor = heedful.SpanExtractor.load(tiny_runs["span"])
    for wrong in ("where is the cat?", "where?\t ", ("where?",), ("where?", 3)):
        with pytest.raises(DataError, match=r"input 1 is .*; expected a question and a context"):
            extractor.predict([wrong])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="has no options"):
        extractor.predict("where?\tthere", top=3)
