"""What a search asks of where a model looked: how much of the source was read, and what an unknown word stands for.

Both need a model that attends to its source. Of an ensemble the first that does is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from heedful.data.input_lines import read_texts
from heedful.errors import ConfigError, DataError
from heedful.inspection.alignment import ATTENDING_FAMILIES, attends_to_source, mean_cross_attention
from heedful.inspection.coverage import coverage_of
from heedful.models import SequenceModel
from heedful.search import Hypothesis, SearchConfig
from heedful.tasks.batches import collate, pad
from heedful.text.tokenizer import Tokenizer


class AttentionReader(NamedTuple):
    model: SequenceModel
    source: Tokenizer
    target: Tokenizer
    device: torch.device


def attention_model(models: Sequence[SequenceModel], config: SearchConfig) -> SequenceModel | None:
    """The model to ask, if the search asks at all."""
    asking = [f"search.{name}" for name in ("coverage", "replace_unknown") if getattr(config, name)]
    if not asking:
        return None
    found = next((model for model in models if isinstance(model, nn.Module) and attends_to_source(model)), None)
    if found is None:
        raise ConfigError(
            f"{asking[0]} needs a model that attends to its source, and this one does not", hint=ATTENDING_FAMILIES
        )
    return found


def rescore_by_coverage(
    reader: AttentionReader, ids: list[int], hypotheses: list[Hypothesis], config: SearchConfig
) -> list[Hypothesis]:
    """The best when what each left unread is held against it (Wu et al., 2016): score + beta cp."""
    specials = reader.target.specials
    source = torch.tensor([*ids, reader.source.specials.end], device=reader.device)
    target_in = pad([[specials.start, *one.tokens] for one in hypotheses], specials.pad).to(reader.device)
    lengths = torch.tensor([len(one.tokens) + 1 for one in hypotheses], device=reader.device)
    unread = coverage_of(reader.model, source, target_in, lengths).tolist()
    judged = [one._replace(score=one.score + config.coverage * cp) for one, cp in zip(hypotheses, unread, strict=True)]
    return sorted(judged, key=lambda one: one.score, reverse=True)[: config.n_best]


def replace_unknown_words(
    reader: AttentionReader, ids: list[int], text: str, tokens: list[int], known: Mapping[str, str]
) -> str | None:
    """PosUnk (Luong et al., 2015): the translation, where an unknown word becomes the source word that was looked at most
    when it was said, or what a dictionary has for that. None where no word is unknown."""
    unknown = reader.target.specials.unk
    if unknown not in tokens:
        return None
    batch = collate([ids], [tokens], reader.source.specials, reader.target.specials).to(reader.device)
    weights = mean_cross_attention(reader.model, (batch.source, batch.target_in))  # (target, source)
    owner, words = reader.source.word_of(ids), text.split()
    said, run = "", []
    for position, token in enumerate(tokens):
        if token != unknown:
            run.append(token)
            continue
        word = words[owner[int(weights[position, : len(ids)].argmax())]]
        said = append(append(said, reader.target.decode(run)), known.get(word, word))
        run = []
    return append(said, reader.target.decode(run))


def append(text: str, more: str) -> str:
    return f"{text} {more}".strip() if more else text


@lru_cache(maxsize=4)
def read_dictionary(path: str) -> Mapping[str, str]:
    """A line a word: source TAB translation. The first of several lines for a word counts."""
    found: dict[str, str] = {}
    for number, line in enumerate(read_texts(Path(path)), start=1):
        source, tab, target = line.partition("\t")
        if not tab or not source.strip() or not target.strip():
            raise DataError(f"{path} line {number} is not a source word, a tab and its translation")
        found.setdefault(source.strip(), target.strip())
    return found
