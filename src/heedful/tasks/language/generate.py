"""Text generation from a prompt, and the log-probability of given continuations.

    generate(system, "ROMEO:", 200, SearchConfig(method="sample", temperature=0.8, n_best=3))      three texts
    score_endings(system, "It was a dull film. I would call it", [" great", " bad"])              log p of each

The end of a line is a token like any other here, so a text ends only by its length. A text longer than the model's context
is continued from the last half of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from heedful.data.corpus_text import decode_text, encode_text
from heedful.data.input_lines import refuse_too_long
from heedful.errors import ConfigError
from heedful.search import NonFiniteScores, SearchConfig, SourceBatch, search_batch, step_function
from heedful.tasks.system import System


@torch.inference_mode()
def generate(system: System, prompt: str, length: int, config: SearchConfig) -> list[str]:
    """The prompt and `length` more tokens: one text, or config.n_best samples."""
    refuse_too_long(prompt, "the prompt")
    tokenizer, (model,) = system.target_tokenizer, system.models
    specials, window = tokenizer.specials, system.max_length
    samples = config.n_best if config.method == "sample" else 1
    texts = [[specials.end, *encode_text(tokenizer, prompt)] for _ in range(samples)]  # a text starts after the end of a line
    prompt_length, rounds = len(texts[0]), 0
    while (left := prompt_length + length - len(texts[0])) > 0:
        context = len(texts[0]) if len(texts[0]) < window else max(1, window // 2)
        more = min(left, window - context) or 1
        once = config.model_copy(update={"n_best": 1, "min_length": more, "max_length": more})
        # In the first round all samples have the same last token, so they are one batch.
        groups = [list(range(samples))] if rounds == 0 else [[sample] for sample in range(samples)]
        for group in groups:
            tokens = torch.tensor([texts[sample][-context:] for sample in group], device=system.device)
            state = model.start(tokens[:, :-1], None, room=(more + 1) * once.rows)
            limits = torch.full((len(group),), more + 1, device=system.device)
            source_ids = [rounds * samples + sample for sample in group]
            batch = SourceBatch(state, limits, source_ids, [[]] * len(group))
            last, never = int(tokens[0, -1]), specials.pad  # no text has padding, so none ends before its length
            try:
                results = search_batch(step_function(model), batch, once, start=last, end=never)
            except NonFiniteScores as error:
                raise system.nonfinite_error(f"token {len(texts[0])}") from error
            for sample, (best, *_) in zip(group, results, strict=True):
                texts[sample] += best.tokens
        rounds += 1
    return [decode_text(tokenizer, text[1:]) for text in texts]


@torch.inference_mode()
def score_endings(system: System, prompt: str, endings: Sequence[str]) -> list[float]:
    """log p of each ending after the prompt. Prompt and ending are encoded together, so words are tokenized as in any text."""
    for text in (prompt, *endings):
        refuse_too_long(text, "the prompt or an ending")
    tokenizer, (model,) = system.target_tokenizer, system.models
    prompt_ids = encode_text(tokenizer, prompt)
    scores = []
    for ending in endings:
        ids = encode_text(tokenizer, prompt + ending)
        differ = (i for i, (a, b) in enumerate(zip(prompt_ids, ids, strict=False)) if a != b)
        shared = next(differ, min(len(prompt_ids), len(ids)))  # tokens that the prompt alone has, too
        if shared == len(ids):
            raise ConfigError(f"the ending {ending!r} adds no token to the prompt")
        given = torch.tensor([[tokenizer.specials.end, *ids][-system.max_length - 1 :]], device=system.device)
        step = model.forced(None, None, given[:, :-1])
        scored = min(len(ids) - shared, given.shape[1] - 1)  # tokens of the ending
        log_probabilities = model.project(step.hidden[:, -scored:]).float().log_softmax(-1)
        scores.append(float(log_probabilities.gather(-1, given[:, -scored:, None]).sum()))
        if not math.isfinite(scores[-1]):
            raise system.nonfinite_error(f"the ending {ending!r:.40}")
    return scores
