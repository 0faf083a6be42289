"""Classification by a language model: the four layouts, the auxiliary loss, and fine-tuning a pre-trained model."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import config_problems
from torch.nn import functional
from torch.testing import assert_close
from workshop import heed

import heedful
from heedful.config.base import plain
from heedful.data.labeled import Example, LabeledConfig
from heedful.models.family import SentenceGrid
from heedful.runs.build import make_model, make_system
from heedful.runs.config import Run
from heedful.tasks.classification.batch import LabeledBatch
from heedful.tasks.classification.config import ClassificationConfig
from heedful.tasks.classification.data import LAYOUTS, LabeledData, join_for_decoder, join_for_encoder, join_sentences
from heedful.tasks.classification.model import ClassificationModel, label_loss
from heedful.tasks.classification.predictor import Classifier
from heedful.tasks.classification.task import ClassificationTask
from heedful.text import Specials, train_tokenizer

MARKS = Specials(pad=0, start=1, end=2, unk=3)


A, B, C = [10, 11], [20], [30, 31]
DECODER = {
    "classification": [[1, 10, 11, 0]],
    "entailment": [[1, 10, 11, 2, 20, 0]],
    "similarity": [[1, 10, 11, 2, 20, 0], [1, 20, 2, 10, 11, 0]],
    "choice": [[1, 10, 11, 2, 20, 0], [1, 10, 11, 2, 30, 31, 0]],
}
ENCODER = {  # and the segments
    "classification": [([1, 10, 11, 2], [0, 0, 0, 0])],
    "entailment": [([1, 10, 11, 2, 20, 2], [0, 0, 0, 0, 1, 1])],
    "similarity": [([1, 10, 11, 2, 20, 2], [0, 0, 0, 0, 1, 1]), ([1, 20, 2, 10, 11, 2], [0, 0, 0, 1, 1, 1])],
    "choice": [([1, 10, 11, 2, 20, 2], [0, 0, 0, 0, 1, 1]), ([1, 10, 11, 2, 30, 31, 2], [0, 0, 0, 0, 1, 1, 1])],
}


@pytest.mark.parametrize(("layout", "texts"), [("classification", [A]), ("entailment", [A, B]), ("similarity", [A, B])])
def test_a_layout_of_one_or_two_texts(layout: str, texts: list[list[int]]) -> None:
    check_layout(layout, texts)


def test_a_layout_of_a_context_and_its_answers() -> None:
    check_layout("choice", [A, B, C])


def check_layout(layout: str, texts: list[list[int]]) -> None:
    chosen = [[texts[at] for at in sequence] for sequence in LAYOUTS[layout](len(texts))]
    assert [join_for_decoder(one, MARKS, 99).ids for one in chosen] == DECODER[layout]
    assert [join_for_encoder(one, MARKS, 99)[:2] for one in chosen] == ENCODER[layout]


def test_truncation_shortens_the_longest_text_of_an_encoder() -> None:
    row = join_for_encoder([[10] * 9, [20] * 3], MARKS, 11)
    assert row.ids == [1, *[10] * 5, 2, *[20] * 3, 2] and row.segments == [0] * 7 + [1] * 4
    assert join_for_encoder([[10] * 9, [20] * 9], MARKS, 11).ids == [1, *[10] * 4, 2, *[20] * 4, 2]


def test_the_sentences_of_a_document_are_its_segments() -> None:
    row = join_sentences([[10] * 5, [20]], MARKS, 99, SentenceGrid(sentences=3, words=3))
    assert row[:2] == ([1, *[10] * 5, 20, 2], [0, 0, 0, 1, 1, 1, 2, 2])
    assert join_sentences([[10] * 5, [20]], MARKS, 5, SentenceGrid(2, 3))[:2] == ([1, 10, 10, 10, 2], [0, 0, 0, 1, 1])
    assert join_sentences([], MARKS, 5, SentenceGrid(2, 3))[:2] == ([1, 2], [0, 0])


def write_table(path: Path, count: int, columns: int = 1, seed: int = 1) -> Path:
    """The label is "yes" if the first text has "good", "no" if it has "bad"."""
    generator = random.Random(seed)
    rows = []
    for _ in range(count):
        label = generator.choice(["no", "yes"])
        words = [generator.choice(["a", "the", "film", "was", "very"]) for _ in range(generator.randint(2, 6))]
        words.insert(generator.randrange(len(words)), "good" if label == "yes" else "bad")
        rows.append([label, " ".join(words), *(generator.choice(["a film", "the bad film"]) for _ in range(columns - 1))])
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


def run_of(table: Path, layout: str = "classification", columns: int = 1, **options: Any) -> Run:
    texts = list(range(2, 2 + columns))
    data = {
        "form": "labeled",
        "train": {"file": str(table)},
        "valid": {"file": str(table)},
        "texts": texts,
        "batch": 5,
        "prefetch": 0,
    } | options
    task = {"name": "classification", "layout": layout, "labels": ["no", "yes"]}
    model = {"family": "gpt", "dim": 16, "layers": 1, "heads": 2, "dropout": 0.0}
    tokenizer = {"kind": "words", "min_frequency": 1}
    return Run.model_validate({"seed": 2, "data": data, "task": task, "model": model, "tokenizer": tokenizer})


def task_of(
    tmp_path: Path, layout: str = "classification", columns: int = 1, **options: Any
) -> tuple[ClassificationTask, ClassificationModel]:
    run = run_of(write_table(tmp_path / "table.tsv", 30, columns), layout, columns, **options)
    labeled = LabeledData(run)
    report = labeled.check()
    tokenizer = train_tokenizer(run.tokenizer, labeled.lines("target"))
    model = make_model(run, len(tokenizer), len(tokenizer)).eval()
    assert isinstance(model, ClassificationModel)
    tokenizers = tokenizer, tokenizer
    system = make_system(run, [model], tokenizers, torch.device("cpu"))
    return ClassificationTask(run, labeled.prepare(tokenizers, report), system), model


def batch_of(task: ClassificationTask, chosen: Sequence[int]) -> LabeledBatch:
    """A batch of training examples."""
    return task.labeled.collate(task.corpora.train, chosen, MARKS)


def test_sequences_are_not_padded_beyond_the_maximum_length(tmp_path: Path) -> None:
    """A model with learned positions may have no more of them."""
    task, _ = task_of(tmp_path, max_length=9, pad_to_multiple_of=16)
    assert batch_of(task, range(6)).tokens.shape == (6, 9)


SHAPES = [("classification", 1), ("entailment", 2), ("similarity", 2), ("choice", 3)]


@pytest.mark.parametrize(("layout", "columns"), SHAPES)
@torch.inference_mode()
def test_logits_do_not_depend_on_padding_or_on_the_batch(tmp_path: Path, layout: str, columns: int) -> None:
    task, model = task_of(tmp_path, layout, columns, pad_to_multiple_of=7)
    together = batch_of(task, range(6))
    logits, _ = model(together)
    assert logits.shape == (6, 2)
    for i in range(6):
        alone = batch_of(task, [i])
        assert_close(model(alone)[0][0], logits[i], atol=1e-5, rtol=0)


@pytest.mark.parametrize("pooling", ["mean", "max", "cls", "last", "attention"])
@torch.inference_mode()
def test_the_labels_of_an_encoder_do_not_depend_on_padding(tmp_path: Path, pooling: str) -> None:
    table = write_table(tmp_path / "table.tsv", 6, 2)
    run = run_of(table, "entailment", 2, pad_to_multiple_of=16)
    bert = {"family": "bert", "dim": 16, "layers": 1, "heads": 2, "max_positions": 256}
    run = Run.model_validate(
        plain(run)
        | {
            "model": bert,
            "task": {"name": "classification", "layout": "entailment", "labels": ["no", "yes"], "pooling": pooling},
        }
    )
    labeled = LabeledData(run)
    tokenizer = train_tokenizer(run.tokenizer, labeled.lines("target"))
    model: Any = make_model(run, len(tokenizer), len(tokenizer)).eval()
    encoded = labeled.prepare((tokenizer, tokenizer), labeled.check()).train
    logits, _ = model(labeled.collate(encoded, range(6), tokenizer.specials))
    labeled.data = labeled.data.model_copy(update={"pad_to_multiple_of": 1})
    alone = [model(labeled.collate(encoded, [i], tokenizer.specials))[0][0] for i in range(6)]
    assert_close(torch.stack(alone), logits, atol=1e-5, rtol=0)


@torch.inference_mode()
def test_the_order_of_the_texts_of_a_similarity_pair_does_not_matter(tmp_path: Path) -> None:
    task, model = task_of(tmp_path, "similarity", 2)
    reversed_ = task.corpora.train._replace(groups=[task.corpora.train.groups[0][::-1]])
    batches = batch_of(task, [0]), task.labeled.collate(reversed_, [0], MARKS)
    forward, backward = (model(batch)[0] for batch in batches)
    assert_close(forward, backward)


@pytest.mark.parametrize(("layout", "columns"), SHAPES)
def test_the_loss_is_the_classification_loss_plus_half_the_language_modeling_loss(
    tmp_path: Path, layout: str, columns: int
) -> None:
    task, model = task_of(tmp_path, layout, columns)
    batch = batch_of(task, range(5))
    objective = task.loss(model, batch)
    logits, hidden = model(batch)
    decision = functional.cross_entropy(logits, batch.labels, reduction="sum")
    language, count = torch.zeros(()), 0
    for row, last, states in zip(batch.tokens, batch.last.tolist(), hidden, strict=True):
        words = row[1:last]  # between start and extract
        language = language + functional.cross_entropy(model.body.project(states[: last - 1]), words, reduction="sum")
        count += len(words)
    assert_close(objective.minimize.total, decision + 0.5 * language / count * 5)
    assert_close(objective.report["language"].total, language.detach())
    assert int(objective.report["language"].count) == count
    task.auxiliary = 0.0
    plain = task.loss(model, batch)
    assert_close(plain.minimize.total, decision)
    assert plain.report.keys() == {"loss"}


@pytest.mark.parametrize("multi_label", [False, True])
def test_label_smoothing_moves_probability_to_all_labels(multi_label: bool) -> None:
    logits, weights, smoothing = torch.randn(4, 3), torch.tensor([1.0, 2.0, 0.5]), 0.2
    logs = logits.log_softmax(-1)
    labels = torch.tensor([0, 2, 1, 2])
    target = functional.one_hot(labels, 3) * (1 - smoothing) + smoothing / 3  # (examples, labels)
    expected = -(target * weights * logs).sum()
    if multi_label:
        labels = torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]])
        yes = labels * (1 - smoothing) + smoothing / 2
        both = yes * weights * functional.logsigmoid(logits) + (1 - yes) * functional.logsigmoid(-logits)
        expected = -both.mean(-1).sum()
    assert_close(label_loss(logits, labels, weights, smoothing), expected)


def test_the_reported_loss_is_not_smoothed(tmp_path: Path) -> None:
    task, model = task_of(tmp_path)
    batch = batch_of(task, range(5))
    task.auxiliary = 0.0
    plain = task.loss(model, batch)
    task.config = task.config.model_copy(update={"label_smoothing": 0.3})
    smoothed = task.loss(model, batch)
    assert torch.equal(smoothed.report["loss"].total, plain.report["loss"].total)
    assert_close(smoothed.minimize.total, label_loss(model(batch)[0], batch.labels, None, 0.3))
    assert not torch.equal(smoothed.minimize.total, plain.minimize.total)


def test_a_batch_is_split_between_examples(tmp_path: Path) -> None:
    task, _ = task_of(tmp_path, "choice", 3)
    batch = batch_of(task, range(5))
    parts = task.split(batch, 2)
    assert [task.count(part) for part in parts] == [3, 2]
    assert [len(part.tokens) for part in parts] == [6, 4]
    assert torch.equal(torch.cat([part.tokens for part in parts]), batch.tokens)


def test_truncation_keeps_the_extract_token(tmp_path: Path) -> None:
    task, _ = task_of(tmp_path, max_length=4)
    sequences = [row.ids for group in task.corpora.train.groups for row in group]
    assert {len(sequence) for sequence in sequences} == {4}
    assert all(sequence[0] == 1 and sequence[-1] == 0 for sequence in sequences)


def test_a_limited_training_set_is_the_same_in_every_run(tmp_path: Path) -> None:
    few, _ = task_of(tmp_path, limit=10)
    again, _ = task_of(tmp_path, limit=10)
    every, _ = task_of(tmp_path)
    assert few.corpora.train == again.corpora.train
    assert len(few.corpora.train.labels) == 10
    assert few.corpora.train.groups != every.corpora.train.groups[:10]
    assert all(group in every.corpora.train.groups for group in few.corpora.train.groups)


def test_errors_of_data_and_config(tmp_path: Path) -> None:
    with pytest.raises(heedful.HeedfulError, match=r"layout .entailment. needs 2 columns in data\.texts, not 1"):
        task_of(tmp_path, "entailment", 1)
    table = write_table(tmp_path / "t.tsv", 3)
    table.write_text(table.read_text() + "maybe\tso\n")
    with pytest.raises(heedful.HeedfulError, match="has the label 'maybe'; expected one of: no, yes"):
        LabeledData(run_of(table)).check()
    problems = config_problems(ClassificationConfig, name="classification", labels=["a", "a"])
    assert "two or more that differ" in problems["labels"]
    problems = config_problems(LabeledConfig, form="labeled", label=2)
    assert problems["texts"] == "given [2], which includes the column of the label, 2"


SHARED = """\
[tokenizer]
kind = "words"
min_frequency = 1

