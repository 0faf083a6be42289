"""Every parameter has a gradient, and a model can overfit one batch and translate it."""

from __future__ import annotations

import pytest
import torch
from tiny import CONTRACT_FAMILIES, END, START, TOKEN_READERS, VOCAB, Pairs, logits_of, tiny_config
from torch.nn import functional

from heedful.nn.attention import NoHeads
from heedful.nn.model import SequenceModel
from heedful.search import SearchConfig, SourceBatch, search_batch, step_function


def test_every_parameter_receives_a_gradient(model: SequenceModel, pairs: Pairs) -> None:
    predicted = logits_of(model, pairs).flatten(0, 1)  # (tokens, vocab)
    loss = functional.cross_entropy(predicted, pairs.target.roll(-1, 1).flatten())
    names, parameters = zip(*model.named_parameters(), strict=True)
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    without = [name for name, gradient in zip(names, gradients, strict=True) if gradient is None or not gradient.any()]
    # The output of attention without heads does not depend on its input, nor on a norm before it.
    unused = [f"{name}_residual.norm." for name, module in model.named_modules() if isinstance(module, NoHeads)]
    assert names
    assert [name for name in without if not name.startswith(tuple(unused))] == []


@pytest.mark.parametrize("family", CONTRACT_FAMILIES)
def test_a_model_overfits_one_batch_and_translates_it(family: str, pairs: Pairs) -> None:
    model: SequenceModel = TOKEN_READERS[family](tiny_config(family, {"dropout": 0.0}), VOCAB, VOCAB)
    adam = torch.optim.Adam(model.parameters(), lr=1e-2)
    target_in = functional.pad(pairs.target, (1, 0), value=START)
    target_out = functional.pad(pairs.target, (0, 1), value=END)
    for _ in range(80):
        logits = logits_of(model, pairs._replace(target=target_in))
        if torch.equal(logits.argmax(-1), target_out):
            break
        adam.zero_grad()
        torch.autograd.backward(functional.cross_entropy(logits.flatten(0, 1), target_out.flatten()))
        adam.step()
    model.eval()
    with torch.inference_mode():
        group = SourceBatch(model.start(pairs.source, pairs.mask, room=10), torch.full((3,), 10), range(3), [[]] * 3)
        results = search_batch(step_function(model), group, SearchConfig(method="greedy"), start=START, end=END)
    assert [best.tokens for (best,) in results] == pairs.target.tolist()
