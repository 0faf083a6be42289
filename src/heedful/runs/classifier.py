"""A trained classifier: heedful.load("runs/classification-sst2-gpt").predict(["a charming film"])."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from heedful.data.input_lines import refuse_too_long
from heedful.data.labeled import Example, find_split_file
from heedful.errors import ConfigError
from heedful.runs.predictor import Predictor, check_split, missing_split_error
from heedful.tasks.classification import ClassificationTask


class Classifier(Predictor):
    """A trained classification model."""

    @property
    def task(self) -> ClassificationTask:
        config: Any = self.run.task
        task = ClassificationTask(config, self.run.data, self.run.search, self.run.seed)
        task.system = self.system
        return task

    def predict(self, texts: Sequence[str | Sequence[str]]) -> list[str]:
        """The most probable label of each example; examples as in `predict_proba`."""
        return [max(probabilities, key=lambda label: probabilities[label]) for probabilities in self.predict_proba(texts)]

    @torch.inference_mode()
    def predict_proba(self, texts: Sequence[str | Sequence[str]]) -> list[dict[str, float]]:
        """The probability of each label, for each example.

        An example is one text, or a tuple of as many texts as the run was trained on (`data.texts`)."""
        task, labels, results = self.task, self.task.config.labels, []
        model: Any = self.model
        for number, example in enumerate(self.examples_from(texts), start=1):
            batch = task.collate(task.encode([Example(labels[0], example)], self.system.target_tokenizer), [0])
            batch = batch.to(self.system.device)
            logits = model(batch.tokens, batch.last, len(batch.tokens))[0][0].float()
            probabilities = logits.softmax(-1)
            if not bool(probabilities.isfinite().all()):
                raise self.system.nonfinite_error(f"example {number}")
            results.append(dict(zip(labels, probabilities.tolist(), strict=True)))
        return results

    def examples_from(self, texts: Sequence[str | Sequence[str]]) -> list[tuple[str, ...]]:
        """Each example as a tuple of texts; an error if it has not as many texts as the run's data."""
        if isinstance(texts, str):
            raise ConfigError(
                f"one text was given, {texts!r:.40}; expected a list of examples", hint="put it into brackets: [text]"
            )
        count = len(self.run.data.texts)
        examples = [(example,) if isinstance(example, str) else tuple(example) for example in texts]
        for number, example in enumerate(examples, start=1):
            if len(example) != count or not all(isinstance(text, str) for text in example):
                expected = f"a tuple of {count} texts" if count > 1 else "a text"
                raise ConfigError(f"example {number} is {texts[number - 1]!r:.60}; expected {expected}")
            for text in example:
                refuse_too_long(text, f"example {number}")
        return examples

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """Loss and accuracy on a split of the run's data."""
        check_split(self.run.data, split)
        path = find_split_file(self.run.data, split)
        if path is None:
            raise missing_split_error(split)
        model: Any = self.model
        return self.task.evaluate(model, self.task.encode(self.task.examples(path), self.system.target_tokenizer))
