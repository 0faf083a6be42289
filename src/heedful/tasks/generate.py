"""Writing: going on from a prompt, and how likely a model finds that a text goes on in a given way.

    generate(system, "ROMEO:", 200, SearchConfig(method="sample", temperature=0.8, n_best=3))      three texts
    continuations(system, "It was a dull film. I would call it", [" great", " bad"])               log p of each

The end of a line is a token like any other here, so nothing ends a text but its length. A text that has outgrown the
model's window goes on from its last half.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from heedful.data.corpus_text import decode_text, encode_text
from heedful.data.input_lines import refuse_too_long
from heedful.errors import ConfigError
from heedful.search import Group, NonFiniteScores, SearchConfig, search_group, step_function
from heedful.tasks.translate import System


@torch.inference_mode()
def generate(system: System, prompt: str, length: int, config: SearchConfig) -> list[str]:
    """The prompt and `length` more tokens: one text, or as many samples as config.n_best says."""
    refuse_too_long(prompt, "the prompt")
    tokenizer, (model,) = system.target_tokenizer, system.models
    specials, window = tokenizer.specials, system.max_length
    samples = config.n_best if config.method == "sample" else 1
    texts = [[specials.end, *encode_text(tokenizer, prompt)] for _ in range(samples)]  # a text begins where a line does
    begun, drawn = len(texts[0]), 0
    while (left := begun + length - len(texts[0])) > 0:
        context = len(texts[0]) if len(texts[0]) < window else max(1, window // 2)
        more = min(left, window - context) or 1
        once = config.model_copy(update={"n_best": 1, "min_length": more, "max_length": more})
        alike = [list(range(samples))] if drawn == 0 else [[sample] for sample in range(samples)]  # who goes on from the same
        for group in alike:
            seen = torch.tensor([texts[sample][-context:] for sample in group], device=system.device)
            state = model.start(seen[:, :-1], None, room=(more + 1) * once.rows)
            limits = torch.full((len(group),), more + 1, device=system.device)
            names = [drawn * samples + sample for sample in group]
            asked = Group(state, limits, names, [[]] * len(group))
            last, never = int(seen[0, -1]), specials.pad  # padding is said in no text, so nothing ends before its length
            try:
                found = search_group(step_function(model), asked, once, start=last, end=never)
            except NonFiniteScores as error:
                raise system.not_finite(f"token {len(texts[0])}") from error
            for sample, (best, *_) in zip(group, found, strict=True):
                texts[sample] += best.tokens
        drawn += 1
    return [decode_text(tokenizer, text[1:]) for text in texts]


@torch.inference_mode()
def continuations(system: System, prompt: str, endings: Sequence[str]) -> list[float]:
    """log p of each ending after the prompt. What is encoded is the whole text, so a word may be cut as it is elsewhere."""
    for text in (prompt, *endings):
        refuse_too_long(text, "the prompt or an ending")
    tokenizer, (model,) = system.target_tokenizer, system.models
    begun = encode_text(tokenizer, prompt)
    scores = []
    for ending in endings:
        ids = encode_text(tokenizer, prompt + ending)
        same = next((i for i, (a, b) in enumerate(zip(begun, ids, strict=False)) if a != b), min(len(begun), len(ids)))
        if same == len(ids):
            raise ConfigError(f"the ending {ending!r} adds nothing to the prompt")
        given = torch.tensor([[tokenizer.specials.end, *ids][-system.max_length - 1 :]], device=system.device)
        step = model.step(given[:, :-1], model.start(given[:, :0], None, room=0))
        fresh = min(len(ids) - same, given.shape[1] - 1)
        logs = model.project(step.hidden[:, -fresh:]).float().log_softmax(-1)
        scores.append(float(logs.gather(-1, given[:, -fresh:, None]).sum()))
        if not math.isfinite(scores[-1]):
            raise system.not_finite(f"the ending {ending!r:.40}")
    return scores
