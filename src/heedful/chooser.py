"""A classifier at work: heedful.load("runs/classification-sst2-gpt").choose([("a charming film",)])."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from heedful.data.labelled import Example, file_of
from heedful.errors import ConfigError
from heedful.tasks.classification import Classification
from heedful.worker import Worker


class Classifier(Worker):
    @property
    def task(self) -> Classification:
        config: Any = self.run.task
        task = Classification(config, self.run.data, self.run.search, self.run.seed)
        task.system = self.system
        return task

    @torch.inference_mode()
    def choose(self, texts: Sequence[tuple[str, ...]]) -> list[dict[str, float]]:
        """The probability of each label, for each example; an example is as many texts as the layout has."""
        task, labels, found = self.task, self.task.config.labels, []
        model: Any = self.model
        for one in texts:
            batch = task.collate(task.encode([Example(labels[0], tuple(one))], self.system.target_tokenizer), [0])
            batch = batch.to(self.system.device)
            logits = model(batch.tokens, batch.last, len(batch.tokens))[0][0]
            found.append(dict(zip(labels, logits.float().softmax(-1).tolist(), strict=True)))
        return found

    def judge(self, split: str = "test") -> dict[str, float]:
        """Loss and accuracy on a split of the run's data."""
        path = file_of(self.run.data, split)
        if path is None:
            raise ConfigError(f"the run has no {split} data", hint="--split valid takes the validation data")
        model: Any = self.model
        return self.task.judge(model, self.task.encode(self.task.examples(path), self.system.target_tokenizer))
