# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-not-found"
"""A step of beam search on a GPU in two kernels, one program for each source: `expand_beam` and `record_finished`, fused.

Between two steps of a small model the launch overhead dominates: a hundred small operations cost as much as the layers of
the model. Prefixes, n-gram blocking and sampling use the PyTorch implementation.
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
except ImportError:  # not installed with torch for CPUs
    triton = None

BLOCK = 128
MAX_CANDIDATES = 2**14  # elements that one program can hold


def fits(logits: Tensor, frontier: Frontier, config: SearchConfig) -> bool:
    """Whether the kernels support this search."""
    beam, blocks = frontier.scores.shape[1], -(-logits.shape[1] // BLOCK)
    plain = config.method != "sample" and not config.no_repeat and not frontier.prefix.shape[1]
    small = next_power(beam) * max(next_power(blocks), next_power(frontier.tokens.shape[-1])) <= MAX_CANDIDATES
    return plain and small and beam <= 16 and logits.is_contiguous() and usable(logits)


def next_power(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return 1 << (number - 1).bit_length()


def advance(frontier: Frontier, logits: Tensor, config: SearchConfig, end: int, penalty: Tensor) -> Tensor:
    """Update the frontier in place by one step; return the row that each hypothesis continues, (sources, beam)."""
    sources, beam = frontier.scores.shape
    vocab, longest = logits.shape[1], frontier.tokens.shape[-1]
    largest, total = blockwise_logsumexp(logits, BLOCK)
    blocks = largest.shape[1]
    scores = torch.empty_like(frontier.scores)
    row, token = torch.empty_like(frontier.last_token), torch.empty_like(frontier.last_token)
    _expand[(sources,)](
        logits, largest, total, frontier.scores, frontier.count, frontier.limits, frontier.finished, scores, row, token,
        vocab, blocks, end, config.min_length,
        BEAM=beam, BEAMS=next_power(beam), BLOCKS=next_power(blocks), BLOCK=BLOCK, num_warps=8,
    )  # fmt: skip
    _record[(sources,)](
        scores, row, token, penalty, frontier.scores, frontier.tokens, frontier.count, frontier.limits, frontier.finished,
        frontier.finished_scores, frontier.finished_log_probability, frontier.finished_length, frontier.finished_tokens,
        frontier.last_token, frontier.done.view(torch.uint8), longest, end,
        N_BEST=config.n_best, BEAM=beam, BEAMS=next_power(beam), LONGEST=next_power(longest), num_warps=4,
    )  # fmt: skip
    return row


@Jit
def _expand(
    logits, largest, total, scores, count, limits, finished, out_scores, out_row, out_token, vocab, blocks, end, min_length,
    BEAM: tl.constexpr, BEAMS: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    source = tl.program_id(0).to(tl.int64)
    minus_inf = float("-inf")
    k, j, at = tl.arange(0, BEAMS), tl.arange(0, BLOCKS), tl.arange(0, BLOCK)
    rows = source * BEAM + k
    valid = (k < BEAM)[:, None] & (j < blocks)[None, :]
    best = tl.load(largest + rows[:, None] * blocks + j[None, :], mask=valid, other=minus_inf)
    parts = tl.load(total + rows[:, None] * blocks + j[None, :], mask=valid, other=0.0)
    top = tl.max(best, 1)
    top = tl.where(top == minus_inf, 0.0, top)
    normalize = top + tl.log(tl.sum(parts * tl.exp(best - top[:, None]), 1))
    score_before = tl.load(scores + rows, mask=k < BEAM, other=minus_inf)  # (BEAMS,)
    finite = (tl.abs(normalize) < float("inf")) & (k < BEAM)
    nonfinite = tl.max(((score_before > minus_inf) & (finite == 0)).to(tl.int32), 0)  # logits of an active row are not finite
    offset = tl.where(finite, score_before - normalize, minus_inf)

    length = tl.load(count + source)
    must_end = length >= tl.load(limits + source) - 1
    may_end = must_end | (length >= min_length)
    # The block of the end token: banned before min_length; at the limit, the only token allowed.
    first = end // BLOCK * BLOCK
    in_vocab = (k < BEAM)[:, None] & (first + at < vocab)[None, :]
    end_block = tl.load(logits + rows[:, None] * vocab + first + at[None, :], mask=in_vocab, other=minus_inf).to(tl.float32)
    is_end = (first + at == end)[None, :]
    end_block = tl.where((is_end & may_end) | ((is_end == 0) & (must_end == 0)), end_block, minus_inf)
    left = tl.where((j == end // BLOCK)[None, :], tl.max(end_block, 1)[:, None], tl.where(must_end, minus_inf, best))
    active = (offset > minus_inf) & (nonfinite == 0)  # inactive rows may hold NaN, which must not be added
    bounds = tl.reshape(tl.where(active[:, None], left + offset[:, None], minus_inf), [BEAMS * BLOCKS])

    index_in_bounds = tl.arange(0, BEAMS * BLOCKS)
    from_row, from_block = tl.zeros((BEAMS,), tl.int32), tl.zeros((BEAMS,), tl.int32)
    candidates = tl.full((BEAMS, BLOCK), minus_inf, tl.float32)
    for rank in range(BEAM):  # the best blocks and their logits
        value, index = tl.max(bounds, 0), tl.argmax(bounds, 0)
        this_row, this_block = index // BLOCKS, index % BLOCKS
        tokens = this_block * BLOCK + at
        inside = tokens < tl.where(value > minus_inf, vocab, 0)
        x = tl.load(logits + (source * BEAM + this_row) * vocab + tokens, mask=inside, other=minus_inf).to(tl.float32)
        x = tl.where(((tokens == end) & may_end) | ((tokens != end) & (must_end == 0)), x, minus_inf)
        x += tl.sum(tl.where(k == this_row, offset, 0.0), 0)
        candidates = tl.where((k == rank)[:, None], x[None, :], candidates)
        from_row, from_block = tl.where(k == rank, this_row, from_row), tl.where(k == rank, this_block, from_block)
        bounds = tl.where(index_in_bounds == index, minus_inf, bounds)

    pool = tl.reshape(candidates, [BEAMS * BLOCK])
    index_in_pool = tl.arange(0, BEAMS * BLOCK)
    free = BEAM - tl.load(finished + source)  # room in the beam beside the finished hypotheses
    for rank in range(BEAM):
        score, chosen = tl.max(pool, 0), tl.argmax(pool, 0)
        parent = tl.sum(tl.where(k == chosen // BLOCK, from_row, 0), 0)
        token = tl.sum(tl.where(k == chosen // BLOCK, from_block, 0), 0) * BLOCK + chosen % BLOCK
        score = tl.where(rank < free, score, minus_inf)
        tl.store(out_scores + source * BEAM + rank, tl.where(nonfinite != 0, float("nan"), score))
        tl.store(out_row + source * BEAM + rank, parent.to(tl.int64))
        tl.store(out_token + source * BEAM + rank, token.to(tl.int64))
        pool = tl.where(index_in_pool == chosen, minus_inf, pool)


@Jit
def _record(
    new_scores, new_row, new_token, penalty, scores, tokens, count, limits, finished, finished_scores, finished_log_probability,
    finished_length, finished_tokens, last_token, done, longest, end,
    N_BEST: tl.constexpr, BEAM: tl.constexpr, BEAMS: tl.constexpr, LONGEST: tl.constexpr,
):  # fmt: skip
    source = tl.program_id(0).to(tl.int64)
    minus_inf = float("-inf")
    k, t = tl.arange(0, BEAMS), tl.arange(0, LONGEST)
    real = k < BEAM
    rows, columns = source * BEAM + k, source * (BEAM + 1) + k
    score = tl.load(new_scores + rows, mask=real, other=minus_inf)
    row = tl.load(new_row + rows, mask=real, other=0)
    token = tl.load(new_token + rows, mask=real, other=-1)
    length, before, was_done = tl.load(count + source), tl.load(finished + source), tl.load(done + source) != 0
    ended = (token == end) & (score > minus_inf) & real
    index = source * (BEAM + 1) + before + tl.cumsum(ended.to(tl.int64), 0) - 1
    penalized = score / tl.load(penalty + length + 1)
    valid = real[:, None] & (t < longest)[None, :]
    parents = tl.load(tokens + (source * BEAM + row)[:, None] * longest + t[None, :], mask=valid, other=0)
    older = tl.load(finished_scores + columns, mask=k < before, other=minus_inf)
    tl.debug_barrier()  # everything is read before anything is written
    tl.store(finished_scores + index, penalized, mask=ended)
    tl.store(finished_log_probability + index, score, mask=ended)
    tl.store(finished_length + index, length + tl.zeros_like(index), mask=ended)
    tl.store(finished_tokens + index[:, None] * longest + t[None, :], parents, mask=ended[:, None] & valid)
    extended = tl.where((t == length)[None, :], token[:, None], parents)
    tl.store(tokens + rows[:, None] * longest + t[None, :], extended, mask=valid)

    newer = tl.where(ended, penalized, minus_inf)
    threshold = minus_inf  # score of the n-th best
    for _ in range(N_BEST):
        threshold = tl.maximum(tl.max(older, 0), tl.max(newer, 0))
        from_older = tl.where(tl.max(older, 0) >= tl.max(newer, 0), 1, 0)
        older = tl.where((from_older == 1) & (k == tl.argmax(older, 0)), minus_inf, older)
        newer = tl.where((from_older == 0) & (k == tl.argmax(newer, 0)), minus_inf, newer)
    active = tl.where(ended | (real == 0), minus_inf, score)
    best = tl.max(active, 0)
    exceeds = tl.where(best / tl.load(penalty + tl.load(limits + source)) > threshold, 1, 0)
    going = tl.where(best > minus_inf, exceeds, 0) * tl.where(was_done, 0, 1)
    tl.store(scores + rows, tl.where(going == 1, active, minus_inf), mask=real)
    tl.store(last_token + rows, token, mask=real)
    tl.store(done + source, (1 - going).to(tl.uint8))
    tl.store(count + source, length + going)
    tl.store(finished + source, before + tl.sum(ended.to(tl.int64), 0))
    nonfinite = tl.max((score != score).to(tl.int32), 0)  # then no hypothesis has ended in this step
    tl.store(finished_scores + columns, tl.full((BEAMS,), float("nan"), tl.float32), mask=real & (nonfinite != 0))
