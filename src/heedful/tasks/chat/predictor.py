"""A trained chat model: heedful.load("runs/bot").reply(["hello"]).text."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from heedful.data.conllu import Arc
from heedful.data.dialogues import Turn, format_history
from heedful.data.input_lines import chunk_lines, read_texts
from heedful.data.samples import Sample
from heedful.errors import ConfigError
from heedful.search import SearchConfig
from heedful.search.hypothesis import OPTIONS_OF
from heedful.tasks.base import RunConfig
from heedful.tasks.chat.command import EvaluateOptions
from heedful.tasks.chat.data import ChatData
from heedful.tasks.chat.evaluate import evaluate_replies, evenly_spaced
from heedful.tasks.chat.history import chat_system
from heedful.tasks.chat.why import AttentionByTurn, attention_by_turn
from heedful.tasks.continuous_batching import ContinuousBatch
from heedful.tasks.conversation import Conversation, Show
from heedful.tasks.encoded_example import TokenLoss, Tokens
from heedful.tasks.pair_predictor import PairPredictor
from heedful.tasks.predictor import (
    Figures,
    Loader,
    Searcher,
    ValidationResult,
    check_split,
    missing_split_error,
    note_unknown_in_chunks,
)
from heedful.tasks.system import System
from heedful.tasks.translation.data import Examples
from heedful.tasks.translation.evaluate import Scored, score_pairs
from heedful.tasks.translation.job import PairJob
from heedful.tasks.translation.translate import Candidate, InputLine, candidate_rows, line_pieces, translate_chunks


class Reply(NamedTuple):
    history: list[str]
    candidates: list[Candidate]  # best first, or samples in their order; at least one
    neighbors: Sequence[Candidate] = ()  # none: the reply is generated, not retrieved

    @property
    def text(self) -> str:
        return self.candidates[0].text

    def rows(self) -> list[str]:
        return candidate_rows(self.candidates)

    def to_dict(self) -> dict[str, Any]:
        best = self.candidates[0]
        candidates = [candidate.to_dict() for candidate in self.candidates]
        return {"history": self.history, "reply": best.text, "score": best.score, "candidates": candidates}


class ChatBot(PairPredictor):
    """A trained chat model.

    >>> bot = heedful.ChatBot.load(chat_run)
    >>> conversation = bot.conversation()
    >>> conversation.say("the cat").text == bot.predict("the cat")
    True
    >>> len(conversation.turns)
    2
    """

    def __init__(self, run: RunConfig, system: System, checkpoint: Path) -> None:
        super().__init__(run, chat_system(run.data, system), checkpoint)

    def conversation(self, **search: Any) -> Conversation:
        """A new conversation; options of `SearchConfig` may be given by name."""
        return Conversation(self, **search)

    def reply(
        self,
        history: Sequence[str],
        *,
        show: Show | None = None,
        candidates: int = 1,
        temperature: float | None = None,
        **search: Any,
    ) -> Reply:
        """The reply to the last turn of a history, oldest turn first. show: is called with each new part of the reply while it
        is generated; candidates: replies to return, with scores; temperature: of sampling, None: as the run searches; search:
        options of `SearchConfig`."""
        parts = self.stream(history, **self.search_options(candidates, temperature, search))
        while True:
            try:
                part = next(parts)
            except StopIteration as done:
                reply: Reply = done.value
                return reply
            if show is not None:
                show(part)

    def search_options(self, candidates: int, temperature: float | None, search: Mapping[str, Any]) -> dict[str, Any]:
        """Options of `SearchConfig`: a temperature selects sampling; without sampling, a beam finds several candidates."""
        options = dict(search)
        if temperature is not None:
            options = {name: value for name, value in options.items() if name not in OPTIONS_OF["beam"]}
            options |= {"method": "sample", "temperature": temperature}
        if candidates > 1:
            if self.search_config_from(options).method != "sample":
                options |= {"method": "beam", "beam": max(candidates, options.get("beam", self.run.search.beam))}
            options["n_best"] = candidates
        return options

    def stream(self, history: Sequence[str], **search: Any) -> Generator[str, None, Reply]:
        """Yield the parts of the reply as they are generated, and return it. Beam search, whose best hypothesis may change
        until the end, yields the whole text at once."""
        turns = check_history(history)
        job = self.reply_job(turns, self.search_config_from(search), number=len(turns) - 1, stream=True)
        batch = ContinuousBatch(self.decoder(), capacity=1)
        complete = batch.submit(job)
        while not complete:
            complete = bool(batch.step())
            for _, error in batch.failures:
                raise error
            yield job.new_text(0)
        batch.close()
        reply: Reply = job.prediction()
        return reply

    def reply_job(self, turns: list[str], config: SearchConfig, *, number: int = 0, stream: bool = False) -> PairJob:
        """The reply to a history as a job; number: keys random numbers, so that another turn has other samples."""
        text = self.source_text("\t".join(turns))
        parts = line_pieces(self.system, InputLine(text, ""), number)
        return PairJob(self.system, text, parts, config, lambda _, candidates: Reply(turns, candidates), stream=stream)

    def job(self, text: str, *, number: int = 0, stream: bool = False, **search: Any) -> PairJob:
        """A turn, or the turns of a dialogue, separated by tabs."""
        return self.reply_job(text.split("\t"), self.search_config_from(search), number=number, stream=stream)

    def predictions(self, texts: Iterable[str], **search: Any) -> Iterator[Reply]:
        """The reply to each text: a turn, or the turns of a dialogue, separated by tabs."""
        return self.reply_chunks(chunk_lines(texts), self.search_config_from(search))

    def predict_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        config: SearchConfig,
        options: Any,
        unknown: dict[str, int],
        first: int = 1,
    ) -> Iterator[Reply]:
        noted = note_unknown_in_chunks(chunks, self.system.source_tokenizer, unknown, first)
        return self.reply_chunks(noted, config, first)

    def reply_chunks(self, chunks: Iterable[Sequence[str]], config: SearchConfig, first: int = 1) -> Iterator[Reply]:
        """The replies to lines that arrive in chunks, each chunk before the next is read; first: the number of the first."""
        lines: deque[str] = deque()

        def sources() -> Iterator[list[str]]:
            for chunk in chunks:
                lines.extend(chunk)
                yield [self.source_text(line) for line in chunk]

        for found in translate_chunks(self.system, sources(), config, first=first):
            yield Reply(lines.popleft().split("\t"), found.candidates)

    def source_text(self, text: str) -> str:
        """Turns separated by tabs as the text of a source; no words, no source."""
        return self.format_turns(text.split("\t")) if text.strip() else ""

    def format_turns(self, turns: Sequence[str]) -> str:
        """The last turns as the text of a source: two speakers alternate, and the one who replies is the second."""
        window = list(turns)[-self.run.data.turns :]
        history = [Turn(turn, (len(window) - 1 - at) % 2) for at, turn in enumerate(window)]
        return format_history(self.run.data.template, history, replier=1)

    def why(self, history: Sequence[str], reply: str | None = None) -> AttentionByTurn:
        """The attention of a reply to the turns of the history and their words. reply: default: the model's own."""
        turns = check_history(history)[-self.run.data.turns :]
        text = self.reply(turns).text if reply is None else reply
        return attention_by_turn(self.system, turns, self.format_turns(turns), self.run.data.template.separator, text)

    def score(self, histories: Sequence[Sequence[str]], replies: Sequence[str]) -> list[Scored | None]:
        """The log-probability of each reply given its history; None if the reply is too long for the model."""
        return score_pairs(self.system, [self.format_turns(turns) for turns in histories], replies)

    def examples(self, split: str) -> Examples:
        """The histories, as texts of sources, and the replies of a split of the run's data."""
        pairs = list(self.pairs(split))
        return Examples([source for source, _ in pairs], [reply for _, reply in pairs])

    def report(self, split: str | None, options: EvaluateOptions, *, load: Loader, search: Searcher) -> Figures:
        split = split or "test"
        check_split(self.run.data, split)
        examples = self.examples(split)
        if not examples.sources:
            raise missing_split_error(split)
        metrics = ("bleu", "chrf", "distinct_1", "distinct_2") if options.replies else ()
        figures = evaluate_replies(self.system, examples, search(self), metrics, options.replies).figures
        return Figures(split, {"replies": len(examples.sources), **figures})

    def validate(self) -> ValidationResult:
        task = self.run.task
        examples = evenly_spaced(self.examples("valid"), task.validation_examples)
        result = evaluate_replies(self.system, examples, self.run.search, task.validation_metrics, task.validation_replies)
        return ValidationResult(result.figures, len(examples.sources), len(result.replies), result.signatures)

    def pairs(self, split: str) -> Iterator[tuple[str, str]]:
        return ((pair.source, pair.target) for pair in ChatData(self.run).pairs(split))

    def sample_texts(self, split: str) -> Iterator[Sample]:
        return (Sample(source, reply) for source, reply in self.pairs(split))

    def read_samples(self, path: Path) -> Iterator[Sample]:
        """Dialogues, one per line, with tabs between turns; the last turn is the reply."""
        for line in read_texts(path):
            turns, _, reply = line.rpartition("\t")
            yield Sample(self.source_text(turns or reply), reply if turns else None)

    def sample_of(self, text: str, arcs: Sequence[Arc] | None = None) -> Sample:
        return Sample(self.source_text(text), source_arcs=arcs)

    def encode_source(self, text: str) -> Tokens:
        return super().encode_source(text if self.run.data.template.separator in text else self.source_text(text))

    def token_loss(self) -> TokenLoss:
        return TokenLoss(self.run.task.label_smoothing)


def check_history(history: Sequence[str]) -> list[str]:
    """The turns as a list; an error if they are one text, or if the last one, which is replied to, is empty."""
    if isinstance(history, str):
        raise ConfigError(f"one text was given, {history!r:.40}; expected a list of turns", hint="put it into brackets: [text]")
    turns = list(history)
    if not turns or not turns[-1].strip():
        raise ConfigError(f"given {turns!r:.60}, expected a last turn of at least one word")
    return turns
