"""Bulk prediction: the inputs of files in parts, each committed when it is done (`storage/parts.py`).

    predict_to_file(BulkJob(predictor, files, config, options), Path("out.txt"), Shard(3, 8))

A part is always the same inputs in the same chunk, and random numbers are keyed by (seed, number of the input), so a part has
the same bytes whichever process predicts it and whatever happened before: killed and started again, in 8 shards or in one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from heedful.config.base import plain
from heedful.data.encode import content_hash
from heedful.data.input_lines import STDIN_NAMES, is_interactive
from heedful.data.sources import find_path
from heedful.errors import ConfigError
from heedful.search import SearchConfig
from heedful.storage.manifest import NAME
from heedful.storage.parts import Parts, Shard, check_output, open_parts
from heedful.storage.reading import sha256_of
from heedful.tasks.predictor import Prediction, Predictor

EVERY = 1024  # inputs of a part
LABELS = {  # what an output depends on, in messages
    "model": "the run",
    "tokenizers": "the tokenizers",
    "search": "--search",
    "options": "an option of the task",
    "form": "the format of the output",
    "precision": "--precision",
    "inputs": "the number of inputs",
    "every": "--commit-every",
}


@dataclass(frozen=True)
class BulkJob:
    """What is predicted, and how an output is written."""

    predictor: Predictor
    files: Sequence[Path]
    search: SearchConfig
    options: Any  # of the task's command
    render: Callable[[Any], str]  # the lines of one output, each with its newline
    form: str  # what `render` writes, such as "text" or "json"
    checkpoints: Sequence[Path]  # of all models
    precision: str | None = None

    def inputs(self) -> Iterator[str]:
        """Every input of the files, in order."""
        return (text for _, text in self.predictor.file_inputs(self.files))

    def describe(self) -> dict[str, Any]:
        """Everything that the output depends on, as JSON values."""
        system = self.predictor.system
        paths = {name: value for name, value in asdict(self.options).items() if isinstance(value, Path)}
        return {
            "model": [sha256_of(checkpoint / NAME) for checkpoint in self.checkpoints],
            "tokenizers": [system.source_tokenizer.fingerprint, system.target_tokenizer.fingerprint],
            "files": [content_hash(find_path(str(file))) for file in self.files],
            "search": plain(self.search),
            "options": {
                name: content_hash(find_path(str(value))) if name in paths else value
                for name, value in asdict(self.options).items()
            },
            "form": self.form,
            "precision": self.precision,
        }


def render_text(prediction: Prediction) -> str:
    """The rows that `heed predict` prints."""
    return "".join(f"{row}\n" for row in prediction.rows())


class ShardResult(NamedTuple):
    parts: Parts
    predicted: int  # inputs predicted by this process
    found: int  # inputs of the shard that were done before


def predict_to_file(job: BulkJob, output: Path, shard: Shard, unknown: dict[str, int], *, every: int = EVERY) -> ShardResult:
    """Predict the inputs of a shard that are not done yet; unknown: as in `Predictor.predict_chunks`."""
    read = [*job.files, *(value for value in asdict(job.options).values() if isinstance(value, Path))]
    refuse_streams(read)
    check_output(output, [find_path(str(path)) for path in read])
    labels = {**LABELS, "files": ", ".join(map(str, job.files))}
    parts = open_parts(output, job.describe(), sum(1 for _ in job.inputs()), every, labels)
    share = shard.share(parts.total)
    predicted = 0
    with parts.hold(shard):
        for run in parts.todo(share):
            predicted += predict_run(job, parts, run, unknown)
    return ShardResult(parts, predicted, sum(map(parts.size, share)) - predicted)


def predict_run(job: BulkJob, parts: Parts, run: range, unknown: dict[str, int]) -> int:
    """Predict and commit consecutive parts; return the number of inputs."""
    first, count = run.start * parts.every, sum(map(parts.size, run))
    inputs = islice(job.inputs(), first, first + count)
    chunks = iter(lambda: list(islice(inputs, parts.every)), [])
    outputs = job.predictor.predict_chunks(chunks, job.search, job.options, unknown, first + 1)
    for number in run:
        texts = [job.render(output) for output in islice(outputs, parts.size(number))]
        assert len(texts) == parts.size(number), "one output for each input"
        parts.commit(number, "".join(texts).encode("utf-8", "backslashreplace"))
    return count


def refuse_streams(paths: Sequence[Path]) -> None:
    """Raise an error for standard input and pipes, which cannot be read again."""
    for path in paths:
        if str(path) in STDIN_NAMES or is_interactive(path):
            name = "standard input" if str(path) in STDIN_NAMES else path
            raise ConfigError(
                f"--output: given {name}, which cannot be read again after an interruption; expected files",
                hint="save it to a file first, or remove --output",
            )
