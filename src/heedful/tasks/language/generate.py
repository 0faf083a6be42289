"""Text generation from prompts, and the log-probability of given continuations.

    generate(system, ["ROMEO:", "JULIET:"], GenerationOptions(length=200), SearchConfig(method="sample", temperature=0.8))
    score_endings(system, "It was a dull film. I would call it", [" great", " bad"])              log p of each

The end of a line is a token like any other here, so a text ends by its length or at a stop string. A text longer than the
model's context is continued from the last half of it. All prompts are decoded together, by continuous batching, and a
prefix that several prompts share is encoded once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from heedful.config.bounds import MAX_SIZE
from heedful.data.input_lines import refuse_too_long
from heedful.data.text_store import decode_text, encode_text
from heedful.errors import ConfigError
from heedful.search import Hypothesis, SearchConfig
from heedful.tasks.continuous_batching import run_jobs
from heedful.tasks.decoding import Decoder, Piece
from heedful.tasks.system import System

LINE_BITS = 40  # the random stream of a sample: its number in the low bits, the line above them
UNFINISHED = "\ufffd"  # the replacement of a character whose last bytes are still missing
SPACING = 4  # tokens that decide how the next one is written
TAIL = 32  # tokens at the end of a text in which a stop string is looked for, besides those as long as the string


class GenerationOptions(NamedTuple):
    length: int = 200  # new tokens
    stop: tuple[str, ...] = ()  # texts that end the generation; they are not part of the result
    logprobs: int | None = None  # alternatives for each token, with log-probabilities; None: no log-probabilities


class TokenLogProbability(NamedTuple):
    token: str
    log_probability: float
    top: list[tuple[str, float]]  # the most probable tokens at this position


class Completion(NamedTuple):
    """A text that continues a prompt."""

    text: str  # without the prompt
    tokens: list[int]
    finish_reason: str  # "stop": a stop string was generated; "length"
    log_probabilities: list[TokenLogProbability] | None = None

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"text": self.text, "tokens": len(self.tokens), "finish_reason": self.finish_reason}
        if self.log_probabilities is not None:
            found["log_probabilities"] = [{**one._asdict(), "top": dict(one.top)} for one in self.log_probabilities]
        return found


class Continuation(NamedTuple):
    """The texts that continue a prompt."""

    prompt: str
    completions: list[Completion]  # several samples
    prompt_tokens: int

    @property
    def texts(self) -> list[str]:
        """Prompt and completion of each sample."""
        return [self.prompt + completion.text for completion in self.completions]

    @property
    def text(self) -> str:
        return self.texts[0]

    def rows(self) -> list[str]:
        return ["\n---\n".join(self.texts)]

    def to_dict(self) -> dict[str, Any]:
        return {"prompt": self.prompt, "texts": self.texts, "completions": [one.to_dict() for one in self.completions]}


class Sample:
    """One text as it grows: the prompt and its continuation, in rounds if it is longer than the model's context."""

    def __init__(self, prompt: list[int]) -> None:
        self.ids = prompt  # a text starts after the end of a line
        self.prompt_tokens = len(prompt)
        self.rounds: list[tuple[list[int], list[int]]] = []  # (context, new tokens) of each
        self.context: list[int] = []
        self.current: list[int] = []  # new tokens of the current round
        self.stopped: int | None = None  # where a stop string begins in the continuation
        self.is_complete = False
        self.text = ""  # of the tokens that were decoded for streaming: those before `decoded`
        self.previous = self.decoded = len(prompt)  # `previous`: the tokens from there on decide how the next ones are written
        self.shown = 0  # characters of the continuation that were streamed

    @property
    def new(self) -> list[int]:
        return [*self.ids[self.prompt_tokens :], *self.current]


