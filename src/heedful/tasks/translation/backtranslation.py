"""Back-translation (Sennrich et al., 2016): monolingual text of the target language, with sources made by a reverse model.

    monolingual line  --reverse model-->  synthetic source;   pair = (synthetic source, line)

Sampled sources (Edunov et al., 2018) help most where there is much parallel text, those of beam search where there is little. A
tag as the first source token (Caswell et al., 2019) lets the model treat synthetic and genuine sources differently: the corpus
option `tag` of a recipe adds it, as a single token of the vocabulary.
"""

from __future__ import annotations

import json

from heedful.tasks.translation.translate import Translation

TAG = "<bt>"


def render_pairs(translation: Translation) -> str:
    """The synthetic pairs of a line as JSON lines, one for each candidate; none where a side is empty."""
    pairs = ({"source": candidate.text, "target": translation.source} for candidate in translation.candidates)
    return "".join(
        f"{json.dumps(pair, ensure_ascii=False)}\n" for pair in pairs if pair["source"].strip() and pair["target"].strip()
    )
