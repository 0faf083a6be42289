"""A trained language model: heedful.load("runs/language-shakespeare-char").generate("ROMEO:", length=200)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from heedful.config.given import ARGUMENT, OVERRIDE
from heedful.data.corpus_text import passages, read_passage
from heedful.data.input_lines import checked_chunks, chunk_lines, read_texts, refuse_too_long
from heedful.data.samples import Sample
from heedful.data.text_store import encode_text, open_text
from heedful.errors import ConfigError, DataError
from heedful.search import SearchConfig
from heedful.tasks.batches import Batch
from heedful.tasks.decoding import Decoder
from heedful.tasks.encoded_example import NEXT_TOKEN, EncodedExample, token_outputs, tokens_from_ids
from heedful.tasks.forced import EncodedSample, ForcedBatch, pieces_of, sequence_batches
from heedful.tasks.language.command import PredictOptions
from heedful.tasks.language.evaluate import evaluate_text
from heedful.tasks.language.generate import (
    Continuation,
    GenerationJob,
    GenerationOptions,
    generate,
    score_endings,
    text_decoder,
)
from heedful.tasks.objectives import sequence_losses
from heedful.tasks.predictor import (
    LOSS_TOKENS,
    Figures,
    Loader,
    Predictor,
    Searcher,
    ValidationResult,
    check_split,
    missing_split_error,
    note_unknown_in_chunks,
    refuse_empty,
)
from heedful.tasks.system import System
from heedful.text.long_lines import encode_lines

# Search options without effect on generation: every text has exactly `length` new tokens, and there is no source.
MAX_LOGPROBS = 20  # alternatives for each token
UNUSED = ("penalty", "length_penalty", "coverage", "min_length", "max_length", "max_extra", "replace_unknown", "dictionary")


def generation_options(length: object = PredictOptions.length, stop: object = (), logprobs: object = None) -> GenerationOptions:
    """The options of generation from keyword arguments; an error for values of another kind."""
    if not isinstance(length, int) or length < 1:
        raise ConfigError(f"{ARGUMENT}: length: given {length!r}, expected an integer from 1")
    stops = (stop,) if isinstance(stop, str) else stop
    if not isinstance(stops, Sequence) or not all(isinstance(text, str) and text for text in stops):
        raise ConfigError(f"{ARGUMENT}: stop: given {stop!r:.60}, expected a text, or a list of texts that are not empty")
    if logprobs is not None and (not isinstance(logprobs, int) or not 0 <= logprobs <= MAX_LOGPROBS):
        raise ConfigError(f"{ARGUMENT}: logprobs: given {logprobs!r}, expected an integer from 0 to {MAX_LOGPROBS}")
    return GenerationOptions(length, tuple(stops), logprobs)


class TextGenerator(Predictor):
    """A trained language model.

    >>> generator = heedful.TextGenerator.load(language_run)
    >>> text = generator.predict("the cat", length=3)
    >>> text.startswith("the cat")
    True
    """

    phases: ClassVar[tuple[str, ...]] = ("training step", "decoding one token")
    predicts_input = decodes = True

    def generate(self, prompt: str = "", length: int = 200, *, stop: str | Sequence[str] = (), **search: Any) -> list[str]:
        """The prompt and `length` more tokens, or less if a stop string is generated; options of `SearchConfig` may be given by
        name. n_best: number of samples."""
        (continuation,) = self.predictions([prompt], length=length, stop=stop, **search)
        return continuation.texts

    def predictions(self, texts: Iterable[str], **options: Any) -> Iterator[Continuation]:
        """As in `Predictor`. length: new tokens; stop: texts that end the generation; logprobs: return the log-probability of
        each token and of this many alternatives."""
        generation, config = self.split_options(options)
        return self.continue_chunks(chunk_lines(texts), generation, config)

    def split_options(self, options: Mapping[str, Any]) -> tuple[GenerationOptions, SearchConfig]:
        own = {name: value for name, value in options.items() if name in GenerationOptions._fields}
        search = {name: value for name, value in options.items() if name not in own}
        return generation_options(**own), self.search_config_from(search)

    def predict_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        config: SearchConfig,
        options: PredictOptions,
        unknown: dict[str, int],
        first: int = 1,
    ) -> Iterator[Continuation]:
        chunks = note_unknown_in_chunks(chunks, self.system.target_tokenizer, unknown, first)
        return self.continue_chunks(chunks, generation_options(options.length, options.stop or ()), config, first)

    def continue_chunks(
        self, chunks: Iterable[Sequence[str]], options: GenerationOptions, config: SearchConfig, first: int = 1
    ) -> Iterator[Continuation]:
        for number, prompts in checked_chunks(chunks, check_prompt, first):
            yield from generate(self.system, prompts, options, config, first=number - 1)

    def job(self, text: str, *, number: int = 0, stream: bool = False, **options: Any) -> GenerationJob:
        return GenerationJob(self.system, text, *self.split_options(options), line=number, stream=stream)

    def decoder(self) -> Decoder:
        return text_decoder(self.system)

    def search_config(self, changes: Sequence[str] = (), *, origin: str = OVERRIDE) -> SearchConfig:
        """As in `Predictor`; an option without effect on generation is an error."""
        for name in (change.split("=", 1)[0].strip() for change in changes):
            if name in UNUSED:
                raise ConfigError(f"search.{name} has no effect on a language model, which adds exactly `length` tokens")
        config = super().search_config(changes, origin=origin)
        if config.method != "sample" and config.n_best > 1:
            raise ConfigError(
                f"search.n_best: given {config.n_best}, but {config.method} search generates one text",
                hint="use method=sample to generate several",
            )
        return config

    def score(self, prompt: str, endings: Sequence[str]) -> list[float]:
        """log p of each ending after the prompt; the most probable one is a zero-shot answer."""
        return score_endings(self.system, prompt, endings)

    def evaluate(self, split: str = "test", stride: int | None = None) -> dict[str, float]:
        """Loss, perplexity and bits on a split of the run's data; stride: default: task.stride."""
        check_split(self.run.data, split)
        parts = passages(self.run.data, split)
        if not parts:
            raise missing_split_error(split)
        if split == "train" and self.run.data.max_store_megabytes is not None:
            raise ConfigError(
                "the training text is not evaluated, because data.max_store_megabytes limits its size on the disk",
                hint="choose another split, valid or test",
            )
        text = open_text(parts, self.system.target_tokenizer)
        own: int = self.run.task.stride
        return evaluate_text(self.system, text, self.run.data.block, own if stride is None else stride)

    def report(self, split: str | None, options: Any, *, load: Loader, search: Searcher) -> Figures:
        return Figures(split or "test", self.evaluate(split or "test"))

    def validate(self) -> ValidationResult:
        return ValidationResult(self.evaluate("valid"), None, None, {})

    def encode_example(self, text: str, target: str | None = None, config: SearchConfig | None = None) -> EncodedExample:
        """The text itself, which starts after the end of a line, as every text in training."""
        refuse_empty(text)
        if target is not None:
            raise ConfigError("a target has no effect for a language model, which has only one text", hint="remove the target")
        if config is not None:
            raise ConfigError("search options have no effect on the analysis of a given text", hint="remove them")
        system, tokenizer = self.system, self.system.target_tokenizer
        ids, end = encode_text(tokenizer, text), tokenizer.specials.end
        if not 0 < len(ids) < system.max_length:
            raise DataError(
                f"the text has {len(ids)} tokens; expected 1 to {system.max_length - 1}", hint="give a shorter text"
            )
        target_in = torch.tensor([[end, *ids]], device=system.device)
        target_out = torch.tensor([*ids, end], device=system.device)
        outputs = token_outputs(tokenizer, target_out, torch.arange(len(target_out), device=system.device))
        tokens = tokens_from_ids(tokenizer, text, ids)
        return EncodedExample(None, tokens, tokenizer.pieces([end])[0], NEXT_TOKEN, target_in[:, :0], target_in, outputs)

    def training_losses(self, count: int) -> Iterator[Callable[[], Tensor]]:
        """Of the first `count` blocks of the training text."""
        system, block = self.system, self.run.data.block
        lines = chain.from_iterable(map(read_passage, passages(self.run.data, "train")))
        encoded = encode_lines(system.target_tokenizer, lines, system.target_tokenizer.specials.end)
        ids = np.fromiter(islice(chain.from_iterable(encoded), count * block + 1), np.int64)
        rows = torch.from_numpy(ids[: (len(ids) - 1) // block * block + 1])
        inputs, targets = rows[:-1].view(-1, block), rows[1:].view(-1, block)  # (blocks, block)
        size, pad = max(1, LOSS_TOKENS // block), system.target_tokenizer.specials.pad
        for target_in, target_out in zip(torch.split(inputs, size), torch.split(targets, size), strict=True):
            batch = Batch(target_in[:, :0], None, target_in, target_out, target_out.numel()).to(system.device)
            yield partial(sequence_losses, system.models[0], batch, pad)

    def sample_texts(self, split: str) -> Iterator[Sample]:
        """The lines that are not empty."""
        lines = chain.from_iterable(map(read_passage, passages(self.run.data, split)))
        return (self.sample_of(line) for line in lines if line.strip())

    def read_samples(self, path: Path) -> Iterator[Sample]:
        """One text per line."""
        return map(self.sample_of, read_texts(path))

    def forced_batches(self, samples: Iterable[Sample]) -> Iterator[ForcedBatch]:
        return sequence_batches(self.system, encode_texts(self.system, samples))


def encode_texts(system: System, samples: Iterable[Sample]) -> list[EncodedSample]:
    """Tokenized texts; those that are empty, too long, or have tokens across word boundaries are left out."""
    tokenizer, longest = system.target_tokenizer, system.max_length
    texts = (pieces_of(tokenizer, sample.target or "", sample.target_arcs, longest) for sample in samples)
    return [EncodedSample(None, pieces) for pieces in texts if pieces is not None]


def check_prompt(prompt: str, number: int) -> str:
    """The prompt; an error if it is too long."""
    refuse_too_long(prompt, f"line {number}")
    return prompt
