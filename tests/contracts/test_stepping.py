"""Parallel training and step-by-step inference are the same function, whatever happens to the state in between."""

from __future__ import annotations

import pytest
import torch
from tiny import PAD, WORDS, Pairs, Speaker, logits_of
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


@pytest.fixture(autouse=True)
def _no_gradients() -> object:
    with torch.inference_mode():
        yield


def speak(model: Speaker, tokens: Tensor, state: State, mask: Tensor | None = None, chunk: int = 1) -> tuple[Tensor, State]:
    """Feed `tokens` in chunks: logits (rows, time, vocab) and the state after them."""
    said = []
    for begin in range(0, tokens.shape[1], chunk):
        now = slice(begin, begin + chunk)
        step = model.step(tokens[:, now], state, None if mask is None else mask[:, now])
        state = step.state
        said.append(model.project(step.hidden))
    return torch.cat(said, dim=1), state


def at_once(model: Speaker, pairs: Pairs, tokens: Tensor, sources: list[int]) -> Tensor:
    """Teacher forcing of each row, the row's own source standing beside it."""
    return logits_of(model, Pairs(pairs.source[sources], pairs.mask[sources], tokens))


def test_stepping_equals_teacher_forcing(model: Speaker, pairs: Pairs) -> None:
    whole = logits_of(model, pairs)
    for chunk in (1, 3, 7):
        state = model.start(pairs.source, pairs.mask, room=9)  # more room than is used
        assert_close(speak(model, pairs.target, state, chunk=chunk)[0], whole, atol=1e-5, rtol=0)


def test_every_token_may_use_all_the_room(model: Speaker, pairs: Pairs) -> None:
    stepped, _ = speak(model, pairs.target, model.start(pairs.source, pairs.mask, room=7), chunk=2)
    assert_close(stepped, logits_of(model, pairs), atol=1e-5, rtol=0)


def test_a_left_padded_prompt_is_the_prompt(model: Speaker, pairs: Pairs) -> None:
    lengths = torch.tensor([5, 2, 3])
    mask = torch.arange(5) >= 5 - lengths[:, None]
    prompt = pairs.target[:, :5].masked_fill(~mask, PAD)
    _, state = speak(model, prompt, model.start(pairs.source, pairs.mask, room=7), mask, chunk=5)
    following, _ = speak(model, pairs.target[:, 5:], state)  # (3, 2, vocab)
    for row, length in enumerate(lengths.tolist()):
        alone = at_once(model, pairs, pairs.target[row : row + 1, 5 - length :], [row])
        assert_close(following[row], alone[0, -2:], atol=1e-5, rtol=0)


def test_holes_in_a_row_are_as_if_nothing_had_been_said(model: Speaker, pairs: Pairs) -> None:
    real = torch.tensor([[0, 0, 1, 1, 0, 1, 1], [1, 1, 1, 0, 0, 0, 1], [1, 0, 1, 0, 1, 1, 0]]).bool()
    tokens = pairs.target.masked_fill(~real, PAD)
    said, _ = speak(model, tokens, model.start(pairs.source, pairs.mask, room=7), real, chunk=3)
    for row in range(3):
        alone = at_once(model, pairs, pairs.target[row, real[row]][None], [row])
        assert_close(said[row, real[row]], alone[0], atol=1e-5, rtol=0)


def test_a_mask_may_come_after_tokens_that_needed_none(model: Speaker, pairs: Pairs) -> None:
    real = torch.tensor([[1, 0, 1], [0, 1, 1], [1, 1, 0]]).bool()
    _, state = speak(model, pairs.target[:, :4], model.start(pairs.source, pairs.mask, room=7), chunk=4)
    said, _ = speak(model, pairs.target[:, 4:], state, real, chunk=3)
    for row in range(3):
        words = torch.cat((pairs.target[row, :4], pairs.target[row, 4:][real[row]]))
        assert_close(said[row, real[row]], at_once(model, pairs, words[None], [row])[0, 4:], atol=1e-5, rtol=0)


def test_beams_share_the_memory_of_their_source_and_may_change_places(model: Speaker, pairs: Pairs) -> None:
    draws = torch.Generator().manual_seed(3)
    first, second = torch.randint(WORDS.start, WORDS.stop, (2, 6, 3), generator=draws)  # (rows, time): two rows a source
    state = expand_rows(model.start(pairs.source, pairs.mask, room=12), beam=2)
    before, state = speak(model, first, state)
    order = torch.tensor([1, 0, 2, 2, 5, 4])  # within a source
    after, _ = speak(model, second, select_rows(state, order), chunk=3)
    expected = at_once(model, pairs, torch.cat((first[order], second), dim=1), [0, 0, 1, 1, 2, 2])
    assert_close(before[order], expected[:, :3], atol=1e-5, rtol=0)
    assert_close(after, expected[:, 3:], atol=1e-5, rtol=0)


