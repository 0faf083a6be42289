"""The Transformer has the published sizes and receptive fields, and rejects invalid configs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import END, START, VOCAB, Pairs, config_problems, logits_of, perturb
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.errors import HeedfulError
from heedful.models.transformer import Transformer, TransformerConfig
from heedful.nn.hooks import record
from heedful.nn.positions import EMBEDDED, POSITIONS
from heedful.search import SearchConfig, SourceBatch, search_batch, step_function


def make(vocab: int = VOCAB, **changes: Any) -> Transformer:
    config = TransformerConfig(**({"dim": 16, "layers": 2, "heads": 2, "feed_forward": 32} | changes))
    return perturb(Transformer(config, vocab, vocab)).eval()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({}, 63_082_496), ({"dim": 1024, "heads": 16, "feed_forward": 4096, "dropout": 0.3}, 214_245_376)],
    ids=["base", "big"],
)
def test_base_and_big_have_the_published_number_of_parameters(changes: dict[str, Any], expected: int) -> None:
    with torch.device("meta"):
        model = Transformer(TransformerConfig(**changes), 37000, 37000)
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


def memory_of(model: Transformer, source: Tensor) -> Tensor:
    """Keys of the decoder's cross-attention: (sources, time, …)."""
    keys: Tensor = model.start(source, None, room=0).memory["layers"][0][0]  # (sources, heads, time, head_dim)
    return keys.transpose(1, 2)


@pytest.mark.parametrize("position", POSITIONS)
def test_only_without_positions_the_encoder_is_permutation_equivariant(position: str, pairs: Pairs) -> None:
    model, order = make(position=position), torch.tensor([3, 0, 5, 1, 4, 2])
    with torch.inference_mode():
        difference = (memory_of(model, pairs.source[:1, order]) - memory_of(model, pairs.source[:1])[:, order]).abs().max()
    assert difference < 1e-5 if position == "none" else difference > 1e-3


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_l_layers_with_a_window_of_r_cover_1_plus_l_r_tokens(layers: int) -> None:
    model = make(layers=layers, window=2, vocab=40)
    source = torch.arange(4, 24)[None]  # all different, so that the gradient of the embedding shows which tokens matter
    (gradient,) = torch.autograd.grad(memory_of(model, source)[0, 10].sum(), model.embedding.target.weight)
    reached = gradient.abs().sum(-1).nonzero().flatten().tolist()
    assert reached == list(range(14 - layers, 14 + layers + 1))
    assert len(reached) == 1 + layers * 2


@pytest.mark.parametrize("layers", [1, 2])
def test_a_decoders_window_covers_the_last_tokens_including_the_current_one(layers: int) -> None:
    model = make(layers=layers, window=3, vocab=40)
    target = torch.arange(10, 30)[None]
    hidden = model.step(target, model.start(torch.tensor([[5]]), None, room=0)).hidden
    (gradient,) = torch.autograd.grad((hidden[0, 12] * torch.randn(16)).sum(), model.embedding.target.weight)
    reached = [token for token in gradient.abs().sum(-1).nonzero().flatten().tolist() if token >= 10]
    assert reached == list(range(22 - 2 * layers, 22 + 1))


@pytest.mark.parametrize("position", POSITIONS)
def test_relative_schemes_do_not_depend_on_absolute_positions(position: str) -> None:
    """With windows of three, two layers cover five tokens: the same five tokens at other positions."""
    model = make(position=position, window=3, vocab=40)
    tokens = torch.arange(4, 14)[None]
    later = torch.cat((torch.arange(20, 27)[None], tokens), dim=1)
    with torch.inference_mode():
        decoded = [model.step(given, model.start(tokens, None, room=0)).hidden[:, -6:] for given in (tokens, later)]
        encoded = [memory_of(model, given)[:, -6:] for given in (tokens, later)]
    for first, second in (decoded, encoded):
        difference = (first - second).abs().max()
        assert difference > 1e-3 if position in EMBEDDED else difference < 1e-5


def test_the_gradient_reaches_the_first_of_24_layers(pairs: Pairs) -> None:
    torch.manual_seed(0)
    config = TransformerConfig(dim=16, layers=24, heads=2, feed_forward=32, norm="pre", dropout=0.0)
    model = Transformer(config, VOCAB, VOCAB)
    loss = nn.functional.cross_entropy(logits_of(model, pairs).flatten(0, 1), pairs.target.roll(-1, 1).flatten())
    first = [blocks.get_parameter("0.self_attention.project.weight") for blocks in (model.encoder, model.decoder)]
    for gradient in torch.autograd.grad(loss, first):
        assert gradient.norm() > 1e-3


@pytest.mark.parametrize(("scaled", "factor"), [(True, 4.0), (False, 1.0)])
def test_embeddings_are_scaled_by_the_root_of_their_size(scaled: bool, factor: float, pairs: Pairs) -> None:
    model, at = make(position="none", scale_embeddings=scaled), torch.arange(7)[None]
    embedded = model.embed("target", model.decoder_position, pairs.target, at)
    assert_close(embedded, factor * model.embedding.target.weight[pairs.target])


@pytest.mark.parametrize(("tie", "tables"), [("all", 1), ("output", 2), ("none", 3)])
def test_tied_weights_are_one_matrix(tie: str, tables: int) -> None:
    assert sum(len(parameter) == 29 for parameter in make(vocab=29, tie=tie).parameters()) == tables


