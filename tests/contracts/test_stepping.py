"""Teacher forcing equals decoding by steps, whatever operations are applied to the state in between."""

from __future__ import annotations

import pytest
import torch
from tiny import PAD, WORDS, Pairs, logits_of
from torch import Tensor
from torch.testing import assert_close

from heedful.nn.decoder_state import (
    State,
    clone,
    compact,
    copy_states,
    expand_rows,
    insert_sources,
    select_rows,
    select_sources,
)
from heedful.nn.model import SequenceModel


@pytest.fixture(autouse=True)
def _no_gradients() -> object:
    with torch.inference_mode():
        yield


def run_steps(
    model: SequenceModel, tokens: Tensor, state: State, mask: Tensor | None = None, chunk: int = 1
) -> tuple[Tensor, State]:
    """Run `tokens` in chunks -> logits (rows, time, vocab) and the state after them."""
    logits = []
    for begin in range(0, tokens.shape[1], chunk):
        chunk_slice = slice(begin, begin + chunk)
        step = model.step(tokens[:, chunk_slice], state, None if mask is None else mask[:, chunk_slice])
        state = step.state
        logits.append(model.project(step.hidden))
    return torch.cat(logits, dim=1), state


def teacher_forced(model: SequenceModel, pairs: Pairs, tokens: Tensor, sources: list[int]) -> Tensor:
    """Teacher-forced logits of each row with its own source."""
    return logits_of(model, Pairs(pairs.source[sources], pairs.mask[sources], tokens))


def test_stepping_equals_teacher_forcing(model: SequenceModel, pairs: Pairs) -> None:
    """By one token, by chunks, and the whole target at once."""
    expected = logits_of(model, pairs)
    for chunk in (1, 3, 7):
        state = model.start(pairs.source, pairs.mask, room=9)  # more slots than are used
        stepped, _ = run_steps(model, pairs.target, state, chunk=chunk)
        assert_close(stepped, expected, atol=1e-5, rtol=0)


def test_the_cache_may_be_filled_completely(model: SequenceModel, pairs: Pairs) -> None:
    stepped, _ = run_steps(model, pairs.target, model.start(pairs.source, pairs.mask, room=7), chunk=2)
    assert_close(stepped, logits_of(model, pairs), atol=1e-5, rtol=0)


def test_left_padding_of_a_prompt_has_no_effect(model: SequenceModel, pairs: Pairs) -> None:
    lengths = torch.tensor([5, 2, 3])
    mask = torch.arange(5) >= 5 - lengths[:, None]
    prompt = pairs.target[:, :5].masked_fill(~mask, PAD)
    _, state = run_steps(model, prompt, model.start(pairs.source, pairs.mask, room=7), mask, chunk=5)
    following, _ = run_steps(model, pairs.target[:, 5:], state)  # (3, 2, vocab)
    for row, length in enumerate(lengths.tolist()):
        alone = teacher_forced(model, pairs, pairs.target[row : row + 1, 5 - length :], [row])
        assert_close(following[row], alone[0, -2:], atol=1e-5, rtol=0)


def test_padding_inside_a_row_has_no_effect(model: SequenceModel, pairs: Pairs) -> None:
    real = torch.tensor([[0, 0, 1, 1, 0, 1, 1], [1, 1, 1, 0, 0, 0, 1], [1, 0, 1, 0, 1, 1, 0]]).bool()
    tokens = pairs.target.masked_fill(~real, PAD)
    logits, _ = run_steps(model, tokens, model.start(pairs.source, pairs.mask, room=7), real, chunk=3)
    for row in range(3):
        alone = teacher_forced(model, pairs, pairs.target[row, real[row]][None], [row])
        assert_close(logits[row, real[row]], alone[0], atol=1e-5, rtol=0)


def test_a_mask_may_follow_steps_without_a_mask(model: SequenceModel, pairs: Pairs) -> None:
    real = torch.tensor([[1, 0, 1], [0, 1, 1], [1, 1, 0]]).bool()
    _, state = run_steps(model, pairs.target[:, :4], model.start(pairs.source, pairs.mask, room=7), chunk=4)
    logits, _ = run_steps(model, pairs.target[:, 4:], state, real, chunk=3)
    for row in range(3):
        words = torch.cat((pairs.target[row, :4], pairs.target[row, 4:][real[row]]))
        assert_close(logits[row, real[row]], teacher_forced(model, pairs, words[None], [row])[0, 4:], atol=1e-5, rtol=0)


def test_beams_share_the_memory_of_their_source_and_may_be_reordered(model: SequenceModel, pairs: Pairs) -> None:
    generator = torch.Generator().manual_seed(3)
    first, second = torch.randint(WORDS.start, WORDS.stop, (2, 6, 3), generator=generator)  # (rows, time): two rows a source
    state = expand_rows(model.start(pairs.source, pairs.mask, room=12), beam=2)
    before, state = run_steps(model, first, state)
    order = torch.tensor([1, 0, 2, 2, 5, 4])  # within a source
    after, _ = run_steps(model, second, select_rows(state, order), chunk=3)
    expected = teacher_forced(model, pairs, torch.cat((first[order], second), dim=1), [0, 0, 1, 1, 2, 2])
    assert_close(before[order], expected[:, :3], atol=1e-5, rtol=0)
    assert_close(after, expected[:, 3:], atol=1e-5, rtol=0)


