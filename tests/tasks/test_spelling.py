"""The spelling of words beside their tokens: as the words of the text, for every tokenizer, layout and sentence."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from tiny_tasks import write_tiny_recipe
from workshop import heed

import heedful
from heedful import inspection
from heedful.runs.config import read_run
from heedful.tasks.classification.data import LabeledData, Row
from heedful.tasks.spelling import BYTES, NO_SPELLING, spell, used_bytes, words_of_tokens
from heedful.text import Tokenizer, train_tokenizer
from heedful.text.normalize import normalize
from heedful.text.tokenizer import TokenizerConfig

LINES = ["The cat, un\u0065\u0301 two-part word.", "the dogs run!", "hello there you"]


def tokenizer_of(kind: str) -> Tokenizer:
    sized = {"characters": {}, "unigram": {"vocab": 60}}.get(kind, {"vocab": 320, "min_frequency": 1})
    return train_tokenizer(TokenizerConfig.model_validate({"kind": kind} | sized), LINES)


def test_the_spelling_of_a_long_word_has_its_beginning_and_its_end() -> None:
    assert spell("ab") == [ord("a") + 1, ord("b") + 1, *[0] * (BYTES - 2)] and spell("") == NO_SPELLING
    long = spell("abc" * 20 + "xyz")
    assert len(long) == BYTES and long[:3] == spell("abc")[:3] and long[-3:] == spell("xyz")[:3]
    assert used_bytes(torch.tensor([[spell("ab"), spell("abcd")], [NO_SPELLING] * 2])) == 4
    assert used_bytes(torch.tensor([NO_SPELLING])) == 1 and used_bytes(torch.zeros(2, 3, 0)) == 0


@pytest.mark.parametrize("kind", ["characters", "words", "wordpiece", "spaces", "bpe", "unigram", "bytes"])
def test_every_token_has_the_word_that_it_is_a_part_of(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    texts = [*LINES, "  an unknown\tzebra ", "", " "]
    rows = tokenizer.encode_many(texts)
    found = words_of_tokens(texts, rows, tokenizer)
    assert [len(words) for words in found] == [len(ids) for ids in rows]
    for text, ids, words in zip(texts, rows, found, strict=True):
        assert list(dict.fromkeys(words)) == (text.split() or [""] * bool(ids))
        for id, word in zip(ids, words, strict=True):
            piece = tokenizer.decode([id]).strip()
            assert id == tokenizer.specials.unk or "\ufffd" in piece or piece in normalize(word, "nfc")


def spelled(row: Row) -> list[str]:
    """The words of a row by their spelling, empty for special tokens."""
    return [bytes(byte - 1 for byte in word if byte).decode() for word in row.spelling]


@pytest.mark.parametrize("options", [["task.layout=entailment", "data.texts=[2, 3]"], ["model.max_words=4"]])
def test_rows_have_the_spelling_of_their_words_and_the_same_tokens_as_without(options: list[str], tmp_path: Path) -> None:
    families = {"encoder": 'model={family="encoder", dim=16', "han": 'model={family="han", dim=16, embedding=16'}
    family = "encoder" if "task.layout=entailment" in options else "han"
    texts = ("Cats see it. Un dog", "the end") if family == "encoder" else ("Cats see it. Un dog runs far away",)
    recipe, tokenizer = write_tiny_recipe("classification", tmp_path), tokenizer_of("words")
    rows = []
    for characters in ({"encoder": "0", "han": "false"}, {"encoder": "8", "han": "true"}):
        model = f"{families[family]}, characters={characters[family]}}}"
        data = LabeledData(read_run(recipe, [model, "data.max_length=9", *options]).config)
        (row,) = data.sequences([texts], tokenizer)[0]
        rows.append(row)
    assert rows[0][:2] == rows[1][:2] and rows[0].spelling == ()
    kept = {"encoder": ["", "Cats", "see", "it.", "it.", "", "the", "end", ""], "han": None}[family]
    words = spelled(rows[1])
    assert words == kept if kept else words == ["", "Cats", "see", "it.", "it.", "Un", "dog", "runs", ""]


def test_a_third_level_of_characters_labels_words_that_are_not_in_the_vocabulary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every word is unknown, and the label depends on how words end: only their spelling can tell."""
    generator = random.Random(1)

    def word() -> str:
        return "".join(generator.choice("bcdfgklmnprst") for _ in range(5))

    def lines(count: int) -> str:
        rows = []
        for _ in range(count):
            label = generator.choice(["yes", "no"])
            words = [word() + "o" for _ in range(3)]
            words.insert(generator.randrange(4), word() + ("ing" if label == "yes" else "ed"))
            rows.append(f"{label}\t{' '.join(words[:2])}. {' '.join(words[2:])}\n")
        return "".join(rows)

    recipe = write_tiny_recipe("classification", tmp_path)
    for split, count in (("train", 200), ("valid", 30), ("test", 40)):
        (tmp_path / f"{split}.tsv").write_text(lines(count))
    model = 'model={family="han", dim=16, embedding=8, context=8, characters=true, dropout=0.0}'
    schedule = 'training.schedule={name="constant", learning_rate=2e-2, warmup=1}'
    steps = ("training.steps=35", "training.validate_every=35", "training.save_every=35", "data.batch=16")
    assert heed("train", recipe, model, schedule, *steps, "tokenizer.min_frequency=2", "--run", tmp_path / "run") == 0
    classifier = heedful.Classifier.load(tmp_path / "run")
    assert classifier.evaluate("test")["accuracy"] >= 0.9
    text = "Bcdo fgklo. Mnprsing bcdo."
    assert classifier.predict([text, "Bcdo mnprsed."]) == ["yes", "no"]
    result = inspection.document(classifier, text, "yes")
    assert [word.word for word in result.sentences[0].words] == ["<s>", "<unk>", "<unk>."]
    assert [sum(word.weight for word in one.words) for one in result.sentences] == pytest.approx([1, 1], abs=1e-5)
    values = inspection.saliency(classifier, text).values
    assert values.shape == (1, len(classifier.encode_example(text).inputs))
    capsys.readouterr()
    assert heed("classify", tmp_path / "run", tmp_path / "inputs.txt") == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 3 and "unknown" not in printed.err and "vocabulary" not in printed.err
