"""Evaluation of skip-thought vectors: how well the sentences around a sentence are predicted from its vector.

loss          -log p(token | sentence, previous tokens) in nats, mean over the tokens of all neighbors
perplexity    exp(loss)
"""

from __future__ import annotations

import numpy as np

from heedful.evaluation.metrics import perplexity
from heedful.nn.model import inference_context
from heedful.tasks.skip_thought.data import Sentences, SkipThoughtData
from heedful.tasks.skip_thought.model import SkipThoughtModel, neighbor_loss
from heedful.tasks.system import System


def evaluate(model: SkipThoughtModel, system: System, data: SkipThoughtData, sentences: Sentences) -> dict[str, float]:
    marks, size = system.target_tokenizer.specials, data.data.batch

    def score(at: int) -> tuple[float, int]:
        batch = data.collate(sentences, sentences.rows[at : at + size], marks).to(system.device)
        loss = neighbor_loss(model, batch, marks.pad)
        return float(loss.total), int(loss.count)

    with inference_context(model):
        scored = system.ranks.map(score, range(0, len(sentences.rows), size))
    total, count = sum(total for total, _ in scored), sum(count for _, count in scored)
    if not np.isfinite(total):
        raise system.nonfinite_error("a sentence of the text")
    return {"loss": total / count, "perplexity": perplexity(total, count).value}