def test_sources_can_be_dropped_and_repeated(model: Speaker, pairs: Pairs) -> None:
    draws = torch.Generator().manual_seed(4)
    first, second = torch.randint(WORDS.start, WORDS.stop, (2, 6, 3), generator=draws)
    state = expand_rows(model.start(pairs.source, pairs.mask, room=12), beam=2)
    _, state = speak(model, first, state)
    after, _ = speak(model, second, select_sources(state, torch.tensor([2, 0, 0]), beam=2))
    history = torch.cat((first[[4, 5, 0, 1, 0, 1]], second), dim=1)
    assert_close(after, at_once(model, pairs, history, [2, 2, 0, 0, 0, 0])[:, 3:], atol=1e-5, rtol=0)


def test_rows_with_holes_are_selected_with_their_holes(model: Speaker, pairs: Pairs) -> None:
    real = torch.tensor([[1, 1, 1], [0, 1, 1], [0, 0, 1]]).bool()
    _, state = speak(model, pairs.target[:, :3], model.start(pairs.source, pairs.mask, room=5), real, chunk=3)
    after, _ = speak(model, pairs.target[[0, 1], 3:5], select_sources(state, torch.tensor([2, 1]), beam=1))
    for row, (source, first) in enumerate([(2, 2), (1, 1)]):
        words = torch.cat((pairs.target[source, first:3], pairs.target[row, 3:5]))
        assert_close(after[row], at_once(model, pairs, words[None], [source])[0, -2:], atol=1e-5, rtol=0)


def test_a_clone_branches_from_its_state(model: Speaker, pairs: Pairs) -> None:
    _, state = speak(model, pairs.target[:, :4], model.start(pairs.source, pairs.mask, room=7), chunk=4)
    branch = clone(state)
    other = pairs.target[:, 4:].flip(1)
    assert not torch.equal(other, pairs.target[:, 4:])
    here, _ = speak(model, pairs.target[:, 4:], state)
    there, _ = speak(model, other, branch)
    assert_close(here, logits_of(model, pairs)[:, 4:], atol=1e-5, rtol=0)
    branched = pairs._replace(target=torch.cat((pairs.target[:, :4], other), dim=1))
    assert_close(there, logits_of(model, branched)[:, 4:], atol=1e-5, rtol=0)


def test_a_source_may_take_the_place_of_another_while_its_neighbor_goes_on(model: Speaker, pairs: Pairs) -> None:
    """Two beams; after three tokens a shorter source comes in, and in the end the slots of those who left are cleared away."""
    draws = torch.Generator().manual_seed(5)
    first, second, third = torch.randint(WORDS.start, WORDS.stop, (3, 4, 3), generator=draws)  # (rows, time) each
    mask = torch.ones_like(pairs.mask[:2])
    state = expand_rows(model.start(pairs.source[:2], mask & pairs.mask[:2], room=20), beam=2)
    _, state = speak(model, first, state)
    insert_sources(
        state, model.start(pairs.source[2:, :4], torch.ones(1, 4, dtype=torch.bool), room=0), torch.tensor([0]), beam=2
    )
    during, state = speak(model, second[:, :2], state)
    _, state = speak(model, second[:, 2:], state)
    newcomer = at_once(model, pairs, torch.cat((second[:2], third[:2]), dim=1), [2, 2])
    neighbor = at_once(model, pairs, torch.cat((first[2:], second[2:], third[2:]), dim=1), [1, 1])
    assert_close(during, torch.cat((newcomer[:, :2], neighbor[:, 3:5])), atol=1e-5, rtol=0)
    alone = select_sources(state, torch.tensor([0]), beam=2)
    after, _ = speak(model, third, state)
    assert_close(after, torch.cat((newcomer[:, 3:], neighbor[:, 6:])), atol=1e-5, rtol=0)
    after, _ = speak(model, third[:2], compact(alone, torch.ones(1, 2, dtype=torch.bool)))
    assert_close(after, newcomer[:, 3:], atol=1e-5, rtol=0)


def test_slots_may_be_used_in_turn_by_steps_that_always_write_to_the_same_tensors(model: Speaker, pairs: Pairs) -> None:
    """As captured steps do: two slots are left before the first is used again."""
    state = model.start(pairs.source, pairs.mask, room=7)
    state = state._replace(filled=torch.tensor(5))
    expected = logits_of(model, pairs)
    for time in range(7):
        step = model.step(pairs.target[:, time : time + 1], state)
        copy_states(state, step.state)
        assert_close(model.project(step.hidden)[:, 0], expected[:, time], atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_stepping_equals_teacher_forcing_in_half_precision(plain: Speaker, pairs: Pairs, dtype: torch.dtype) -> None:
    exact = logits_of(plain, pairs)
    with torch.autocast("cpu", dtype=dtype):
        whole = logits_of(plain, pairs)
        stepped, _ = speak(plain, pairs.target, plain.start(pairs.source, pairs.mask, room=7), chunk=3)
    slack = 0.02 * float(exact.abs().max()) if dtype == torch.float16 else 0.1 * float(exact.abs().max())
    assert_close(whole.float(), exact, atol=slack, rtol=0)
    assert_close(stepped.float(), exact, atol=slack, rtol=0)