[model]
family = "gpt"
dim = 32
layers = 2
heads = 2
dropout = 0.0

"""

PRETRAIN = (
    SHARED
    + """\
[data]
form = "text"
train = {{ file = "{table}", column = 2 }}
valid = {{ file = "{table}", column = 2 }}
block = 16
batch = 16

[task]
name = "language"
samples = 0

[training]
steps = 4
schedule = {{ name = "constant", learning_rate = 3e-3, warmup = 1 }}
"""
)

FINETUNE = (
    SHARED
    + """\
[data]
form = "labeled"
train = {{ file = "{table}" }}
valid = {{ file = "{table}" }}
test = {{ file = "{table}" }}
batch = 8

[task]
name = "classification"
labels = ["no", "yes"]

[training]
steps = 40
validate_every = 20
metric = "accuracy"
schedule = {{ name = "constant", learning_rate = 3e-3, warmup = 1 }}
"""
)


def test_a_pre_trained_model_is_fine_tuned_evaluated_and_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = write_table(tmp_path / "table.tsv", 100)
    (tmp_path / "pre.toml").write_text(PRETRAIN.format(table=table))
    (tmp_path / "fine.toml").write_text(FINETUNE.format(table=table))
    assert heed("train", tmp_path / "pre.toml", "--run", tmp_path / "pre") == 0
    init = f"training.init={tmp_path / 'pre'}"
    unchanged = ("training.steps=1", "training.schedule.learning_rate=1e-30")
    assert heed("train", tmp_path / "fine.toml", init, *unchanged, "--run", tmp_path / "unchanged") == 0
    before, after = heedful.load(tmp_path / "pre"), Classifier.load(tmp_path / "unchanged")
    assert after.system.target_tokenizer.fingerprint == before.system.target_tokenizer.fingerprint
    body = after.classifier.body.state_dict()
    assert all(torch.equal(value, body[name]) for name, value in before.model.state_dict().items())
    assert heed("train", tmp_path / "fine.toml", init, "--run", tmp_path / "fine") == 0
    capsys.readouterr()
    assert heed("evaluate", tmp_path / "fine", "--json") == 0
    assert json.loads(capsys.readouterr().out)["figures"]["accuracy"] == 1.0
    classifier, texts = Classifier.load(tmp_path / "fine"), [("the film was good",), ("a very bad film",)]
    assert classifier.predict(texts) == ["yes", "no"]
    assert all(sum(probabilities.values()) == pytest.approx(1.0) for probabilities in classifier.predict_proba(texts))


def test_long_texts_are_cut_before_tokenization(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, _ = task_of(tmp_path, max_length=8)
    tokenizer = task.system.target_tokenizer
    example = Example(("yes",), ("good film " * 1000,))
    whole = task.labeled.encode([example], tokenizer)
    lengths: list[int] = []
    encode = tokenizer.encode_many

    def recorded(texts: Sequence[str]) -> list[list[int]]:
        lengths.extend(map(len, texts))
        return encode(texts)

    monkeypatch.setattr(tokenizer, "encode_many", recorded)
    monkeypatch.setattr("heedful.tasks.classification.data.MAX_CHARACTERS", 100)
    assert task.labeled.encode([example], tokenizer) == whole
    assert lengths == [800]
