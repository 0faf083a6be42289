from __future__ import annotations

import pytest
import torch
from tiny import END, PAD, START, VOCAB, logits_of, make_pairs, tiny_config
from torch import nn

from heedful.errors import ConfigError, DataError
from heedful.models import MODELS
from heedful.nn.model import Model, SequenceModel
from heedful.text import Tokenizer, TokenizerConfig, train_tokenizer
from heedful.training.optimizers import OptimizerConfig, make_optimizer
from heedful.vectors.initialization import (
    InitializedRows,
    Sides,
    freeze_rows,
    initialize_embeddings,
    initialize_rows,
    matching_rows,
)
from heedful.vectors.table import Vectors
from heedful.vectors.tokens import token_names

DIM = 16
ROWS, WITHOUT = [4, 5, 6, 7, 8, 10], 9  # rows of words with vectors, and of one without
TOKENS = ["<pad>", "<s>", "</s>", "<unk>", "▁dog", "s", "▁cat", "▁eel"]
KNOWN = Vectors(["cat", "▁dog", "dog", "s"], torch.randn(4, DIM, generator=torch.Generator().manual_seed(2)) * 30)


def table_of(count: int = len(TOKENS)) -> nn.Embedding:
    table = nn.Embedding(count, DIM)
    nn.init.normal_(table.weight, std=0.25)
    return table


def test_tokens_get_the_vectors_of_their_name_and_others_stay() -> None:
    table = table_of()
    before = table.weight.detach().clone()
    assert initialize_rows(table, TOKENS, KNOWN) == 3
    expected = {4: 1, 5: 3, 6: 0}  # ▁dog has its own vector, ▁cat has that of cat
    factors = [table.weight[row] / KNOWN.values[own] for row, own in expected.items()]
    torch.testing.assert_close(torch.stack(factors), factors[0][0].expand(3, DIM))
    left = [row for row in range(len(TOKENS)) if row not in expected]
    assert torch.equal(table.weight[left], before[left])


def test_initialized_rows_have_the_scale_of_the_rows_they_replace() -> None:
    table = table_of()
    rows = matching_rows(TOKENS, KNOWN)[0]
    before = table.weight.detach()[rows].square().mean()
    initialize_rows(table, TOKENS, KNOWN)
    torch.testing.assert_close(table.weight.detach()[rows].square().mean(), before)


def test_vectors_of_another_size_are_an_error() -> None:
    with pytest.raises(ConfigError, match="the vectors have 16 dimensions, the embedding 8; expected the same"):
        initialize_rows(nn.Embedding(8, 8), TOKENS, KNOWN)
    with pytest.raises(DataError, match="none of the 2 tokens has a vector"):
        initialize_rows(nn.Embedding(2, DIM), ["x", "y"], KNOWN)


@pytest.fixture
def tokenizer() -> Tokenizer:
    made = train_tokenizer(TokenizerConfig(kind="words", min_frequency=1), ["a b c d e f g"])
    assert len(made) == VOCAB and tuple(made.specials)[:3] == (PAD, START, END)
    return made


def vectors_for(tokenizer: Tokenizer) -> Vectors:
    names = token_names(tokenizer)
    return Vectors([names[row] for row in ROWS], torch.randn(len(ROWS), DIM))


def fresh(**changes: object) -> SequenceModel:
    torch.manual_seed(1)
    model: SequenceModel = MODELS["transformer"](tiny_config("transformer", changes), VOCAB, VOCAB)
    return model


@pytest.mark.parametrize(
    ("tie", "sides", "tables"),
    [
        ("none", "both", ["embedding.source", "embedding.target"]),
        ("none", "source", ["embedding.source"]),
        ("output", "target", ["embedding.target"]),
        ("all", "both", ["embedding.target"]),
        ("all", "source", ["embedding.target"]),
    ],
)
def test_the_embeddings_of_the_given_sides_are_initialized(
    tie: str, sides: Sides, tables: list[str], tokenizer: Tokenizer
) -> None:
    model, untouched = fresh(tie=tie), fresh(tie=tie)
    vectors = vectors_for(tokenizer)
    placed = initialize_embeddings(model, (tokenizer, tokenizer), vectors, sides)
    assert [one.table for one in placed] == [model.get_submodule(name) for name in tables]
    units = nn.functional.normalize(vectors.values, dim=1)
    for one in placed:
        assert one.rows.tolist() == ROWS
        torch.testing.assert_close(nn.functional.normalize(one.table.weight[ROWS], dim=1), units)
    for name, parameter in untouched.named_parameters():
        changed = not torch.equal(parameter, model.get_parameter(name))
        assert changed == (name in [f"{table}.weight" for table in tables])


def learn(model: SequenceModel, placed: list[InitializedRows], *, frozen: bool, decay: float) -> None:
    optimizer = make_optimizer(OptimizerConfig(name="adamw", decay=decay), model)
    if frozen:
        for one in placed:
            freeze_rows(one, optimizer)
    pairs = make_pairs()
    for _ in range(5):
        logits = logits_of(model, pairs)
        nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), pairs.target[:, 1:].flatten()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("decay", [0.0, 0.5])
@pytest.mark.parametrize("tie", ["all", "none"])
def test_frozen_rows_keep_their_bits_while_the_others_are_trained(tie: str, decay: float, tokenizer: Tokenizer) -> None:
    model = fresh(tie=tie).train()
    placed = initialize_embeddings(model, (tokenizer, tokenizer), vectors_for(tokenizer), "both")
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    learn(model, placed, frozen=True, decay=decay)
    for one in placed:
        own = next(name for name, parameter in model.named_parameters() if parameter is one.table.weight)
        assert torch.equal(one.table.weight[one.rows], before[own][one.rows])
        assert (one.table.weight[WITHOUT] != before[own][WITHOUT]).any()
    assert [name for name, parameter in model.named_parameters() if torch.equal(parameter, before[name])] == []


def test_rows_that_are_not_frozen_are_trained(tokenizer: Tokenizer) -> None:
    model = fresh().train()
    placed = initialize_embeddings(model, (tokenizer, tokenizer), vectors_for(tokenizer), "both")
    before = placed[0].table.weight.detach().clone()
    learn(model, placed, frozen=False, decay=0.0)
    assert (placed[0].table.weight[ROWS] != before[ROWS]).any(dim=1).all()


def test_frozen_rows_do_not_count_in_the_gradient_norm(tokenizer: Tokenizer) -> None:
    model = fresh(dropout=0.0)
    placed = initialize_embeddings(model, (tokenizer, tokenizer), vectors_for(tokenizer), "both")
    freeze_rows(placed[0], torch.optim.SGD(model.parameters(), lr=1.0))
    logits_of(model, make_pairs()).square().sum().backward()  # type: ignore[no-untyped-call]
    gradient = placed[0].table.weight.grad
    assert gradient is not None and (gradient[ROWS] == 0).all() and (gradient[WITHOUT] != 0).any()


def test_a_model_without_embedding_is_an_error(tokenizer: Tokenizer) -> None:
    class Images(Model): ...

    with pytest.raises(ConfigError, match="Images has no embedding of source tokens; expected a text model"):
        initialize_embeddings(Images(), (tokenizer, tokenizer), vectors_for(tokenizer), "both")
