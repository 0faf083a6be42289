# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-not-found"
"""A step of beam search on a GPU in two kernels, one program a source: what `choose.branch` and `frontier.note` compute.

Between two steps of a small model there is little to compute and much to start: a hundred small operations cost as much as
the layers of the model. Prefixes, forbidden repetitions and samples go the plain way.
"""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.nn.kernels import Jit, blockwise_logsumexp, usable
from heedful.search.frontier import Frontier
from heedful.search.hypothesis import SearchConfig

try:
    import triton
    import triton.language as tl
except ImportError:  # torch for a CPU comes without it
    triton = None

BLOCK = 128
MOST_CANDIDATES = 2**14  # numbers that one program can hold


def fits(logits: Tensor, frontier: Frontier, config: SearchConfig) -> bool:
    beam, blocks = frontier.scores.shape[1], -(-logits.shape[1] // BLOCK)
    plain = config.method != "sample" and not config.no_repeat and not frontier.prefix.shape[1]
    small = next_power(beam) * max(next_power(blocks), next_power(frontier.said.shape[-1])) <= MOST_CANDIDATES
    return plain and small and beam <= 16 and logits.is_contiguous() and usable(logits)


def next_power(number: int) -> int:
    return 1 << (number - 1).bit_length()


def advance(frontier: Frontier, logits: Tensor, config: SearchConfig, end: int, penalty: Tensor) -> Tensor:
    """Take one step in place; returns which row each beginning goes on from, (sources, beam)."""
    sources, beam = frontier.scores.shape
    vocab, longest = logits.shape[1], frontier.said.shape[-1]
    largest, total = blockwise_logsumexp(logits, BLOCK)
    blocks = largest.shape[1]
    scores = torch.empty_like(frontier.scores)
    row, token = torch.empty_like(frontier.last), torch.empty_like(frontier.last)
    _choose[(sources,)](
        logits, largest, total, frontier.scores, frontier.count, frontier.limits, frontier.found, scores, row, token,
        vocab, blocks, end, config.min_length,
        BEAM=beam, BEAMS=next_power(beam), BLOCKS=next_power(blocks), BLOCK=BLOCK, num_warps=8,
    )  # fmt: skip
    _note[(sources,)](
        scores, row, token, penalty, frontier.scores, frontier.said, frontier.count, frontier.limits, frontier.found,
        frontier.found_scores, frontier.found_total, frontier.found_length, frontier.found_said, frontier.last,
        frontier.done.view(torch.uint8), longest, end,
        N_BEST=config.n_best, BEAM=beam, BEAMS=next_power(beam), LONGEST=next_power(longest), num_warps=4,
    )  # fmt: skip
    return row


@Jit
def _choose(
    logits, largest, total, scores, count, limits, found, out_scores, out_row, out_token, vocab, blocks, end, min_length,
    BEAM: tl.constexpr, BEAMS: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    source = tl.program_id(0).to(tl.int64)
    nothing = float("-inf")
    k, j, at = tl.arange(0, BEAMS), tl.arange(0, BLOCKS), tl.arange(0, BLOCK)
    rows = source * BEAM + k
    there = (k < BEAM)[:, None] & (j < blocks)[None, :]
    best = tl.load(largest + rows[:, None] * blocks + j[None, :], mask=there, other=nothing)
    parts = tl.load(total + rows[:, None] * blocks + j[None, :], mask=there, other=0.0)
    top = tl.max(best, 1)
    top = tl.where(top == nothing, 0.0, top)
    normalize = top + tl.log(tl.sum(parts * tl.exp(best - top[:, None]), 1))
    so_far = tl.load(scores + rows, mask=k < BEAM, other=nothing)  # (BEAMS,)
    finite = (tl.abs(normalize) < float("inf")) & (k < BEAM)
    broken = tl.max(((so_far > nothing) & (finite == 0)).to(tl.int32), 0)  # logits of a living row are not finite
    before = tl.where(finite, so_far - normalize, nothing)

    said = tl.load(count + source)
    must_end = said >= tl.load(limits + source) - 1
    may_end = must_end | (said >= min_length)
    # The block of the end: without it where it is too early, and nothing but it where the limit is reached.
    first = end // BLOCK * BLOCK
    known = (k < BEAM)[:, None] & (first + at < vocab)[None, :]
    ends = tl.load(logits + rows[:, None] * vocab + first + at[None, :], mask=known, other=nothing).to(tl.float32)
    is_end = (first + at == end)[None, :]
    ends = tl.where((is_end & may_end) | ((is_end == 0) & (must_end == 0)), ends, nothing)
    left = tl.where((j == end // BLOCK)[None, :], tl.max(ends, 1)[:, None], tl.where(must_end, nothing, best))
    lives = (before > nothing) & (broken == 0)  # whatever else a row holds must not be added: it may be NaN
    reach = tl.reshape(tl.where(lives[:, None], left + before[:, None], nothing), [BEAMS * BLOCKS])

    member = tl.arange(0, BEAMS * BLOCKS)
    from_row, from_block = tl.zeros((BEAMS,), tl.int32), tl.zeros((BEAMS,), tl.int32)
    candidates = tl.full((BEAMS, BLOCK), nothing, tl.float32)
    for turn in range(BEAM):  # the best blocks, and their members
        value, index = tl.max(reach, 0), tl.argmax(reach, 0)
        this_row, this_block = index // BLOCKS, index % BLOCKS
        tokens = this_block * BLOCK + at
        inside = tokens < tl.where(value > nothing, vocab, 0)
        x = tl.load(logits + (source * BEAM + this_row) * vocab + tokens, mask=inside, other=nothing).to(tl.float32)
        x = tl.where(((tokens == end) & may_end) | ((tokens != end) & (must_end == 0)), x, nothing)
        x += tl.sum(tl.where(k == this_row, before, 0.0), 0)
        candidates = tl.where((k == turn)[:, None], x[None, :], candidates)
        from_row, from_block = tl.where(k == turn, this_row, from_row), tl.where(k == turn, this_block, from_block)
        reach = tl.where(member == index, nothing, reach)

    pool = tl.reshape(candidates, [BEAMS * BLOCK])
    number = tl.arange(0, BEAMS * BLOCK)
    free = BEAM - tl.load(found + source)  # places that no finished hypothesis has
    for turn in range(BEAM):
        score, chosen = tl.max(pool, 0), tl.argmax(pool, 0)
        parent = tl.sum(tl.where(k == chosen // BLOCK, from_row, 0), 0)
        token = tl.sum(tl.where(k == chosen // BLOCK, from_block, 0), 0) * BLOCK + chosen % BLOCK
        score = tl.where(turn < free, score, nothing)
        tl.store(out_scores + source * BEAM + turn, tl.where(broken != 0, float("nan"), score))
        tl.store(out_row + source * BEAM + turn, parent.to(tl.int64))
        tl.store(out_token + source * BEAM + turn, token.to(tl.int64))
        pool = tl.where(number == chosen, nothing, pool)


@Jit
def _note(
    new_scores, new_row, new_token, penalty, scores, said, count, limits, found, found_scores, found_total, found_length,
    found_said, last, done, longest, end,
    N_BEST: tl.constexpr, BEAM: tl.constexpr, BEAMS: tl.constexpr, LONGEST: tl.constexpr,
):  # fmt: skip
    source = tl.program_id(0).to(tl.int64)
    nothing = float("-inf")
    k, t = tl.arange(0, BEAMS), tl.arange(0, LONGEST)
    real = k < BEAM
    rows, finished = source * BEAM + k, source * (BEAM + 1) + k
    score = tl.load(new_scores + rows, mask=real, other=nothing)
    row = tl.load(new_row + rows, mask=real, other=0)
    token = tl.load(new_token + rows, mask=real, other=-1)
    length, before, was_done = tl.load(count + source), tl.load(found + source), tl.load(done + source) != 0
    ended = (token == end) & (score > nothing) & real
    place = source * (BEAM + 1) + before + tl.cumsum(ended.to(tl.int64), 0) - 1
    judged = score / tl.load(penalty + length + 1)
    there = real[:, None] & (t < longest)[None, :]
    parents = tl.load(said + (source * BEAM + row)[:, None] * longest + t[None, :], mask=there, other=0)
    older = tl.load(found_scores + finished, mask=k < before, other=nothing)
    tl.debug_barrier()  # everything is read before anything is written
    tl.store(found_scores + place, judged, mask=ended)
    tl.store(found_total + place, score, mask=ended)
    tl.store(found_length + place, length + tl.zeros_like(place), mask=ended)
    tl.store(found_said + place[:, None] * longest + t[None, :], parents, mask=ended[:, None] & there)
    tl.store(said + rows[:, None] * longest + t[None, :], tl.where((t == length)[None, :], token[:, None], parents), mask=there)

    newer = tl.where(ended, judged, nothing)
    enough = nothing  # the score that must be overtaken
    for _ in range(N_BEST):
        enough = tl.maximum(tl.max(older, 0), tl.max(newer, 0))
        from_older = tl.where(tl.max(older, 0) >= tl.max(newer, 0), 1, 0)
        older = tl.where((from_older == 1) & (k == tl.argmax(older, 0)), nothing, older)
        newer = tl.where((from_older == 0) & (k == tl.argmax(newer, 0)), nothing, newer)
    living = tl.where(ended | (real == 0), nothing, score)
    hope = tl.max(living, 0)
    overtakes = tl.where(hope / tl.load(penalty + tl.load(limits + source)) > enough, 1, 0)
    going = tl.where(hope > nothing, overtakes, 0) * tl.where(was_done, 0, 1)
    tl.store(scores + rows, tl.where(going == 1, living, nothing), mask=real)
    tl.store(last + rows, token, mask=real)
    tl.store(done + source, (1 - going).to(tl.uint8))
    tl.store(count + source, length + going)
    tl.store(found + source, before + tl.sum(ended.to(tl.int64), 0))
    broken = tl.max((score != score).to(tl.int32), 0)  # then nothing has ended in this step
    tl.store(found_scores + finished, tl.full((BEAMS,), float("nan"), tl.float32), mask=real & (broken != 0))
