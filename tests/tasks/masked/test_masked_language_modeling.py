"""Masked language modeling: the head equals `transformers`, masks differ between epochs, the loss is that of chosen tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from models.test_bert import copied_weights
from tiny_tasks import write_tiny_recipe
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from heedful.errors import ConfigError
from heedful.models.bert import Bert, BertConfig
from heedful.runs.build import data_of, make_model, make_task
from heedful.runs.config import read_run
from heedful.tasks.masked.model import MaskedModel
from heedful.tasks.masked.task import MaskedTask
from heedful.text.train import train_tokenizer

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
OWN: dict[str, Any] = {"dim": 32, "layers": 2, "heads": 4, "feed_forward": 64}
PAIRS = ["task.next_sentence=true", "model.pooler=true", "data.block=16"]


def make_tiny_task(folder: Path, *changes: str) -> MaskedTask:
    config = read_run(write_tiny_recipe("masked", folder), changes).config
    data = data_of(config)
    tokenizer = train_tokenizer(config.tokenizer, data.lines("target"), data.tags)
    model = make_model(config, len(tokenizer), len(tokenizer))
    task = make_task(config, model, (tokenizer, tokenizer), data.prepare((tokenizer, tokenizer), data.check()))
    assert isinstance(task, MaskedTask)
    return task


def all_masks(task: MaskedTask, epoch: int) -> dict[int, tuple[list[int], list[int]]]:
    """The masked tokens and targets of every sequence of an epoch, by its place in the text."""
    found: dict[int, tuple[list[int], list[int]]] = {}
    for chosen in task.plan(epoch):
        places, batch = task.sequences.rows(chosen).places, task.batch(chosen, epoch)
        rows = zip(places.tolist(), batch.tokens.tolist(), batch.targets.tolist(), strict=True)
        found |= {place: (tokens, targets) for place, tokens, targets in rows}
    return found


@pytest.mark.parametrize("changes", [[], PAIRS], ids=["blocks", "pairs"])
def test_every_epoch_has_other_masks_unless_they_are_static(changes: list[str], tmp_path: Path) -> None:
    dynamic, static = make_tiny_task(tmp_path, *changes), make_tiny_task(tmp_path, *changes, "task.static=true", "data.batch=1")
    first, second = all_masks(static, 0), all_masks(static, 1)
    assert first == second and [list(map(int, one.ravel())) for one in static.plan(0)] != [
        list(map(int, one.ravel())) for one in static.plan(1)
    ]
    assert all_masks(dynamic, 0) == all_masks(dynamic, 0)
    first, second = all_masks(dynamic, 0), all_masks(dynamic, 1)
    assert all(first[place] != second[place] for place in first.keys() & second.keys())
    assert first != second


def test_the_loss_is_the_mean_over_chosen_tokens_and_parts_add_up(tmp_path: Path) -> None:
    task = make_tiny_task(tmp_path, *PAIRS, "model.dropout=0.0", "model.attention_dropout=0.0")
    model: Any = task.system.models[0]
    batch, pad = task.batch(task.plan(0)[0], 0), task.masking.pad
    objective = task.loss(model, batch)
    hidden = model.body.encode(batch.tokens, batch.mask, segments=batch.segments)
    everywhere = model.project(hidden).log_softmax(-1)  # (rows, time, vocab)
    chosen = [(row, slot) for row, slot in (batch.targets != pad).nonzero().tolist()]
    terms = [-everywhere[r, batch.places[r, s], batch.targets[r, s]] for r, s in chosen]
    assert len(terms) == task.count(batch) == int(objective.minimize.count)
    assert batch.labels is not None
    pairs = functional.cross_entropy(model.next_logits(hidden), batch.labels)
    assert_close(objective.minimize.total / len(terms), torch.stack(terms).mean() + pairs)
    assert_close(objective.report["loss"].total, torch.stack(terms).sum())
    parts = [task.loss(model, part).report for part in task.split(batch, 3)]
    for name, whole in objective.report.items():
        assert_close(torch.stack([part[name].total for part in parts]).sum(), whole.total)
        assert sum(int(part[name].count) for part in parts) == int(whole.count)


def test_a_later_token_changes_an_earlier_prediction() -> None:
    torch.manual_seed(1)
    model = MaskedModel(Bert(BertConfig(**OWN), 50), 32, 0.15, next_sentence=False).eval()
    tokens, place = torch.randint(5, 50, (1, 9)), torch.tensor([[1]])
    later = tokens.clone()
    later[0, 8] = 4
    assert (model(tokens, place)[0] - model(later, place)[0]).abs().max() > 1e-4


def test_without_next_sentence_there_are_no_parameters_of_segments_pooler_or_pairs() -> None:
    model = MaskedModel(Bert(BertConfig(**OWN, segments=0), 50), 32, 0.15, next_sentence=False)
    names = {name.removeprefix("body.").split(".")[0] for name, _ in model.named_parameters()}
    assert names == {"embedding", "position", "embedding_norm", "layers", "dense", "norm", "bias"}


def with_head(body: Bert, weights: dict[str, Tensor], *, next_sentence: bool = False) -> MaskedModel:
    model = MaskedModel(body, 32, 0.15, next_sentence=next_sentence).eval()
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected and all(name.startswith("body.") for name in missing)
    return model


def test_logits_equal_those_of_bert_for_pretraining() -> None:
    from transformers import BertConfig as ReferenceConfig
    from transformers import BertForPreTraining

    torch.manual_seed(3)
    reference = BertForPreTraining(ReferenceConfig(vocab_size=50, max_position_embeddings=16, **SIZES)).eval()
    torch.nn.init.normal_(reference.cls.predictions.bias)
    body = Bert(BertConfig(**OWN, max_positions=16, pooler=True), 50)
    body.load_state_dict(copied_weights(reference.bert, 2))
    theirs = reference.cls.state_dict()
    names = {
        "dense": "predictions.transform.dense",
        "norm": "predictions.transform.LayerNorm",
        "next_sentence": "seq_relationship",
    }
    weights = {f"{own}.{end}": theirs[f"{other}.{end}"] for own, other in names.items() for end in ("weight", "bias")}
    model = with_head(body, weights | {"bias": theirs["predictions.bias"]}, next_sentence=True)
    tokens, segments = torch.randint(50, (3, 9)), torch.arange(9).expand(3, 9) // 5
    mask, places = torch.arange(9) < torch.tensor([[9], [6], [7]]), torch.tensor([[1, 8], [5, 0], [2, 6]])
    with torch.inference_mode():
        expected = reference(input_ids=tokens, attention_mask=mask.long(), token_type_ids=segments)
        logits, hidden = model(tokens, places, mask, segments)
        assert_close(logits, expected.prediction_logits[torch.arange(3)[:, None], places], atol=1e-5, rtol=0)
        assert_close(model.next_logits(hidden), expected.seq_relationship_logits, atol=1e-5, rtol=0)


def test_logits_equal_those_of_roberta_for_masked_language_modeling() -> None:
    """Its positions begin at 2 in `transformers`, after the padding id, and it has one segment, which we add to them."""
    from transformers import RobertaConfig, RobertaForMaskedLM

    torch.manual_seed(4)
    config = RobertaConfig(vocab_size=50, max_position_embeddings=18, type_vocab_size=1, pad_token_id=1, **SIZES)
    config.layer_norm_eps = 1e-12
    reference = RobertaForMaskedLM(config).eval()
    torch.nn.init.normal_(reference.lm_head.bias)
    encoder = torch.nn.Module()
    encoder.embeddings, encoder.encoder = reference.roberta.embeddings, reference.roberta.encoder
    encoder.pooler = torch.nn.ModuleDict({"dense": torch.nn.Linear(32, 32)})
    copied = {name: weight for name, weight in copied_weights(encoder, 2).items() if not name.startswith("pooler")}
    copied["position.table.weight"] = copied["position.table.weight"][2:] + copied.pop("segment.weight")
    body = Bert(BertConfig(**OWN, max_positions=16, segments=0), 50)
    body.load_state_dict(copied)
    theirs, names = reference.lm_head.state_dict(), {"dense": "dense", "norm": "layer_norm"}
    weights = {f"{own}.{end}": theirs[f"{other}.{end}"] for own, other in names.items() for end in ("weight", "bias")}
    model = with_head(body, weights | {"bias": theirs["bias"]})
    tokens, places = torch.randint(2, 50, (3, 9)), torch.tensor([[1, 8], [5, 0], [2, 6]])
    with torch.inference_mode():
        expected = reference(input_ids=tokens).logits[torch.arange(3)[:, None], places]
        assert_close(model(tokens, places)[0], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["model.pooler=true"], "model.pooler: given true, but has no effect because task.next_sentence is false"),
        (["task.next_sentence=true", "model.segments=0"], "model.segments: given 0, expected 2 with task.next_sentence"),
        (['model={family="encoder", dim=16}', "task.next_sentence=true"], "family 'encoder' has none, expected 2"),
        (['model={family="encoder", dim=16, characters=8}'], "model.characters: given 8, expected 0"),
        (["task.random=0.3"], "task.random: given 0.3, expected at most 0.2"),
        (["task.rate=0"], "task.rate"),
        (["data.block=1"], "data.block: given 1, expected at least 2"),
    ],
)
def test_options_that_do_not_fit_are_refused(changes: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        read_run(write_tiny_recipe("masked", tmp_path), changes)
    assert message in str(error.value)


def mixed(folder: Path) -> str:
    """Half of the tiny text, and twice a text of other words."""
    write_tiny_recipe("masked", folder)  # its files
    (folder / "digits.txt").write_text("1 2 3 4 5 6 7 8 9\n" * 20)
    return f"data.train=[{{file='{folder}/book.txt', weight=0.5}}, {{file='{folder}/digits.txt', weight=2}}]"


@pytest.mark.parametrize("static", ["true", "false"])
def test_corpora_are_mixed_by_weight_and_static_masks_stay(static: str, tmp_path: Path) -> None:
    task = make_tiny_task(tmp_path, mixed(tmp_path), f"task.static={static}", "data.batch=1")
    digits = set(task.system.target_tokenizer.encode("1 2 3 4 5 6 7 8 9"))
    masks: dict[int, tuple[list[int], list[int]]] = {}
    assert task.mixture is not None
    for epoch in range(4):
        places = np.concatenate([task.sequences.rows(chosen).places for chosen in task.plan(epoch)])
        of_digits = places >= task.train.sizes[0]
        assert [int((~of_digits).sum()), int(of_digits.sum())] == task.mixture.counts()
        for chosen in task.plan(epoch):
            (row,) = task.sequences.rows(chosen).tokens[:, 1:].tolist()
            assert (chosen[0] >= task.train.sizes[0]) == bool(digits & set(row)), "a block is inside one corpus"
        found = all_masks(task, epoch)
        if static == "true":
            assert all(masks.get(place, found[place]) == found[place] for place in found)
        else:
            assert all(masks[place] != found[place] for place in masks.keys() & found.keys())
        masks = masks | found if static == "true" else found
    assert len(masks) > 4
    assert f"{' + '.join(map(str, task.mixture.counts()))} blocks of the corpora in an epoch" in task.describe()


def test_pairs_of_texts_cannot_be_mixed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"task\.next_sentence: cannot be combined with a weight in data\.train"):
        make_tiny_task(tmp_path, mixed(tmp_path), *PAIRS)


def test_text_of_limited_size_on_the_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.max_store_megabytes: given 1, but task 'masked' needs the whole text"):
        make_tiny_task(tmp_path, "data.max_store_megabytes=1")
