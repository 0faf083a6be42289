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
    marks, total, count = system.target_tokenizer.specials, 0.0, 0
    with inference_context(model):
        for at in range(0, len(sentences.rows), data.data.batch):
            batch = data.collate(sentences, sentences.rows[at : at + data.data.batch], marks).to(system.device)
            loss = neighbor_loss(model, batch, marks.pad)
            total, count = total + float(loss.total), count + int(loss.count)
    if not np.isfinite(total):
        raise system.nonfinite_error("a sentence of the text")
    return {"loss": total / count, "perplexity": perplexity(total, count).value}
