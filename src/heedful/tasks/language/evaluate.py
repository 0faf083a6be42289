"""Evaluation of a language model: the loss of a whole text, and the perplexities and bits that follow from it.

    loss                 -log p(token | previous tokens of its block) in nats, mean over tokens
    perplexity           exp(loss)
    word_perplexity      exp(nats of the whole text / its words), the ends of lines counted as words: comparable between
                         vocabularies, and the same as perplexity where tokens are words
    bits_per_character   nats of the whole text / characters / log 2; bits_per_byte likewise

The text is scored with a sliding window of one block that advances by `stride` tokens. Each token is scored once, in the first
window that contains it, so with a stride shorter than the block every token but the first ones has a context of at least
block - stride tokens.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.data.text_store import TextStore
from heedful.tasks.system import System


def windows(tokens: int, block: int, stride: int) -> list[tuple[int, int]]:
    """(first token, first token that is scored) of each window: each token is scored once."""
    spans, done = [(0, 0)], min(block, tokens)
    while done < tokens:
        end = min(done + stride, tokens)
        spans.append((end - block, done))
        done = end
    return spans


@torch.inference_mode()
def text_loss(system: System, ids: NDArray[Any], block: int, stride: int) -> float:
    """-log p of a whole text in nats, after the end of a line."""
    (model,) = system.models
    labels = torch.from_numpy(ids.astype(np.int64))  # (tokens,)
    previous = torch.cat((torch.tensor([system.target_tokenizer.specials.end]), labels[:-1]))
    block = min(block, len(labels))
    spans = windows(len(labels), block, min(stride or block, block))
    rows = max(1, system.scored_tokens // block)

    def loss(at: int) -> float:
        starts, firsts = (torch.tensor(column) for column in zip(*spans[at : at + rows], strict=True))
        positions = starts[:, None] + torch.arange(block)  # (rows, block)
        inputs, targets = previous[positions].to(system.device), labels[positions].to(system.device)
        scored = (positions >= firsts[:, None]).to(system.device)
        tail = block - int((firsts - starts).min())  # tokens at the end of a window that are scored, at most
        hidden = model.forced(None, None, inputs).hidden[:, -tail:]
        scores = model.project(hidden).float().log_softmax(-1).gather(-1, targets[:, -tail:, None]).squeeze(-1)
        return -float((scores * scored[:, -tail:]).sum(dtype=torch.float64))

    return math.fsum(system.ranks.map(loss, range(0, len(spans), rows)))


def evaluate_text(system: System, text: TextStore, block: int, stride: int) -> dict[str, float]:
    """The loss of a text, and the perplexities and bits that follow from it."""
    nats = text_loss(system, text.ids, block, stride)
    if not math.isfinite(nats):
        raise system.nonfinite_error("a token of the text")
    return {
        "loss": nats / len(text.ids),
        "perplexity": math.exp(min(nats / len(text.ids), 700.0)),
        "word_perplexity": math.exp(min(nats / (text.words + text.lines), 700.0)),
        "bits_per_character": nats / text.characters / math.log(2),
        "bits_per_byte": nats / text.bytes / math.log(2),
    }
