"""Hierarchical attention: both levels sum to one, padding has no influence, and it equals the formulas of the paper."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import pytest
import torch
from tiny import PAD, VOCAB, WORDS, perturb
from torch import Tensor
from torch.testing import assert_close

from heedful.models.family import SentenceGrid
from heedful.models.han import Han, HanConfig
from heedful.nn.grid import grid_sizes, make_grid
from heedful.nn.hooks import record


class Documents(NamedTuple):
    tokens: Tensor
    mask: Tensor
    segments: Tensor
    spelling: Tensor | None

    def encode(self, model: Han) -> Tensor:
        return model.encode(self.tokens, self.mask, segments=self.segments, spelling=self.spelling)

    def cut(self, row: int, time: int) -> Documents:
        """One document without padding."""
        parts = (None if part is None else part[row : row + 1, :time] for part in self)
        return Documents(*cast(Any, parts))


LENGTHS = (9, 5)
SEGMENTS = torch.tensor([[0, 0, 0, 1, 2, 2, 2, 2, 2], [0, 0, 1, 1, 1, 0, 0, 0, 0]])


@pytest.fixture(params=[False, True], ids=["words", "characters"])
def model(request: pytest.FixtureRequest) -> Han:
    config = HanConfig(dim=8, embedding=6, context=5, dropout=0.0, characters=request.param)
    return perturb(Han(config, VOCAB)).eval()


@pytest.fixture
def documents(model: Han) -> Documents:
    """Documents of three and two sentences, nine and five words."""
    mask = torch.arange(9) < torch.tensor(LENGTHS)[:, None]
    tokens = torch.randint(WORDS.start, WORDS.stop, (2, 9)).masked_fill(~mask, PAD)
    letters = torch.randint(1, 257, (2, 9, 4)) * (torch.arange(4) < torch.randint(1, 5, (2, 9, 1)))
    return Documents(tokens, mask, SEGMENTS, letters if model.config.characters else None)


@torch.inference_mode()
def test_padding_and_other_documents_change_nothing(model: Han, documents: Documents) -> None:
    batched = documents.encode(model)
    assert batched.shape == (2, 1, 8)
    for row, length in enumerate(LENGTHS):
        assert_close(documents.cut(row, length).encode(model), batched[row : row + 1], atol=1e-6, rtol=0)
    noisy = documents._replace(tokens=documents.tokens.masked_fill(~documents.mask, WORDS[0]))
    assert torch.equal(noisy.encode(model), batched)


def test_the_weights_of_every_level_sum_to_one_and_every_parameter_has_a_finite_gradient(
    model: Han, documents: Documents
) -> None:
    poolings = model.poolings()
    assert [one.level for one in poolings][-2:] == ["words", "sentences"]
    with record(model, *(one.weights for one in poolings)) as recorded:
        loss = (documents.encode(model) @ torch.randn(8)).sum()
    totals = [recorded[one.weights].sum(-1) for one in poolings]
    assert_close(totals[-1], torch.ones(2))
    assert_close(totals[-2].view(2, 3), torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]))  # the last has two sentences
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    assert all(bool(gradient.isfinite().all()) and bool(gradient.any()) for gradient in gradients)


@torch.inference_mode()
def test_a_document_equals_the_formulas_of_the_paper(model: Han, documents: Documents) -> None:
    """u = tanh(W h + b), a = softmax(u . v), s = sum a h on every level, one word and one sentence at a time."""
    one, sentences = documents.cut(0, 9), []
    x = model.embedding(one.tokens)  # (1, time, embedding)
    if one.spelling is not None and model.bytes is not None and model.join is not None:
        words = [pooled(model.characters, model.bytes(word[word > 0])[None]) for word in one.spelling[0]]
        x = model.join(torch.cat((x, torch.cat(words)[None]), dim=-1))
    for sentence in range(3):
        sentences.append(pooled(model.words, x[:, one.segments[0] == sentence]))
    expected = pooled(model.sentences, torch.stack(sentences, 1))
    assert_close(one.encode(model)[:, 0], expected, atol=1e-6, rtol=0)


def pooled(level: Any, x: Tensor) -> Tensor:
    """x (1, time, inputs) -> (1, dim)."""
    inputs = x if level.map is None else level.map(x)
    ahead = level.recurrent.forwards(inputs, None)[0]
    back = level.recurrent.backwards(inputs.flip(1), None)[0].flip(1)
    h = torch.cat((ahead, back), -1)[0]  # (time, dim)
    u = torch.tanh(h @ level.pooling.map.weight.T + level.pooling.map.bias)
    a = torch.softmax(u @ level.pooling.query, 0)
    return (a[:, None] * h).sum(0, keepdim=True)


def test_the_grid_has_the_sizes_that_occur_and_every_token_once() -> None:
    mask = torch.arange(9) < torch.tensor(LENGTHS)[:, None]
    grid = make_grid(SEGMENTS, mask, grid_sizes(SEGMENTS, mask, SentenceGrid(40, 50)))
    assert (grid.sentences, grid.words) == (3, 5)
    moved = grid.move(torch.arange(1.0, 10.0).expand(2, 9)[..., None])[..., 0]
    assert moved[0].tolist() == [[1, 2, 3, 0, 0], [4, 0, 0, 0, 0], [5, 6, 7, 8, 9]]
    assert moved[1].tolist() == [[1, 2, 0, 0, 0], [3, 4, 5, 0, 0], [0, 0, 0, 0, 0]]
