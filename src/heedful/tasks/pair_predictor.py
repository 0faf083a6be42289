"""The base class of predictors of pairs: a source is encoded, and a target is searched for. A translation, or a reply."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import ClassVar, Self, TypeVar

import torch
from torch import Tensor

from heedful.data.samples import Sample
from heedful.errors import ConfigError, DataError
from heedful.search import SearchConfig
from heedful.tasks.batches import collate, source_tensors
from heedful.tasks.decoding import Decoder, Piece
from heedful.tasks.encoded_example import Decoded, EncodedExample, Tokens, token_outputs, tokens_from_ids
from heedful.tasks.forced import ForcedBatch, sequence_batches
from heedful.tasks.objectives import sequence_losses
from heedful.tasks.predictor import LOSS_TOKENS, Predictor, refuse_empty
from heedful.tasks.system import batches_of
from heedful.tasks.translation.samples import encode_pairs, fill_targets
from heedful.tasks.translation.translate import decode_pieces, pair_decoder
from heedful.text.tokenizer import Tokenizer

AnyPredictor = TypeVar("AnyPredictor", bound=Predictor)


class PairPredictor(Predictor):
    phases: ClassVar[tuple[str, ...]] = ("training step", "encoding", "decoding one token")
    has_source = decodes = True

    def pairs(self, split: str) -> Iterator[tuple[str, str]]:
        """The source and the target of every example of a split of the run's data; none if the run has no such split."""
        raise NotImplementedError

    def decoder(self) -> Decoder:
        return pair_decoder(self.system)

    def training_losses(self, count: int) -> Iterator[Callable[[], Tensor]]:
        """Pairs longer than the model's maximum are left out."""
        system, texts = self.system, list(islice(self.pairs("train"), count))
        sources = system.source_tokenizer.encode_many([source for source, _ in texts])
        targets = system.target_tokenizer.encode_many([target for _, target in texts])
        lengths = [max(len(source), len(target)) + 1 for source, target in zip(sources, targets, strict=True)]
        order = sorted((i for i, length in enumerate(lengths) if length <= system.max_length), key=lambda i: -lengths[i])
        specials = system.source_tokenizer.specials, system.target_tokenizer.specials
        for chosen in batches_of(order, lambda i: lengths[i], LOSS_TOKENS):
            batch = collate([sources[i] for i in chosen], [targets[i] for i in chosen], *specials).to(system.device)
            yield partial(sequence_losses, system.models[0], batch, specials[1].pad)

    def forced_batches(self, samples: Iterable[Sample]) -> Iterator[ForcedBatch]:
        filled = fill_targets(self.system, list(samples), self.search_config())
        return sequence_batches(self.system, encode_pairs(self.system, filled))

    def encode_example(self, text: str, target: str | None = None, config: SearchConfig | None = None) -> EncodedExample:
        """The source with its best target, or with the given one."""
        refuse_empty(text, target)
        if target is not None and config is not None:
            raise ConfigError("search options have no effect with a given target", hint="remove one of them")
        system, source = self.system, self.encode_source(text)
        if target is None:
            (best, *_) = decode_pieces(system, [Piece(0, source.ids, [], text)], config or self.run.search)[0]
            output = tokens_from_ids(system.target_tokenizer, best.text, best.tokens)
        else:
            output = tokens_from_ids(system.target_tokenizer, target, system.target_tokenizer.encode(target))
        specials = system.target_tokenizer.specials
        batch = collate([source.ids], [output.ids], system.source_tokenizer.specials, specials).to(system.device)
        start, end = system.target_tokenizer.pieces([specials.start, specials.end])
        steps = torch.arange(batch.target_out.shape[1], device=system.device)
        outputs = token_outputs(system.target_tokenizer, batch.target_out[0], steps)
        return EncodedExample(source, output, start, end, batch.source, batch.target_in, outputs)

    def encode_source(self, text: str) -> Tokens:
        """Tokenize a source and check its length."""
        refuse_empty(text)
        system = self.system
        tokens = tokens_from_ids(system.source_tokenizer, text, system.source_tokenizer.encode(text))
        if not 0 < len(tokens.ids) <= system.max_length:
            raise DataError(
                f"the source has {len(tokens.ids)} tokens; expected 1 to {system.max_length}", hint="give one sentence"
            )
        return tokens

    def replace_input(self, example: EncodedExample, text: str) -> EncodedExample:
        source = self.encode_source(text)
        ids, _ = source_tensors([source.ids], self.system.source_tokenizer.specials)
        return replace(example, source=source, source_ids=ids.to(self.system.device))

    def decode_example(
        self, example: EncodedExample, prefix: Sequence[int] = (), config: SearchConfig | None = None
    ) -> Decoded:
        """The best target with this prefix."""
        assert example.source is not None, "a pair has a source"
        piece = Piece(0, example.source.ids, list(prefix), example.source.text)
        best = decode_pieces(self.system, [piece], config or self.run.search)[0][0]
        return Decoded(best.text, best.tokens, best.log_probability, best.score)

    @property
    def input_tokenizer(self) -> Tokenizer:
        return self.system.source_tokenizer

    def join(self, others: Sequence[Predictor]) -> Self:
        return join_predictors([self, *map(type(self).of, others)])


def join_predictors(members: Sequence[AnyPredictor]) -> AnyPredictor:
    """An ensemble of predictors of one class; an error if they have different vocabularies."""
    first = members[0]
    for member in members:
        for side in ("source_tokenizer", "target_tokenizer"):
            if getattr(member.system, side).fingerprint != getattr(first.system, side).fingerprint:
                raise ConfigError(
                    f"{member.checkpoint.parent.parent} has another {side.replace('_', ' ')} than "
                    f"{first.checkpoint.parent.parent}; expected the same in all runs"
                )
    return type(first)(first.run, replace(first.system, models=[one.model for one in members], engines={}), first.checkpoint)
