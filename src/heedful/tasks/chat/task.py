"""The task chat: pairs of a history and a reply (pairs_task.py), validated by perplexity and by generated replies."""

from __future__ import annotations

from heedful.data.dialogues import DialoguesConfig
from heedful.nn.model import SequenceModel
from heedful.tasks.base import RunConfig, TaskDefinition
from heedful.tasks.batches import pad_length
from heedful.tasks.chat.config import ChatConfig
from heedful.tasks.chat.data import ChatData, format_examples
from heedful.tasks.chat.evaluate import evaluate_replies, evenly_spaced
from heedful.tasks.chat.history import chat_system
from heedful.tasks.chat.predictor import ChatBot
from heedful.tasks.chat.starter import STARTER
from heedful.tasks.pairs_task import PairsTask
from heedful.tasks.system import System
from heedful.tasks.translation.data import Corpora
from heedful.training.loop import Validation
from heedful.training.samples_log import MAX_SAMPLES, Sample


class ChatTask(PairsTask):
    def __init__(self, run: RunConfig, corpora: Corpora, system: System) -> None:
        super().__init__(run, corpora, chat_system(run.data, system))
        self.config: ChatConfig = run.task

    def padded_lengths(self, source: int, target: int) -> tuple[int, int]:
        """Each side has its own length, because a history is several times as long as its reply."""
        multiple = self.data.length_multiple
        return pad_length(source, multiple, self.data.sides[0]), pad_length(target, multiple, self.data.sides[1])

    def validate(self, model: SequenceModel) -> Validation:
        """Evaluate on the validation data, by the function that `heed evaluate` calls."""
        config = self.config
        examples = evenly_spaced(self.corpora.valid, config.validation_examples)
        result = evaluate_replies(self.system, examples, self.search, config.validation_metrics, config.validation_replies)
        shown = [Sample(*texts) for texts in zip(examples.sources, examples.references, result.replies, strict=False)]
        samples = [f"{one.source}  ->  {one.output}" for one in shown[: config.samples]]
        return Validation(result.figures, result.signatures, samples, shown[:MAX_SAMPLES])


TASK = TaskDefinition(ChatConfig, DialoguesConfig, ChatData, ChatTask, ChatBot, format_examples, STARTER)