def test_separate_vocabularies_may_differ_in_size(pairs: Pairs) -> None:
    config = TransformerConfig(dim=16, layers=1, heads=2, feed_forward=32, tie="output")
    model = Transformer(config, 11, 23)
    assert logits_of(model, pairs._replace(target=pairs.target + 12)).shape == (3, 7, 23)


def test_heads_may_differ_by_layer_and_kind(pairs: Pairs) -> None:
    model = make(heads=(1, 2), decoder_heads=(4, 1), cross_heads=(2, 4))
    with record(model, "*.weights") as recorded, torch.inference_mode():
        logits_of(model, pairs)
    heads = {name: weights.shape[1] for name, weights in recorded.items()}
    assert [heads[f"encoder.{layer}.self_attention.weights"] for layer in (0, 1)] == [1, 2]
    assert [heads[f"decoder.{layer}.self_attention.weights"] for layer in (0, 1)] == [4, 1]
    assert [heads[f"decoder.{layer}.cross_attention.weights"] for layer in (0, 1)] == [2, 4]


def test_the_size_of_a_head_may_be_set(pairs: Pairs) -> None:
    model = make(head_dim=5)
    with record(model, "*.context") as recorded, torch.inference_mode():
        logits_of(model, pairs)
    assert {context.shape[-1] for context in recorded.values()} == {5}


def test_dropout_applies_in_training_only(pairs: Pairs) -> None:
    model = make(dropout=0.3)
    assert torch.equal(logits_of(model, pairs), logits_of(model, pairs))
    model.train()
    assert not torch.equal(logits_of(model, pairs), logits_of(model, pairs))


def test_search_encodes_the_source_once_and_runs_one_step_per_token(monkeypatch: pytest.MonkeyPatch, pairs: Pairs) -> None:
    model, calls = make(), {"start": 0, "step": 0}

    def counted(name: str) -> Any:
        real = getattr(model, name)

        def call(*given: Any, **named: Any) -> Any:
            calls[name] += 1
            return real(*given, **named)

        return call

    for name in calls:
        monkeypatch.setattr(model, name, counted(name))
    with torch.inference_mode():
        group = SourceBatch(model.start(pairs.source[:1], None, room=8), torch.tensor([8]), [0], [[]])
        ((said,),) = search_batch(step_function(model), group, SearchConfig(method="greedy"), start=START, end=END)
    assert calls == {"start": 1, "step": len(said.tokens) + 1}


def test_learned_positions_are_limited_by_their_table(pairs: Pairs) -> None:
    model = make(position="learned", max_positions=6)
    state = model.start(pairs.source, pairs.mask, room=8)
    state = model.step(pairs.target[:, :6], state).state
    with pytest.raises(HeedfulError, match="7 tokens was given to a model with 6 learned positions"):
        model.step(pairs.target[:, 6:], state)
    with pytest.raises(HeedfulError, match="7 tokens"):
        model.start(pairs.target, None, room=0)


@pytest.mark.parametrize("position", POSITIONS)
def test_a_step_beyond_the_room_is_an_error(position: str, pairs: Pairs) -> None:
    """Without room there is no cache, and a second step would be silently wrong."""
    model = make(position=position)
    for room in (0, 1):
        state = model.step(pairs.target[:, :1], model.start(pairs.source, pairs.mask, room=room)).state
        with pytest.raises((AssertionError, HeedfulError, RuntimeError)):
            model.step(pairs.target[:, 1:2], state)


@pytest.mark.parametrize(
    ("given", "name", "sentence"),
    [
        ({"dim": 30, "heads": 4}, "heads", "given 4, which does not divide dim 30"),
        ({"layers": 2, "heads": (1, 2, 3)}, "heads", "given [1, 2, 3], expected one number or one for each of 2 layers"),
        ({"layers": 2, "cross_heads": (1,)}, "cross_heads", "given [1], expected one number or one for each of 2 layers"),
        ({"position": "rotary", "head_dim": 5}, "position", "requires an even head_dim, but it is 5"),
        ({"dim": 15, "heads": 1}, "dim", "given 15, expected an even number"),
        ({"position": "rotary", "position_join": "concatenate"}, "position_join", "is not added to the embeddings"),
        ({"relative_clip": 3}, "relative_clip", "only relative positions are clipped"),
        ({"max_positions": 3}, "max_positions", "only learned positions have a limit"),
    ],
    ids=str,
)
def test_invalid_configs_are_errors(given: dict[str, Any], name: str, sentence: str) -> None:
    problems = config_problems(TransformerConfig, **given)
    assert problems.keys() == {name}
    assert sentence in problems[name]


def test_all_problems_of_a_config_are_reported() -> None:
    assert config_problems(TransformerConfig, layers=2, decoder_heads=(1,), cross_heads=(1, 1, 1), dim=15).keys() == {
        "decoder_heads",
        "cross_heads",
        "dim",
    }
    assert config_problems(TransformerConfig, dim=0, position="rotry", hedas=3).keys() == {"dim", "position", "hedas"}


def test_a_list_of_heads_does_not_set_the_number_of_layers() -> None:
    """Two numbers for the encoder do not fit a decoder of three layers."""
    assert config_problems(TransformerConfig, layers=2, decoder_layers=3, heads=(2, 4))
    assert len(make(layers=2, decoder_layers=3, heads=(2, 4), decoder_heads=2).decoder) == 3
