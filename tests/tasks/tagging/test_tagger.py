"""The task tagging, from data to labels; see also tests/contracts/test_tasks.py."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from workshop import heed

import heedful
from heedful import inspection
from heedful.config.toml import write_toml
from heedful.data.conllu import Arc
from heedful.evaluation.spans import follows
from heedful.runs.build import make_model, make_tokenizers
from heedful.runs.config import read_run
from heedful.tasks.tagging.data import TaggedData
from heedful.tasks.tagging.model import PADDING

TAGGED = "the\tO\nbig\tB-NP\ncat\tI-NP\nsees\tO\n\nunhappy\tB-NP\ndogs\tI-NP\nrun\tO\n\n"
ENCODER = {"family": "encoder", "dim": 16, "layers": ["lstm", "self-attention"], "heads": 2, "characters": 8}
BERT = {"family": "bert", "dim": 16, "layers": 2, "heads": 2, "max_positions": 64}
WORDS, BPE = {"kind": "spaces", "min_frequency": 1}, {"kind": "bytes", "vocab": 270}


def write_recipe(folder: Path, model: dict[str, Any] | None = None, **parts: dict[str, Any]) -> Path:
    config = {
        "data": {"form": "tagged", "folder": str(folder), "max_length": 64, "batch_tokens": 128, **parts.get("data", {})},
        "task": {"name": "tagging", **parts.get("task", {})},
        "tokenizer": parts.get("tokenizer", WORDS),
        "model": model or ENCODER,
        "training": {
            "steps": 40,
            "save_every": 40,
            "validate_every": 40,
            "schedule": {"name": "constant", "learning_rate": 2e-2, "warmup": 1},
        },
    }
    for split in ("train", "valid", "test"):
        if not (folder / f"{split}.tsv").exists():
            (folder / f"{split}.tsv").write_text(TAGGED * 6)
    (folder / "recipe.toml").write_text(write_toml(config))
    return folder / "recipe.toml"


@pytest.mark.parametrize(("model", "tokenizer"), [(ENCODER, WORDS), (BERT, BPE)])
@pytest.mark.parametrize("crf", [False, True])
def test_padding_changes_neither_loss_nor_labels_and_is_not_counted(
    model: dict[str, Any], tokenizer: dict[str, Any], crf: bool, tmp_path: Path
) -> None:
    labels = ["B-NP", "I-NP", "O"]
    recipe = write_recipe(tmp_path, model, tokenizer=tokenizer, task={"labels": labels, "crf": crf})
    run = read_run(recipe).config
    padded = read_run(recipe, ["data.pad_to_multiple_of=16"]).config
    data = TaggedData(run)
    tokenizers = make_tokenizers(run, tmp_path, data)
    tagger: Any = make_model(run, len(tokenizers[0]), len(tokenizers[1])).eval()
    rows = data.encode(data.sentences(data.file("train"))[:2], tokenizers[1])
    pad = tokenizers[1].specials.pad
    alone = [data.collate([row], pad) for row in rows]
    together = [data.collate(rows, pad), TaggedData(padded).collate(rows, pad)]
    assert together[1].tokens.shape in ((8, 16), (4, 32)) and together[0].tokens.shape[0] == 2
    with torch.inference_mode():
        single = [tagger.losses(tagger(b.tokens, b.mask, b.first, b.spelling), b.labels) for b in alone]
        for batch in together:
            logits = tagger(batch.tokens, batch.mask, batch.first, batch.spelling)
            torch.testing.assert_close(tagger.losses(logits, batch.labels)[:2], torch.cat(single))
            loss = tagger.loss(logits, batch.labels)
            torch.testing.assert_close(loss.total, torch.cat(single).sum())
            assert int(loss.count) == 7 == int((batch.labels != PADDING).sum())


def test_a_label_is_read_at_the_first_token_of_each_word_and_long_sentences_are_cut(tmp_path: Path) -> None:
    run = read_run(
        write_recipe(tmp_path, BERT, tokenizer=BPE, task={"labels": ["B-NP", "I-NP", "O"]}, data={"max_length": 12})
    ).config
    data = TaggedData(run)
    tokenizer = make_tokenizers(run, tmp_path, data)[1]
    sentences = data.sentences(data.file("train"))[:2]
    rows = data.encode(sentences, tokenizer)
    assert len(rows) > 2 and max(len(row.tokens) for row in rows) <= 12
    for at, sentence in enumerate(sentences):
        own = [row for row in rows if row.sentence == at]
        starts = [tokenizer.decode(row.tokens[i:].tolist()).split()[0] for row in own for i in row.first.tolist()]
        assert starts == sentence.words  # from the first token of a word on, the text begins with this word
        assert sum(len(row.labels) for row in own) == len(sentence.labels)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a CRF over labels in BIO notation."""
    folder = tmp_path_factory.mktemp("tagging")
    recipe = write_recipe(folder, task={"crf": True}, data={"column": "label"})
    assert heed("train", recipe, "training.metric=span_f1", "--run", folder / "run") == 0
    return folder / "run"


