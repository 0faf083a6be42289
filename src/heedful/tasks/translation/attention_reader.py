"""Search options that read attention weights: the coverage penalty and the replacement of unknown words.

Both need a model that attends to its source; in an ensemble, the first that does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch

from heedful.data.input_lines import read_texts
from heedful.errors import DataError
from heedful.nn.model import SequenceModel
from heedful.nn.source_attention import coverage_of, mean_source_weights, no_source_attention, source_attentions
from heedful.search import Hypothesis, SearchConfig
from heedful.tasks.batches import collate, pad
from heedful.text.tokenizer import Tokenizer


class AttentionReader(NamedTuple):
    """The model whose attention is read, and the tokenizers of both sides."""

    model: SequenceModel
    source: Tokenizer
    target: Tokenizer
    device: torch.device


def attention_model(models: Sequence[SequenceModel], config: SearchConfig) -> SequenceModel | None:
    """The first model that attends to its source; None where no search option reads attention."""
    options = [f"search.{name}" for name in ("coverage", "replace_unknown") if getattr(config, name)]
    if not options:
        return None
    attending = next((model for model in models if source_attentions(model)), None)
    if attending is None:
        raise no_source_attention(options[0])
    return attending


def rescore_by_coverage(
    reader: AttentionReader, ids: list[int], hypotheses: Sequence[Hypothesis], config: SearchConfig
) -> list[Hypothesis]:
    """The n best hypotheses by score + beta cp, where cp penalizes source tokens without attention (Wu et al., 2016)."""
    specials = reader.target.specials
    source = torch.tensor([*ids, reader.source.specials.end], device=reader.device)
    target_in = pad([[specials.start, *hypothesis.tokens] for hypothesis in hypotheses], specials.pad).to(reader.device)
    lengths = torch.tensor([len(hypothesis.tokens) + 1 for hypothesis in hypotheses], device=reader.device)
    penalties = coverage_of(reader.model, source, target_in, lengths).tolist()
    rescored = [
        hypothesis._replace(score=hypothesis.score + config.coverage * cp)
        for hypothesis, cp in zip(hypotheses, penalties, strict=True)
    ]
    return sorted(rescored, key=lambda hypothesis: hypothesis.score, reverse=True)[: config.n_best]


def replace_unknown_words(
    reader: AttentionReader, ids: list[int], text: str, tokens: list[int], dictionary: Mapping[str, str]
) -> str | None:
    """PosUnk (Luong et al., 2015): the translation with every unknown word replaced by the source word with most attention
    at that step, or by the dictionary's translation of it. None if no word is unknown."""
    unknown = reader.target.specials.unk
    if unknown not in tokens:
        return None
    batch = collate([ids], [tokens], reader.source.specials, reader.target.specials).to(reader.device)
    weights = mean_source_weights(reader.model, batch.source, batch.target_in)  # (target, source)
    word_of, words = reader.source.word_of(ids), text.split()
    translation, run = "", []  # run: tokens since the last unknown word
    for position, token in enumerate(tokens):
        if token != unknown:
            run.append(token)
            continue
        word = words[word_of[int(weights[position, : len(ids)].argmax())]]
        translation = append(append(translation, reader.target.decode(run)), dictionary.get(word, word))
        run = []
    return append(translation, reader.target.decode(run))


def append(text: str, more: str) -> str:
    """Both texts with a space between them."""
    return f"{text} {more}".strip() if more else text


@lru_cache(maxsize=4)
def read_dictionary(path: str) -> Mapping[str, str]:
    """Read lines of source word TAB translation; of several lines for one word, the first is used."""
    dictionary: dict[str, str] = {}
    for number, line in enumerate(read_texts(Path(path)), start=1):
        source, tab, target = line.partition("\t")
        if not tab or not source.strip() or not target.strip():
            raise DataError(f"{path} line {number} is {line!r:.60}; expected a source word, a tab and its translation")
        dictionary.setdefault(source.strip(), target.strip())
    return dictionary
