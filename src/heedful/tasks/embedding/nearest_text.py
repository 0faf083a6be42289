"""What analyses of a text need where the output is the most similar one of a set of texts: embeddings and retrieval."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import torch

from heedful.data.samples import Sample
from heedful.data.similar import SimilarTexts
from heedful.errors import ConfigError
from heedful.nn.model import inference_context
from heedful.search import SearchConfig
from heedful.tasks.embedding.data import Ids, encode_texts
from heedful.tasks.embedding.evaluate import encode_ids
from heedful.tasks.embedding.forced import Candidates, encode_row, similar_batches
from heedful.tasks.embedding.model import EmbeddingModel
from heedful.tasks.encoded_example import Decoded, EncodedExample
from heedful.tasks.forced import EncodedSample, ForcedBatch, pieces_of
from heedful.tasks.predictor import Predictor, refuse_empty


class NearestTextPredictor(Predictor):
    """Predicts the most similar one of a set of candidates."""

    @property
    def embedder(self) -> EmbeddingModel:
        """The encoder of input texts, with its pooling."""
        raise NotImplementedError

    @property
    def temperature(self) -> float:
        """Similarities are divided by this before the softmax."""
        raise NotImplementedError

    def candidates(self, pairs: Sequence[SimilarTexts] = ()) -> Candidates:
        """Those of the validation data, and of further pairs."""
        raise NotImplementedError

    def encode_example(self, text: str, target: str | None = None, config: SearchConfig | None = None) -> EncodedExample:
        """The text with its most similar candidate; target: a text to compare it with instead."""
        refuse_empty(text, target)
        if config is not None:
            raise ConfigError("search options have no effect on embeddings, which decode no text", hint="remove them")
        candidates = self.candidates([] if target is None else [SimilarTexts(text, target)])
        row, *other = encode_texts([text, *([] if target is None else [target])], self.input_tokenizer, self.system.max_length)
        positive = candidates.places[other[0]] if other else self.nearest(row, candidates)
        return encode_row(row, text, positive, candidates, self.system, self.temperature)

    def nearest(self, row: Ids, candidates: Candidates) -> int:
        """The index of the candidate that is most similar to a text, other than itself."""
        scores = candidates.vectors @ encode_ids(self.embedder, self.system, [row])[0]
        others = [at != candidates.places.get(row) for at in range(len(scores))]
        return int(scores.masked_fill(~torch.tensor(others, device=scores.device), -math.inf).argmax())

    def decode_example(
        self, example: EncodedExample, prefix: Sequence[int] = (), config: SearchConfig | None = None
    ) -> Decoded:
        """The most similar candidate."""
        if prefix:
            raise ConfigError("embeddings decode no text, so no token can be forced", hint="compare the similarities")
        with inference_context(self.embedder):
            logs = example.logits(self.embedder, example.forward(self.embedder).hidden)[0, 0].log_softmax(-1)
        best = int(logs.argmax())
        return Decoded(example.outputs.spell([best])[0], [best], float(logs[best]), float(logs[best]))

    def replace_input(self, example: EncodedExample, text: str) -> EncodedExample:
        return self.encode_example(text, example.outputs.pieces[0])

    def forced_batches(self, samples: Iterable[Sample]) -> Iterator[ForcedBatch]:
        """Truncated texts are left out; a missing positive is the most similar candidate."""
        tokenizer, most = self.input_tokenizer, self.system.max_length
        found = [(sample, pieces_of(tokenizer, sample.target or "", sample.target_arcs, most - 1)) for sample in samples]
        pairs = [SimilarTexts(sample.target or "", sample.label) for sample, _ in found if sample.label is not None]
        candidates, rows = self.candidates(pairs), []
        names = list(candidates.places)
        for sample, pieces in found:
            if pieces is not None:
                text = (tokenizer.specials.start, *pieces.ids, tokenizer.specials.end)
                known = None if sample.label is None else encode_texts([sample.label], tokenizer, most)[0]
                rows.append((EncodedSample(None, pieces), known or names[self.nearest(text, candidates)]))
        return similar_batches(self.embedder, self.system, rows, candidates, self.temperature)
