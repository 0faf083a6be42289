"""Trained retrieval: heedful.Retriever.load("runs/mine").search("When do you open?", top=3) -> the best stored answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast, get_args

from torch import Tensor

from heedful.config.given import ARGUMENT
from heedful.data.input_lines import CHUNK_LINES, checked_chunks, refuse_too_long
from heedful.data.samples import Sample
from heedful.data.similar import SimilarTexts
from heedful.errors import ConfigError, lookup
from heedful.evaluation.tables import table
from heedful.search import SearchConfig
from heedful.tasks.embedding.evaluate import encode_ids
from heedful.tasks.embedding.forced import Candidates, make_candidates
from heedful.tasks.embedding.model import EmbeddingModel
from heedful.tasks.embedding.nearest_text import NearestTextPredictor
from heedful.tasks.encoded_example import EncodedExample
from heedful.tasks.predictor import (
    Loader,
    Searcher,
    ValidationResult,
    check_split,
    missing_split_error,
    note_unknown_in_chunks,
    refuse_empty,
)
from heedful.tasks.retrieval import report
from heedful.tasks.retrieval.command import EvaluateOptions, Match, PredictOptions
from heedful.tasks.retrieval.data import Example, RetrievalData
from heedful.tasks.retrieval.evaluate import evaluate
from heedful.tasks.retrieval.knowledge import (
    FOLDER,
    INDEX,
    REPLIES,
    Answer,
    Encoders,
    Entry,
    KnowledgeBase,
    open_knowledge,
    read_entries,
    write_index,
    write_replies,
)
from heedful.tasks.retrieval.model import DualEncoder, row_losses
from heedful.vectors.approximate import import_faiss

NEAREST = 5  # entries that explain a reply


class StoredQuestion(NamedTuple):
    text: str  # its turns, oldest first
    score: float


class RetrievedAnswers(NamedTuple):
    """A question, with its history, and the best stored answers."""

    question: tuple[str, ...]
    answers: list[Answer]
    detailed: bool  # whether all answers are printed with their scores

    @property
    def text(self) -> str:
        """The best answer."""
        return self.answers[0].text

    @property
    def candidates(self) -> Sequence[Answer]:
        """All answers, best first."""
        return self.answers

    @property
    def neighbors(self) -> Sequence[StoredQuestion]:
        """The stored questions that the answers belong to."""
        return [StoredQuestion(" | ".join(answer.question), answer.score) for answer in self.answers if answer.question]

    def rows(self) -> list[str]:
        texts = [" ".join(answer.text.split("\n")) for answer in self.answers]  # a line for each
        if not self.detailed:
            return texts[:1]
        return [f"{answer.score:.4f}\t{text}" for answer, text in zip(self.answers, texts, strict=True)]

    def to_dict(self) -> dict[str, Any]:
        answers = [answer_dict(answer) for answer in self.answers]
        return {"question": list(self.question), "reply": self.text, "answers": answers}


class NearestEntries(NamedTuple):
    """What a reply depends on: the entries that are most similar to the history."""

    reply: str
    answers: list[Answer]

    def text(self) -> str:
        return answer_table(self.answers)

    def to_dict(self) -> dict[str, Any]:
        return {"reply": self.reply, "neighbors": [answer_dict(answer) for answer in self.answers]}


def answer_table(answers: Sequence[Answer]) -> str:
    rows = [(f"{answer.score:.4f}", answer.text, answer.question[-1] if answer.question else "") for answer in answers]
    return table([("cosine", "answer", "stored question"), *rows])


def answer_dict(answer: Answer) -> dict[str, Any]:
    return answer._asdict() | {"question": list(answer.question)}


class Retriever(NearestTextPredictor):
    """Retrieval of stored answers: those of the training data, or of a file given to `build`.

    >>> retriever = heedful.Retriever.load(retrieval_run)
    >>> [answer.question for answer in retriever.search("the cat", top=1)]
    [('the cat',)]
    """

    phases: ClassVar[tuple[str, ...]] = ("training step", "prediction")

    @property
    def dual_encoder(self) -> DualEncoder:
        return cast(DualEncoder, cast(object, self.model))

    @property
    def embedder(self) -> EmbeddingModel:
        """The encoder of questions."""
        return self.dual_encoder

    @property
    def temperature(self) -> float:
        temperature: float = self.run.task.temperature
        return temperature

    @property
    def data(self) -> RetrievalData:
        return RetrievalData(self.run)

    @property
    def knowledge_folder(self) -> Path:
        return self.checkpoint.parent.parent / FOLDER

    @property
    def is_indexed(self) -> bool:
        """Whether there is an index; if not, the first search writes one."""
        return (self.knowledge_folder / INDEX).exists()

    @cached_property
    def knowledge(self) -> KnowledgeBase:
        """The stored answers, indexed; an error if the index belongs to another checkpoint or is damaged."""
        if not self.is_indexed:
            self.build()
        return open_knowledge(self.knowledge_folder, self.checkpoint, self.run.model.dim)

    def build(self, file: Path | None = None, *, approximate: bool = False) -> int:
        """Index the stored answers again, or those of a file, which replace them: .jsonl with the fields question and answer,
        or lines of turns and an answer, separated by tabs. Returns the number of entries. approximate: searches of this
        index are faster and may miss answers (faiss is required)."""
        if approximate:
            import_faiss()  # an error before anything is written
        if file is not None:
            write_replies(self.knowledge_folder, read_entries(file))
        elif not (self.knowledge_folder / REPLIES).exists():
            entries = (Entry(example.question, example.answer) for example in self.examples("train"))
            write_replies(self.knowledge_folder, entries)
        encoders = Encoders(self.encode_questions, self.encode_answers)
        write_index(self.knowledge_folder, self.checkpoint, encoders, approximate=approximate)
        self.__dict__.pop("knowledge", None)
        return len(self.knowledge)

    def encode_questions(self, questions: Sequence[Sequence[str]]) -> Tensor:
        """The vectors of questions with their history, of length 1: (questions, dim), on the CPU."""
        ids = self.data.encode_questions(questions, self.system.target_tokenizer)
        return encode_ids(self.dual_encoder, self.system, ids).cpu()

    def encode_answers(self, answers: Sequence[str]) -> Tensor:
        """The vectors of answers, of length 1: (answers, dim), on the CPU."""
        ids = self.data.encode_answers(answers, self.system.target_tokenizer)
        return encode_ids(self.dual_encoder.answers, self.system, ids).cpu()

    def encode(self, texts: Sequence[str]) -> Tensor:
        """The vectors of texts as questions, of length 1: (texts, dim), on the CPU."""
        if isinstance(texts, str):
            raise ConfigError(
                f"one text was given, {texts!r:.40}; expected a list of texts", hint="put it into brackets: [text]"
            )
        return self.encode_questions([[text] for text in texts])

    def search(self, question: str | Sequence[str], top: int = 5, match: Match | None = None) -> list[Answer]:
        """The best stored answers to a question, best first; fewer if there are fewer distinct ones. question: a text, or the
        turns of a dialogue, the question last. match: questions, answers or both; default: task.match of the run."""
        turns = (question,) if isinstance(question, str) else tuple(question)
        return self.search_many([turns], top, match)[0]

    def search_many(self, questions: Sequence[Sequence[str]], top: int, match: Match | None = None) -> list[list[Answer]]:
        """`search` for several questions, each given as its turns."""
        if top < 1:
            raise ConfigError(f"{ARGUMENT}: top: given {top}, expected at least 1")
        chosen: Match = match or self.run.task.match
        lookup(chosen, dict.fromkeys(map(str, get_args(Match))), "match")
        for number, turns in enumerate(questions, start=1):
            check_question(turns, number)
        return self.knowledge.search(self.encode_questions(questions), chosen, top)

    def reply(
        self,
        history: Sequence[str],
        *,
        show: Callable[[str], None] | None = None,
        candidates: int = 1,
        temperature: float | None = None,
        **search: Any,
    ) -> RetrievedAnswers:
        """The best stored answer to the last turn of a dialogue, oldest turn first; show: is called with it."""
        if temperature is not None or search:
            name = next(iter(search), "temperature")
            raise ConfigError(f"{ARGUMENT}: given {name!r}, which has no effect: answers are retrieved, not generated")
        found = RetrievedAnswers(tuple(history), self.search(history, candidates), candidates > 1)
        if show is not None:
            show(found.text)
        return found

    def why(self, history: Sequence[str], reply: str) -> NearestEntries:
        """The stored answers and questions that are most similar to a history; reply: the one that was given."""
        return NearestEntries(reply, self.search(history, NEAREST))

    def predictions(self, texts: Iterable[str], **options: Any) -> Iterator[RetrievedAnswers]:
        """Yield the best answers to each text, whose turns are separated by tabs. top: answers to each; match: as in
        `search`."""
        top, match = options.pop("top", 1), options.pop("match", None)
        if options:
            raise ConfigError(f"{ARGUMENT}: given {next(iter(options))!r}, but task 'retrieval' has the options top and match")
        remaining = iter(texts)
        return self.retrieve(iter(lambda: list(islice(remaining, CHUNK_LINES)), []), top, match)

    def predict_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        config: SearchConfig,
        options: PredictOptions,
        unknown: dict[str, int],
        first: int = 1,
    ) -> Iterator[RetrievedAnswers]:
        noted = note_unknown_in_chunks(chunks, self.system.target_tokenizer, unknown, first)
        return self.retrieve(noted, options.top, options.match, first)

    def retrieve(
        self, chunks: Iterable[Sequence[str]], top: int, match: Match | None, first: int = 1
    ) -> Iterator[RetrievedAnswers]:
        for _, questions in checked_chunks(chunks, lambda line, number: check_question(line.split("\t"), number), first):
            for question, answers in zip(questions, self.search_many(questions, top, match), strict=True):
                yield RetrievedAnswers(question, answers, top > 1)

    def examples(self, split: str) -> list[Example]:
        """The examples of a split of the run's data."""
        check_split(self.run.data, split)
        found = self.data.examples(split)
        if found is None:
            raise missing_split_error(split)
        return found

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """Loss and retrieval metrics on a split of the run's data."""
        encoded = self.data.encode(self.examples(split), self.system.target_tokenizer)
        config = self.run.task
        return evaluate(self.dual_encoder, self.system, encoded, temperature=config.temperature, candidates=config.candidates)

    def report(self, split: str | None, options: EvaluateOptions, *, load: Loader, search: Searcher) -> report.RetrievalReport:
        return report.report(self, split or "test", options)

    def validate(self) -> ValidationResult:
        return ValidationResult(self.evaluate("valid"), None, None, {})

    def candidates(self, pairs: Sequence[SimilarTexts] = ()) -> Candidates:
        """The answers of the validation data, and of further pairs; all are compared."""
        known = [self.as_pair(example) for example in self.data.examples("valid") or []]
        found = make_candidates(self.dual_encoder.answers, self.system, [*known, *pairs], self.system.max_length)
        return found._replace(positives={})

    def as_pair(self, example: Example) -> SimilarTexts:
        """An example with its question as one text."""
        return SimilarTexts(self.data.join_turns(example.question), example.answer, example.negatives)

    def sample_texts(self, split: str) -> Iterator[Sample]:
        """Of every example the question with its history as one text, and the answer as its label."""
        pairs = map(self.as_pair, self.data.examples(split) or [])
        return (Sample(None, pair.anchor, label=pair.positive) for pair in pairs)

    def read_samples(self, path: Path) -> Iterator[Sample]:
        """Stored questions and answers, as `build` reads them."""
        pairs = (self.as_pair(Example(*entry)) for entry in read_entries(path) if entry.question)
        return (Sample(None, pair.anchor, label=pair.positive) for pair in pairs)

    def encode_example(self, text: str, target: str | None = None, config: SearchConfig | None = None) -> EncodedExample:
        """A question, with turns separated by tabs, and its best answer among those of the validation data; target: another
        answer."""
        refuse_empty(text, target)
        return super().encode_example(self.data.join_turns(text.split("\t")), target, config)

    def training_losses(self, count: int) -> Iterator[Callable[[], Tensor]]:
        """Of the first `count` training examples, compared within batches."""
        data, config = self.data, self.run.task
        encoded = data.encode(self.examples("train")[:count], self.system.target_tokenizer)
        padding = self.system.target_tokenizer.specials.pad
        for at in range(0, len(encoded.questions), data.data.batch):
            chosen = range(at, min(at + data.data.batch, len(encoded.questions)))
            batch = data.collate(encoded, chosen, encoded.width, padding)
            yield partial(row_losses, self.dual_encoder, batch.to(self.system.device), config.temperature)


def check_question(turns: Sequence[str], number: int) -> tuple[str, ...]:
    """The turns of a question; an error if one has no word or is too long."""
    if not turns or not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise ConfigError(f"question {number} is {list(turns)!r:.60}; expected texts with at least one word")
    for turn in turns:
        refuse_too_long(turn, f"question {number}")
    return tuple(turns)