def test_labels_come_from_the_training_data_and_are_stored_in_the_run(run: Path) -> None:
    tagger = heedful.Tagger.load(run)
    assert tagger.run.task.labels == ("B-NP", "I-NP", "O")
    assert tagger.evaluate("valid")["span_f1"] == 1.0
    assert heed("train", run.parent / "recipe.toml", "training.metric=span_f1", "--run", run) == 0  # continued


def test_every_word_has_a_label_with_probability_and_offsets(run: Path) -> None:
    tagger, text = heedful.Tagger.load(run), "  the big cat,  sees unhappy unseen dogs! "
    for split in (False, True):
        (prediction,) = tagger.predictions([text], split_punctuation=split)
        assert len(prediction.words) == len(prediction.labels) == len(prediction.probabilities) == (9 if split else 7)
        assert [text[start:end] for start, end in prediction.offsets] == prediction.words
        assert all(0 < probability <= 1 for probability in prediction.probabilities)
        assert all(follows(a, b) for a, b in itertools.pairwise([None, *prediction.labels]) if b is not None)
    assert tagger.predict("the big cat sees") == "O B-NP I-NP O"
    assert next(tagger.predictions(["the big cat sees"])).spans() == [{"label": "NP", "start": 4, "end": 11}]
    long = "unhappy dogs run " * 50
    assert len(tagger.predict([long, "", "dogs"])[0].split()) == 150
    assert tagger.predict(["", "the big"]) == ["", "O B-NP"]


