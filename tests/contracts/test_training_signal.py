"""Every parameter learns, and one batch can be learned by heart and is then translated back."""

from __future__ import annotations

import pytest
import torch
from tiny import END, SPEAKING, START, VOCAB, Pairs, Speaker, logits_of, tiny_config
from torch.nn import functional

from heedful.models import MODELS
from heedful.search import SearchConfig, SourceBatch, search_batch, step_function


def test_every_parameter_receives_a_gradient(model: Speaker, pairs: Pairs) -> None:
    predicted = logits_of(model, pairs).flatten(0, 1)  # (tokens, vocab)
    loss = functional.cross_entropy(predicted, pairs.target.roll(-1, 1).flatten())
    names, parameters = zip(*model.named_parameters(), strict=True)
    slopes = torch.autograd.grad(loss, parameters, allow_unused=True)
    silent = [name for name, slope in zip(names, slopes, strict=True) if slope is None or not slope.any()]
    assert names
    assert silent == []


@pytest.mark.parametrize("family", SPEAKING)
def test_one_batch_is_learned_by_heart_and_translated_back(family: str, pairs: Pairs) -> None:
    model: Speaker = MODELS[family](tiny_config(family, {"dropout": 0.0}), VOCAB, VOCAB)
    adam = torch.optim.Adam(model.parameters(), lr=1e-2)
    given = functional.pad(pairs.target, (1, 0), value=START)
    wanted = functional.pad(pairs.target, (0, 1), value=END)
    for _ in range(80):
        loss = functional.cross_entropy(logits_of(model, pairs._replace(target=given)).flatten(0, 1), wanted.flatten())
        adam.zero_grad()
        torch.autograd.backward(loss)
        adam.step()
    model.eval()
    with torch.inference_mode():
        group = SourceBatch(model.start(pairs.source, pairs.mask, room=10), torch.full((3,), 10), range(3), [[]] * 3)
        said = search_batch(step_function(model), group, SearchConfig(method="greedy"), start=START, end=END)
    assert [best.tokens for (best,) in said] == pairs.target.tolist()
