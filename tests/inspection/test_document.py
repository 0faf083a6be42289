"""heedful.inspection.document: words and sentences with the recorded weights of attention pooling."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from tiny_tasks import write_tiny_recipe
from torch import Tensor, nn
from workshop import heed

import heedful
from heedful import inspection
from heedful.errors import ConfigError
from heedful.nn.hooks import HookPoint
from heedful.nn.model import EncoderModel, PoolingAttention
from heedful.tasks.encoded_example import Decoded, EncodedExample, Outputs, Tokens

WORDS = torch.tensor([[0.1, 0.9, 0.0], [0.2, 0.3, 0.5]])  # (sentences, words)
SENTENCES = torch.tensor([[0.64, 0.36]])


class TwoLevels(EncoderModel):
    """Declares fixed weights of words (rows, sentences, words) and of sentences (rows, sentences)."""

    def __init__(self) -> None:
        super().__init__()
        self.points = nn.ModuleDict({"words": HookPoint(), "sentences": HookPoint()})

    def poolings(self) -> list[PoolingAttention]:
        return [PoolingAttention(level, f"points.{level}") for level in self.points]

    def encode(self, tokens: Tensor, mask: Tensor | None = None, *, segments: Tensor | None = None) -> Tensor:
        self.points["words"](WORDS[None])
        self.points["sentences"](SENTENCES)
        return torch.zeros(*tokens.shape, 1)


class Reader:
    """The part of a predictor that the analysis uses."""

    model = TwoLevels()

    @property
    def system(self) -> Any:
        return type("System", (), {"models": [self.model]})

    def encode_example(self, text: str, target: str | None = None, config: None = None) -> EncodedExample:
        """<s> good | a bad? film, where "bad?" has two tokens and nothing follows the text."""
        label = torch.tensor([0])
        logits = torch.tensor([[[0.0, math.log(3.0)]]])
        outputs = Outputs(label, ["no"], label, lambda model, hidden: logits, lambda ids: [("no", "yes")[i] for i in ids])
        tokens = Tokens(text, [4, 5, 6, 7], ["▁good", "▁bad", "?", "▁film"], [0, 1, 1, 2])
        target_in = torch.tensor([[1, 4, 5, 6, 7]])
        more = {"segments": torch.tensor([[0, 0, 1, 1, 1]])}
        return EncodedExample(None, tokens, "<s>", "", target_in[:, :0], target_in, outputs, label=target, more=more)

    def decode_example(self, example: EncodedExample) -> Decoded:
        return Decoded("yes", [1], math.log(0.75), math.log(0.75))


def test_words_are_shaded_by_their_weight_times_the_root_of_the_weight_of_their_sentence() -> None:
    result = inspection.document(cast(Any, Reader()), "good bad? film", "no")
    first, second = result.sentences
    assert (first.weight, second.weight) == pytest.approx((0.64, 0.36))
    assert [word.word for word in first.words] == ["<s>", "good"] and [word.word for word in second.words] == ["bad?", "film"]
    assert [word.weight for word in first.words + second.words] == pytest.approx([0.1, 0.9, 0.5, 0.5])
    assert [word.shade for word in first.words + second.words] == pytest.approx([0.08, 0.72, 0.3, 0.3])
    assert (result.predicted, result.gold) == ("yes", "no") and result.probability == pytest.approx(0.75)
    text = result.text()
    assert text.startswith("predicted: yes, p = 0.750; gold: no (wrong)") and "0.640 ██████      <s> good█" in text
    assert "0.360 ████        bad?▒ film▒" in text
    assert result.to_dict()["sentences"][1]["words"][1] == {"word": "film", "weight": 0.5, "shade": pytest.approx(0.3)}
    assert "good" in result.svg() and "0.64" in result.svg() and "gold: no" in result.html()


def test_one_level_of_words_is_shaded_by_their_weights(tiny_encoder: Path) -> None:
    result = inspection.document(heedful.load(tiny_encoder), "a dog sees")
    (words,) = (one.words for one in result.sentences)
    assert [word.word for word in words] == ["<s>", "a", "dog", "sees", "</s>"] and result.sentences[0].weight is None
    assert sum(word.weight for word in words) == pytest.approx(1) and all(word.shade == word.weight for word in words)


def test_the_weights_of_a_document_are_those_of_its_sentences(tmp_path: Path) -> None:
    """Family han: the words of each sentence sum to 1, and so do the sentences; the command prints the same."""
    model = 'model={family="han", dim=16, embedding=16, context=8}'
    assert heed("train", write_tiny_recipe("classification", tmp_path), model, "--run", tmp_path / "run") == 0
    result = inspection.document(heedful.load(tmp_path / "run"), "The cat runs. A dog sees the cat.", "yes")
    assert len(result.sentences) == 2 and sum(one.weight or 0 for one in result.sentences) == pytest.approx(1, abs=1e-5)
    assert [sum(word.weight for word in one.words) for one in result.sentences] == pytest.approx([1, 1], abs=1e-5)
    file = tmp_path / "review.txt"
    file.write_text("The cat runs. A dog sees the cat.\n")
    page = tmp_path / "page.html"
    assert heed("inspect", "document", tmp_path / "run", "--file", file, "--target", "yes", "--html", page) == 0
    assert page.read_text() == result.html()


def test_a_model_without_attention_pooling_is_refused(tiny_runs: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match="pools its states without attention"):
        inspection.document(heedful.load(tiny_runs["tagging"]), "the cat")
    assert heed("inspect", "document", tiny_runs["tagging"]) == 2