def test_sources_can_be_dropped_and_repeated(model: SequenceModel, pairs: Pairs) -> None:
    generator = torch.Generator().manual_seed(4)
    first, second = torch.randint(WORDS.start, WORDS.stop, (2, 6, 3), generator=generator)
    state = expand_rows(model.start(pairs.source, pairs.mask, room=12), beam=2)
    _, state = run_steps(model, first, state)
    after, _ = run_steps(model, second, select_sources(state, torch.tensor([2, 0, 0]), beam=2))
    history = torch.cat((first[[4, 5, 0, 1, 0, 1]], second), dim=1)
    assert_close(after, teacher_forced(model, pairs, history, [2, 2, 0, 0, 0, 0])[:, 3:], atol=1e-5, rtol=0)


def test_selected_rows_keep_their_padding(model: SequenceModel, pairs: Pairs) -> None:
    real = torch.tensor([[1, 1, 1], [0, 1, 1], [0, 0, 1]]).bool()
    _, state = run_steps(model, pairs.target[:, :3], model.start(pairs.source, pairs.mask, room=5), real, chunk=3)
    after, _ = run_steps(model, pairs.target[[0, 1], 3:5], select_sources(state, torch.tensor([2, 1]), beam=1))
    for row, (source, first) in enumerate([(2, 2), (1, 1)]):
        words = torch.cat((pairs.target[source, first:3], pairs.target[row, 3:5]))
        assert_close(after[row], teacher_forced(model, pairs, words[None], [source])[0, -2:], atol=1e-5, rtol=0)


def test_a_clone_branches_from_its_state(model: SequenceModel, pairs: Pairs) -> None:
    _, state = run_steps(model, pairs.target[:, :4], model.start(pairs.source, pairs.mask, room=7), chunk=4)
    branch = clone(state)
    other = pairs.target[:, 4:].flip(1)
    assert not torch.equal(other, pairs.target[:, 4:])
    original, _ = run_steps(model, pairs.target[:, 4:], state)
    branch_logits, _ = run_steps(model, other, branch)
    assert_close(original, logits_of(model, pairs)[:, 4:], atol=1e-5, rtol=0)
    branched = pairs._replace(target=torch.cat((pairs.target[:, :4], other), dim=1))
    assert_close(branch_logits, logits_of(model, branched)[:, 4:], atol=1e-5, rtol=0)


def test_a_source_may_replace_another_during_decoding(model: SequenceModel, pairs: Pairs) -> None:
    """Two beams; after three tokens a shorter source replaces one, and in the end unused slots are freed."""
    generator = torch.Generator().manual_seed(5)
    first, second, third = torch.randint(WORDS.start, WORDS.stop, (3, 4, 3), generator=generator)  # (rows, time) each
    mask = torch.ones_like(pairs.mask[:2])
    state = expand_rows(model.start(pairs.source[:2], mask & pairs.mask[:2], room=20), beam=2)
    _, state = run_steps(model, first, state)
    insert_sources(
        state, model.start(pairs.source[2:, :4], torch.ones(1, 4, dtype=torch.bool), room=0), torch.tensor([0]), beam=2
    )
    during, state = run_steps(model, second[:, :2], state)
    _, state = run_steps(model, second[:, 2:], state)
    inserted = teacher_forced(model, pairs, torch.cat((second[:2], third[:2]), dim=1), [2, 2])
    neighbor = teacher_forced(model, pairs, torch.cat((first[2:], second[2:], third[2:]), dim=1), [1, 1])
    assert_close(during, torch.cat((inserted[:, :2], neighbor[:, 3:5])), atol=1e-5, rtol=0)
    alone = select_sources(state, torch.tensor([0]), beam=2)
    after, _ = run_steps(model, third, state)
    assert_close(after, torch.cat((inserted[:, 3:], neighbor[:, 6:])), atol=1e-5, rtol=0)
    after, _ = run_steps(model, third[:2], compact(alone, torch.ones(1, 2, dtype=torch.bool)))
    assert_close(after, inserted[:, 3:], atol=1e-5, rtol=0)


def test_slots_are_reused_in_turn_by_steps_that_write_to_fixed_tensors(model: SequenceModel, pairs: Pairs) -> None:
    """As captured steps do: two slots are free before the first is reused."""
    state = model.start(pairs.source, pairs.mask, room=7)
    state = state._replace(filled=torch.tensor(5))
    expected = logits_of(model, pairs)
    for time in range(7):
        step = model.step(pairs.target[:, time : time + 1], state)
        copy_states(state, step.state)
        assert_close(model.project(step.hidden)[:, 0], expected[:, time], atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_stepping_equals_teacher_forcing_in_half_precision(plain: SequenceModel, pairs: Pairs, dtype: torch.dtype) -> None:
    exact = logits_of(plain, pairs)
    with torch.autocast("cpu", dtype=dtype):
        whole = logits_of(plain, pairs)
        stepped, _ = run_steps(plain, pairs.target, plain.start(pairs.source, pairs.mask, room=7), chunk=3)
    tolerance = 0.02 * float(exact.abs().max()) if dtype == torch.float16 else 0.1 * float(exact.abs().max())
    assert_close(whole.float(), exact, atol=tolerance, rtol=0)
    assert_close(stepped.float(), exact, atol=tolerance, rtol=0)
