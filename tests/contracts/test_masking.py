"""Outputs do not depend on later tokens, on padding, or on other rows of the batch."""

from __future__ import annotations

import torch
from tiny import PAD, WORDS, Pairs, logits_of
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.nn.experts import Experts
from heedful.nn.model import SequenceModel


def tolerance(model: SequenceModel) -> float:
    """Zero, except with experts: the rounding of their products depends on the number of tokens."""
    return 1e-6 if any(isinstance(module, Experts) for module in model.modules()) else 0.0


@torch.inference_mode()
def test_a_later_token_cannot_change_earlier_logits(model: SequenceModel, pairs: Pairs) -> None:
    before = logits_of(model, pairs)
    for time in range(pairs.target.shape[1]):
        target = pairs.target.clone()
        target[:, time] = torch.where(target[:, time] == WORDS[0], WORDS[1], WORDS[0])
        after = logits_of(model, pairs._replace(target=target))
        assert_close(after[:, :time], before[:, :time], atol=tolerance(model), rtol=0)
        assert not torch.allclose(after[:, time], before[:, time])


def test_the_gradient_to_later_tokens_is_exactly_zero(model: SequenceModel, pairs: Pairs) -> None:
    embedded: list[Tensor] = []

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], vectors: Tensor) -> None:
        if inputs[0].data_ptr() == pairs.target.data_ptr():
            embedded.append(vectors)

    hooks = [module.register_forward_hook(keep) for module in model.modules() if isinstance(module, nn.Embedding)]
    hidden = model.step(pairs.target, model.start(pairs.source, pairs.mask, room=0)).hidden
    for hook in hooks:
        hook.remove()
    assert len(embedded) == 1
    direction = torch.randn(hidden.shape[-1])
    for time in range(hidden.shape[1]):
        (gradient,) = torch.autograd.grad((hidden[:, time] @ direction).sum(), embedded[0], retain_graph=True)
        assert gradient[:, time].abs().min(-1).values.max() > 0
        assert not gradient[:, time + 1 :].any()


@torch.inference_mode()
def test_padding_the_source_further_changes_nothing(model: SequenceModel, pairs: Pairs) -> None:
    more = nn.functional.pad(pairs.source, (0, 5), value=PAD)
    padded = Pairs(more, nn.functional.pad(pairs.mask, (0, 5), value=False), pairs.target)
    assert_close(logits_of(model, padded), logits_of(model, pairs), atol=1e-5, rtol=0)


@torch.inference_mode()
def test_a_sentence_alone_equals_the_sentence_in_a_batch(model: SequenceModel, pairs: Pairs) -> None:
    batched = logits_of(model, pairs)
    for row, length in enumerate(pairs.mask.sum(-1).tolist()):
        state = model.start(pairs.source[row : row + 1, :length], None, room=0)
        alone = model.project(model.step(pairs.target[row : row + 1], state).hidden)
        assert_close(alone[0], batched[row], atol=1e-5, rtol=0)


@torch.inference_mode()
def test_the_content_of_padding_has_no_effect(model: SequenceModel, pairs: Pairs) -> None:
    other = torch.where(pairs.mask, pairs.source, WORDS[3])
    assert not torch.equal(other, pairs.source)
    assert_close(logits_of(model, pairs._replace(source=other)), logits_of(model, pairs), atol=tolerance(model), rtol=0)


@torch.inference_mode()
def test_outputs_depend_on_the_source(model: SequenceModel, pairs: Pairs) -> None:
    other = pairs.source.clone()
    other[:, 1] = torch.where(other[:, 1] == WORDS[0], WORDS[1], WORDS[0])
    difference = logits_of(model, pairs._replace(source=other)) - logits_of(model, pairs)
    assert difference.abs().amax((1, 2)).min() > 1e-3  # in every row