def test_evaluation_writes_words_labels_and_predictions(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert heed("evaluate", run, "--output", tmp_path / "out.tsv", "--baselines") == 0
    printed = capsys.readouterr().out
    assert "span F1" in printed and "100.00%" in printed and "the most frequent label of each word" in printed
    blocks = (tmp_path / "out.tsv").read_text().split("\n\n")
    assert blocks[0].splitlines()[1] == "big\tB-NP\tB-NP" and len(blocks) == 13


def test_vectors_are_standardized_by_the_training_data_and_labeled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def sequence(seed: int) -> str:
        values = torch.randn(8, 2, generator=torch.Generator().manual_seed(seed)) * torch.tensor([100.0, 0.01]) + 5
        return "".join(f"{a}\t{b}\t{'up' if a > 5 else 'down'}\n" for a, b in values.tolist())

    for split, first in (("train", 0), ("valid", 20), ("test", 30)):
        (tmp_path / f"{split}.tsv").write_text("\n".join(sequence(first + at) for at in range(20 if not first else 4)))
    model = {"family": "encoder", "dim": 16, "layers": ["lstm"], "features": 2}
    recipe = write_recipe(tmp_path, model, data={"numeric": True})
    assert heed("train", recipe, "--run", tmp_path / "run") == 0
    tagger = heedful.Tagger.load(tmp_path / "run")
    body: Any = tagger.model.base_model
    assert 60 < float(body.features.deviation[0]) < 140 and float(body.features.deviation[1]) < 0.02
    assert tagger.evaluate("test")["accuracy"] >= 0.95
    assert tagger.predict([[[200.0, 5.0], [-200.0, 5.0]]]) == ["up down"]
    (tmp_path / "input.tsv").write_text("200\t5\n-200\t5\n\n-150\t5\n")
    capsys.readouterr()
    assert heed("tag", tmp_path / "run", tmp_path / "input.tsv") == 0
    assert capsys.readouterr().out == "up down\ndown\n"
    (tmp_path / "input.tsv").write_text("200\t5\n-200\tx\n")
    assert heed("tag", tmp_path / "run", tmp_path / "input.tsv") == 3
    assert "line 2 has 'x' where a number is expected" in capsys.readouterr().err
    with pytest.raises(heedful.HeedfulError, match=r"expected 2, as in the training data"):
        tagger.predict([[[1.0]]])


@pytest.mark.parametrize(
    ("file", "text", "options", "expected"),
    [
        ("valid.tsv", "the\tO\nbig\tB-VP\n", [], "valid.tsv line 2 has the label 'B-VP'; expected one of: B-NP, I-NP, O"),
        (
            "train.tsv",
            "the\tO\nbig\tI-NP\ncat\tB-NP\n",
            ["task.crf=true"],
            "line 2 has the label 'I-NP' after 'O'; expected B-NP",
        ),
        ("train.tsv", "the\tO\nbig\tO\n", [], "train.tsv has 1 label; expected two or more"),
        ("train.tsv", "the\tD\ncat\tN\n", ["training.metric=span_f1"], "are not in BIO notation"),
        ("test.tsv", "the\tO\n\nbig\n", [], "test.tsv line 3 has 1 column"),
        ("test.tsv", "the\tO\n\t\tB-NP\n", ["data.max_unusable=0"], "test.tsv line 2: a column is empty"),
        ("train.tsv", "", [], "train.tsv is empty"),
        (None, "", ["data.column=upos"], "has no train.conllu"),
        (None, "", ["data.numeric=true"], "model.features: missing"),
        (None, "", ["model.features=2"], "model.features: given 2, but data.numeric is false"),
        (None, "", ['task.labels=["O"]'], "task.labels: given ['O'], expected two or more that differ"),
    ],
)
def test_broken_inputs_are_refused_with_one_sentence(
    file: str | None, text: str, options: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = write_recipe(tmp_path, {**ENCODER, "characters": 0})
    if file is not None:
        (tmp_path / file).write_text(text)
    assert heed("train", recipe, *options, "--run", tmp_path / "run") in (2, 3)
    message = capsys.readouterr().err
    assert expected in message and "Traceback" not in message
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_an_encoded_example_has_the_label_of_every_word_at_its_first_token(run: Path) -> None:
    tagger, text = heedful.Tagger.load(run), "the big cat sees"
    (prediction,) = tagger.predictions([text])
    example = tagger.encode_example(text)
    assert example.outputs.pieces == prediction.labels and len(example.target.words) == len(example.target.ids)
    with torch.inference_mode():
        logs = example.log_probabilities(tagger.model, example.forward(tagger.model).hidden)  # (1, words)
    torch.testing.assert_close(logs[0].exp(), torch.tensor(prediction.probabilities), atol=1e-5, rtol=1e-4)
    assert tagger.decode_example(example).text == prediction.text
    other = tagger.replace_input(example, "the big dogs run")
    assert other.outputs.pieces == prediction.labels and other.target.text == "the big dogs run"
    with pytest.raises(heedful.HeedfulError, match="given 1 labels, expected one for each of 4 words"):
        tagger.encode_example(text, "O")
    for analysis in (inspection.attention, inspection.saliency, inspection.lens, inspection.alternatives):
        assert analysis(tagger, text).text()
    tokens = torch.ones(2, 5, dtype=torch.int64)
    assert tagger.model.batch_logits(tokens[:, :0], tokens).shape == (2, 5, 3)  # for the analysis of cost


def test_samples_of_conllu_have_dependency_arcs_between_words(run: Path, tmp_path: Path) -> None:
    rows = [("do", "O", 3, "aux"), ("n't", "O", 3, "advmod:neg"), ("know", "O", 0, "root")]
    lines = [
        f"{at}\t{form}\t{label}\t_\t_\t_\t{head}\t{relation}\t_\t_\n"
        for at, (form, label, head, relation) in enumerate(rows, 1)
    ]
    (tmp_path / "some.conllu").write_text("1-2\tdon't" + "\t_" * 8 + "\n" + "".join(lines))
    tagger = heedful.Tagger.load(run)
    data = tagger.run.data.model_copy(update={"column": "lemma"})
    own = heedful.Tagger(tagger.run.model_copy(update={"data": data}), tagger.system, tagger.checkpoint)  # type: ignore[attr-defined]
    (sample,) = own.read_samples(tmp_path / "some.conllu")
    assert (sample.target, sample.label) == ("do n't know", "O\tO\tO")
    assert sample.target_arcs == [Arc(0, 2, "aux"), Arc(1, 2, "advmod")]
    (batch,) = own.forced_batches([sample])
    assert batch.samples[0].target.arcs == sample.target_arcs and batch.targets[0, :3].tolist() == [2, 2, 2]
