"""The recurrent families have the published sizes and connections, attention maps, and they learn."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter
from tiny import VARIANTS, VOCAB, Pairs, Variant, by_family, config_problems, logits_of, perturb, source_maps, tiny_model
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.errors import ConfigError
from heedful.models import MODELS, ModelConfig
from heedful.models.bahdanau import BahdanauConfig
from heedful.models.gnmt import GNMT, GNMTConfig
from heedful.models.luong import Luong, LuongConfig
from heedful.models.recurrent import Recurrent
from heedful.models.sutskever import SutskeverConfig
from heedful.nn.hooks import patch, record
from heedful.nn.recurrent import Layer

FAMILIES = ["sutskever", "bahdanau", "luong", "gnmt"]
ATTENDING = FAMILIES[1:]


def make(family: str, **changes: Any) -> Any:
    config = TypeAdapter(ModelConfig).validate_python({"family": family, "dim": 16, "dropout": 0.0} | changes)
    return perturb(MODELS[family](config, VOCAB, VOCAB)).eval()


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def on_meta(config: Any, source_vocab: int, target_vocab: int) -> Recurrent:
    with torch.device("meta"):
        model: Recurrent = MODELS[config.family](config, source_vocab, target_vocab)
    return model


def test_sutskevers_model_has_384_million_parameters_of_which_64_million_are_recurrent() -> None:
    model = on_meta(SutskeverConfig(), 160_000, 80_000)
    recurrent = sum(parameters(layer) for layer in model.blocks())
    assert [round(count / 1e6) for count in (parameters(model), recurrent)] == [384, 64]


def test_bahdanaus_model_has_the_matrices_of_the_paper() -> None:
    n, m, readout, vocab = 1000, 620, 500, 30_000
    gru = 3 * (m * n + n * n + n)
    decoder = 3 * (m * n + n * n + 2 * n * n + n)  # W, U, C and b for the two gates and the new state
    attention = n * n + 2 * n * n + n + n  # W_a, U_a with a bias, v_a
    first, answer = n * n + n, (n + m + 2 * n + 1) * 2 * readout
    expected = 2 * gru + decoder + attention + first + answer + 2 * vocab * m + vocab * readout
    assert parameters(on_meta(BahdanauConfig(), vocab, vocab)) == expected


def test_bahdanaus_output_is_a_maxout_of_pairs(pairs: Pairs) -> None:
    model, outputs = make("bahdanau", readout=5), []
    model.decoder.answer.register_forward_hook(lambda module, inputs, out: outputs.append(out))
    hidden = model.step(pairs.target, model.start(pairs.source, pairs.mask, room=0)).hidden
    assert_close(hidden, torch.maximum(outputs[0][..., ::2], outputs[0][..., 1::2]))


def test_input_feeding_enlarges_the_first_input_by_the_hidden_size() -> None:
    fed, unfed = (on_meta(LuongConfig(feed=feed), 100, 100) for feed in (True, False))
    assert parameters(fed) - parameters(unfed) == 4 * 1000 * 1000


def test_layers_of_gnmt_have_the_published_input_sizes() -> None:
    model = on_meta(GNMTConfig(), 32_000, 32_000)
    layers = [module for module in model.modules() if isinstance(module, Layer)]
    assert [layer.weight.shape[1] - 1 for layer in layers] == [1024, 1024, 2048, *[1024] * 6, *[2048] * 8]


def test_the_context_vector_is_an_input_of_every_decoder_layer_of_gnmt(pairs: Pairs) -> None:
    model = make("gnmt", layers=3)
    layers = [model.decoder.bottom.layer, *model.decoder.above]
    gradients = torch.autograd.grad(logits_of(model, pairs).square().sum(), [layer.weight for layer in layers])
    assert len(gradients) == 3
    assert all(gradient[:, 16:-1].any() for gradient in gradients)  # after the 16 inputs from below, before the bias


@pytest.mark.parametrize("changes", [{"residual": True}, {"residual": False}], ids=["residual", "plain"])
def test_gnmt_has_residual_connections_from_the_third_layer_on(changes: dict[str, Any], pairs: Pairs) -> None:
    """With a residual connection, a layer with zero weights is the identity."""
    deep, shallow = (make("gnmt", layers=layers, **changes) for layers in (3, 2))
    shallow.load_state_dict(deep.state_dict(), strict=False)
    for layer in (list(deep.encoder.above)[-1], list(deep.decoder.above)[-1]):
        for parameter in layer.parameters():
            nn.init.zeros_(parameter)
    same = torch.allclose(logits_of(deep, pairs), logits_of(shallow, pairs), atol=1e-5)
    assert same is changes["residual"]


def first_weights(model: Any, pairs: Pairs, tokens: Tensor) -> Tensor:
    with record(model, "*.weights") as recorded, torch.inference_mode():
        logits_of(model, pairs._replace(target=tokens))
    (weights,) = recorded.values()
    return weights[:, 0, 0]  # (rows, S)


@pytest.mark.parametrize(("family", "depends"), [("bahdanau", False), ("gnmt", False), ("luong", True)])
def test_attention_depends_on_the_current_token_only_after_the_step(family: str, depends: bool, pairs: Pairs) -> None:
    model = make(family)
    weights, other_weights = (first_weights(model, pairs, pairs.target[:, [column]]) for column in (1, 3))
    assert torch.allclose(weights, other_weights) is not depends


def test_the_decoder_of_sutskever_depends_on_the_initial_state_only(pairs: Pairs) -> None:
    model = make("sutskever", layers=2)
    other = pairs._replace(source=pairs.source.flip(0), mask=pairs.mask.flip(0))
    with torch.inference_mode():
        assert model.start(pairs.source, pairs.mask, room=0).memory is None
        with record(model, "*.thought") as recorded:
            expected = logits_of(model, other)
        with patch(model, recorded):
            assert_close(logits_of(model, pairs), expected)


@pytest.mark.parametrize("family", ATTENDING)
def test_attention_has_maps(family: str, pairs: Pairs) -> None:
    (weights,) = source_maps(make(family), pairs.source[:1], pairs.target[:1])
    assert weights.shape == (1, 7, 6)
    assert_close(weights.sum(-1), torch.ones(1, 7))


def test_a_model_without_attention_has_no_maps(pairs: Pairs) -> None:
    with pytest.raises(ConfigError, match="needs a model that attends to its source, and this one does not"):
        source_maps(make("sutskever"), pairs.source[:1], pairs.target[:1])


def test_local_attention_stays_within_its_radius(pairs: Pairs) -> None:
    (weights,) = source_maps(make("luong", scope="local-m", radius=1), pairs.source[:1], pairs.target[:1])
    distance = (torch.arange(6) - torch.arange(7).clamp(max=5)[:, None]).abs()  # (target, source)
    assert not weights[0][distance > 1].any()
    assert (weights[0][distance <= 1] > 0).all()


@pytest.mark.parametrize("variant", by_family([variant for variant in VARIANTS if variant.family in FAMILIES]), ids=str)
@torch.inference_mode()
def test_a_model_may_be_cast_to_half_precision(variant: Variant, pairs: Pairs) -> None:
    """Without autocast: weights, states and attention are bfloat16."""
    model = tiny_model(variant)
    whole, half = logits_of(model, pairs), logits_of(copy.deepcopy(model).bfloat16(), pairs)
    assert half.dtype is torch.bfloat16
    assert (half - whole).abs().max() < 0.1 * whole.abs().max()


@pytest.mark.parametrize("family", FAMILIES)
def test_dropout_applies_in_training_only(family: str, pairs: Pairs) -> None:
    model = make(family, dropout=0.3)
    assert torch.equal(logits_of(model, pairs), logits_of(model, pairs))
    model.train()
    assert not torch.equal(logits_of(model, pairs), logits_of(model, pairs))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("tie", "tables"), [("all", 1), ("output", 2), ("none", 3)])
def test_tied_weights_are_one_matrix(family: str, tie: str, tables: int) -> None:
    sizes = {"embedding": 16, "readout": 16} if family == "bahdanau" else {}
    config = TypeAdapter(ModelConfig).validate_python({"family": family, "dim": 16, "tie": tie} | sizes)
    assert sum(len(parameter) == 29 for parameter in on_meta(config, 29, 29).parameters()) == tables


@pytest.mark.parametrize("family", FAMILIES)
def test_separate_vocabularies_may_differ_in_size(family: str, pairs: Pairs) -> None:
    config = TypeAdapter(ModelConfig).validate_python({"family": family, "dim": 16})
    model = MODELS[family](config, 11, 23)
    assert logits_of(model, pairs._replace(target=pairs.target + 12)).shape == (3, 7, 23)


@pytest.mark.parametrize(
    ("config", "given", "name", "sentence"),
    [
        (SutskeverConfig, {"dim": 16, "embedding": 8, "tie": "output"}, "tie", "embeddings have size 8"),
        (BahdanauConfig, {"tie": "all"}, "tie", "embeddings have size 620 and the output layer 500"),
        (LuongConfig, {"radius": 3}, "radius", "model.scope is 'global', which has no window"),
        (LuongConfig, {"places": 3}, "places", "model.score is 'general', which does not depend on source positions"),
        (LuongConfig, {"score": "additive"}, "score", "Input should be"),
        (GNMTConfig, {"heads": 3}, "heads", "Extra inputs"),
    ],
    ids=str,
)
def test_invalid_configs_are_errors(config: Any, given: dict[str, Any], name: str, sentence: str) -> None:
    problems = config_problems(config, **given)
    assert problems.keys() == {name}
    assert sentence in problems[name]


@pytest.mark.parametrize("family", FAMILIES)
def test_shared_embeddings_require_a_shared_vocabulary(family: str) -> None:
    sizes = {"embedding": 16, "readout": 16} if family == "bahdanau" else {}
    config = TypeAdapter(ModelConfig).validate_python({"family": family, "dim": 16, "tie": "all"} | sizes)
    assert [problem.path for problem in config.problems_with(shared=False, source=9, target=9)] == ["tie"]
    assert config.problems_with(shared=True, source=9, target=9) == []


def test_the_location_score_requires_a_place_for_every_source_token() -> None:
    config = LuongConfig(score="location", places=8)
    assert [problem.path for problem in config.problems_with(shared=True, source=9, target=20)] == ["places"]
    assert config.problems_with(shared=True, source=8, target=20) == []


def final_loss(model: nn.Module, steps: int, length: int = 4) -> float:
    """The mean loss of the last five training steps of copying random words."""
    generator = torch.Generator().manual_seed(1)
    adam = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    for _ in range(steps):
        words = torch.randint(4, VOCAB, (32, length), generator=generator)
        pairs = Pairs(words, torch.ones_like(words, dtype=torch.bool), nn.functional.pad(words[:, :-1], (1, 0), value=1))
        loss = nn.functional.cross_entropy(logits_of(model, pairs).flatten(0, 1), words.flatten())  # type: ignore[arg-type]
        adam.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        losses.append(loss.item())
    return sum(losses[-5:]) / 5


def test_residual_connections_speed_up_a_deep_stack() -> None:
    torch.manual_seed(0)
    residual, plain = (
        final_loss(GNMT(GNMTConfig(dim=16, layers=8, dropout=0.0, residual=residual), VOCAB, VOCAB), 40)
        for residual in (True, False)
    )
    assert residual < plain - 0.3


@pytest.mark.parametrize(
    ("score", "scope"),
    [("dot", "local-p"), ("general", "global"), ("concat", "local-m"), ("location", "global"), ("general", "local-p")],
)
def test_every_score_and_every_scope_learns(score: str, scope: str) -> None:
    """All combinations: the variants of luong in contracts/."""
    torch.manual_seed(0)
    changes: dict[str, Any] = {"score": score, "scope": scope} | ({} if scope == "global" else {"radius": 2})
    model = Luong(LuongConfig(dim=24, layers=1, dropout=0.0, **changes), VOCAB, VOCAB)
    assert final_loss(model, 60) < 1.0  # chance among seven words is ln 7 = 1.95