class GenerationJob:
    """One prompt and its samples."""

    def __init__(
        self,
        system: System,
        prompt: str,
        options: GenerationOptions,
        config: SearchConfig,
        *,
        line: int = 0,
        stream: bool = False,
    ) -> None:
        refuse_too_long(prompt, "the prompt")
        self.system, self.given, self.options, self.search = system, prompt, options, config
        self.line, self.place = line, f"line {line + 1}"
        # The best hypothesis of a beam may change until the end of a round.
        self.watched = config.method != "beam" and (stream or bool(options.stop))
        # No text has padding, which is the end token here; a minimum length beyond every limit rules it out.
        self.config = config.model_copy(update={"n_best": 1, "min_length": MAX_SIZE})
        self.prompt = [system.target_tokenizer.specials.end, *encode_text(system.target_tokenizer, prompt)]
        self.prompt_text = decode_text(system.target_tokenizer, self.prompt[1:])
        self.longest_stop = max(map(len, options.stop), default=0)
        self.samples = [Sample(list(self.prompt)) for _ in range(config.n_best if config.method == "sample" else 1)]

    @property
    def input_tokens(self) -> int:
        return len(self.prompt) - 1

    @property
    def output_tokens(self) -> int:
        return sum(len(sample.new) for sample in self.samples)

    def pieces(self) -> list[Piece]:
        return [self.next_piece(number) for number in range(len(self.samples))]

    def next_piece(self, number: int) -> Piece:
        """The next round of a sample."""
        sample, window = self.samples[number], self.system.max_length
        left = self.options.length - (len(sample.ids) - sample.prompt_tokens)
        context = len(sample.ids) if len(sample.ids) < window else max(1, window // 2)
        sample.context, sample.current = sample.ids[-context:], []
        sampling = self.search.sampling(len(sample.rounds) * len(self.samples) + number + (self.line << LINE_BITS))
        limit = min(left, window - context) or 1
        return Piece(number, sample.context[:-1], [], "", start=sample.context[-1], limit=limit, sampling=sampling)

    def progress(self, piece: int, tokens: list[int]) -> bool:
        sample = self.samples[piece]
        sample.current = tokens
        return self.find_stop(sample)

    def complete(self, piece: int, hypotheses: Sequence[Hypothesis] | None) -> list[Piece]:
        sample = self.samples[piece]
        if hypotheses is not None:
            sample.current = hypotheses[0].tokens
            self.find_stop(sample)
        sample.rounds.append((sample.context, sample.current))
        sample.ids, sample.current = [*sample.ids, *sample.current], []
        sample.is_complete = sample.stopped is not None or len(sample.new) >= self.options.length
        return [] if sample.is_complete else [self.next_piece(piece)]

    def find_stop(self, sample: Sample) -> bool:
        """Look for a stop string at the end of a sample."""
        if not self.options.stop or sample.stopped is not None:
            return sample.stopped is not None
        tail = decode_text(self.system.target_tokenizer, sample.new[-TAIL - self.longest_stop :])
        if any(stop in tail for stop in self.options.stop):
            text = self.continuation(sample.new)
            found = [at for at in (text.find(stop) for stop in self.options.stop) if at >= 0]
            sample.stopped = min(found, default=None)
        return sample.stopped is not None

    def continuation(self, new: list[int]) -> str:
        """The text of new tokens after the prompt; a joined text may be spaced otherwise than two texts."""
        tokenizer = self.system.target_tokenizer
        text = decode_text(tokenizer, [*self.prompt[1:], *new])
        return text[len(self.prompt_text) :] if text.startswith(self.prompt_text) else decode_text(tokenizer, new)

    def new_text(self, sample: int) -> str:
        """The text of a sample since the last call; what may become part of a stop string or of a character is held back."""
        one = self.samples[sample]
        if one.is_complete:
            text = self.continuation(one.new)[: one.stopped]
        else:
            self.decode_new(one)
            held = (k for k in range(1, self.longest_stop) if any(stop.startswith(one.text[-k:]) for stop in self.options.stop))
            text = one.text[: len(one.text) - max(held, default=0)]
        part, one.shown = text[one.shown :], max(one.shown, len(text))
        return part

    def decode_new(self, sample: Sample) -> None:
        """Decode the tokens since the last call, together with those of the last call but one: the whole text would take longer
        with every token."""
        tokenizer, ids = self.system.target_tokenizer, [*sample.ids, *sample.current]
        first = max(1, sample.previous - SPACING)
        before = decode_text(tokenizer, ids[first : sample.decoded])
        after = decode_text(tokenizer, ids[first:])
        if after.startswith(before) and not after.endswith(UNFINISHED):
            sample.text += after[len(before) :]
            sample.previous, sample.decoded = sample.decoded, len(ids)

    def prediction(self) -> Continuation:
        completions = [self.completion(sample) for sample in self.samples]
        return Continuation(self.given, completions, self.input_tokens)

    def completion(self, sample: Sample) -> Completion:
        text, tokens = self.continuation(sample.new), sample.new
        reason = "length"
        if sample.stopped is not None:
            reason, text = "stop", text[: sample.stopped]
            while tokens and len(self.continuation(tokens[:-1])) >= len(text):
                tokens = tokens[:-1]
        found = None if self.options.logprobs is None else log_probabilities(self.system, sample, self.options.logprobs)
        return Completion(text, tokens, reason, None if found is None else found[: len(tokens)])


def text_decoder(system: System) -> Decoder:
    """The decoder of a language model: a text has no end but its length."""
    specials = system.target_tokenizer.specials
    return Decoder(system, specials.end, specials.pad, ends_source=False)


def generate(
    system: System, prompts: Sequence[str], options: GenerationOptions, config: SearchConfig, *, first: int = 0
) -> Iterator[Continuation]:
    """Yield the continuation of each prompt, decoded together; first: number of the first prompt, which keys random numbers."""
    jobs = [GenerationJob(system, prompt, options, config, line=first + at) for at, prompt in enumerate(prompts)]
    return run_jobs(text_decoder(system), jobs) if jobs else iter(())


@torch.inference_mode()
def log_probabilities(system: System, sample: Sample, top: int) -> list[TokenLogProbability]:
    """log p of each new token, and of the `top` most probable ones at its position."""
    (model,) = system.models
    found = []
    for context, new in sample.rounds:
        given = torch.tensor([[*context, *new]], device=system.device)
        step = model.forced(None, None, given[:, :-1])
        scores = model.project(step.hidden[0, -len(new) :]).float().log_softmax(-1)  # (new, vocab)
        own = scores.gather(-1, given[0, -len(new) :, None]).squeeze(-1).tolist()
        best = scores.topk(top)
        for at, (token, score) in enumerate(zip(new, own, strict=True)):
            before = [*context, *new[:at]][-SPACING:]
            ranked = zip(best.indices[at].tolist(), best.values[at].tolist(), strict=True)
            pairs = [(token_text(system, before, other), value) for other, value in ranked]
            found.append(TokenLogProbability(token_text(system, before, token), score, pairs))
    return found


def token_text(system: System, before: list[int], token: int) -> str:
    """What a token adds to the text of the tokens before it: a word may come with a space."""
    tokenizer = system.target_tokenizer
    return decode_text(tokenizer, [*before, token]).removeprefix(decode_text(tokenizer, before))


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
