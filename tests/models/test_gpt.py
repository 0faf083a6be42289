"""Decoder-only models: published sizes and logits, source and target as one sequence, and the loss of the source."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tiny import END, VOCAB, config_problems, make_pairs, perturb
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from heedful.errors import HeedfulError
from heedful.models.gpt import GPT, GPTConfig
from heedful.nn.attention import SelfAttention
from heedful.nn.hooks import record

SMALL = {"dim": 16, "layers": 2, "heads": 2, "dropout": 0.0}


def small(**options: Any) -> GPT:
    torch.manual_seed(1)
    return perturb(GPT(GPTConfig.model_validate(SMALL | options), VOCAB, VOCAB)).eval()


def logits_of(model: GPT, tokens: Tensor, source: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    state = model.start(tokens[:, :0] if source is None else source, mask, room=0)
    return model.project(model.step(tokens, state).hidden)


@pytest.mark.parametrize(
    ("options", "vocab", "parameters"),
    [
        ({}, 50_257, 124_439_808),
        ({"dim": 1024, "layers": 24, "heads": 16}, 50_257, 354_823_168),
        ({"dim": 1280, "layers": 36, "heads": 20}, 50_257, 774_030_080),
        ({"dim": 1600, "layers": 48, "heads": 25}, 50_257, 1_557_611_200),
        ({"norm": "post", "max_positions": 512}, 40_478, 116_534_784),  # GPT-1
    ],
)
def test_published_sizes(options: dict[str, Any], vocab: int, parameters: int) -> None:
    with torch.device("meta"):
        model = GPT(GPTConfig.model_validate(options), vocab, vocab)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def copy_weights(model: GPT, theirs: dict[str, Tensor], names: dict[str, str]) -> None:
    """Copy their weights into our model; names: ours -> theirs, {} is the layer. Their weights are (inputs, outputs)."""
    state = model.state_dict()
    for ours, other in names.items():
        for layer in range(len(model.layers)) if "{}" in ours else [0]:
            weight = theirs[other.format(layer)]
            transposed = weight.T if weight.dim() == 2 and "{}" in ours else weight
            assert state[ours.format(layer)].shape == transposed.shape, ours
            state[ours.format(layer)] = transposed.clone()
    filled = {ours.format(layer) for ours in names for layer in range(len(model.layers))}
    assert filled == state.keys()  # all weights are copied
    model.load_state_dict(state)


LAYER = {
    "layers.{}.self_attention.project": "h.{}.attn.c_attn",
    "layers.{}.self_attention.out": "h.{}.attn.c_proj",
    "layers.{}.self_attention_residual.norm": "h.{}.ln_1",
    "layers.{}.feed_forward.rise": "h.{}.mlp.c_fc",
    "layers.{}.feed_forward.fall": "h.{}.mlp.c_proj",
    "layers.{}.feed_forward_residual.norm": "h.{}.ln_2",
}
LAYERS = {f"{ours}.{part}": f"{other}.{part}" for ours, other in LAYER.items() for part in ("weight", "bias")}


def test_logits_equal_those_of_gpt_2_with_the_same_weights() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": VOCAB, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2}
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=1, eos_token_id=2))
    perturb(theirs.eval())
    ours = small(max_positions=32)
    names = {"embedding.target.weight": "wte.weight", "position.table.weight": "wpe.weight", **LAYERS}
    copy_weights(ours, theirs.transformer.state_dict(), names | {"last.weight": "ln_f.weight", "last.bias": "ln_f.bias"})
    tokens = make_pairs().target
    with torch.inference_mode():
        assert_close(logits_of(ours, tokens), theirs(tokens).logits, atol=1e-5, rtol=0)


def test_logits_equal_those_of_gpt_1_with_the_same_weights() -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.OpenAIGPTLMHeadModel(
        transformers.OpenAIGPTConfig(vocab_size=VOCAB, n_positions=32, n_embd=16, n_layer=2, n_head=2)
    )
    perturb(theirs.eval())
    ours = small(max_positions=32, norm="post")
    names = {"embedding.target.weight": "tokens_embed.weight", "position.table.weight": "positions_embed.weight", **LAYERS}
    copy_weights(ours, theirs.transformer.state_dict(), names)
    tokens = make_pairs().target
    with torch.inference_mode():
        assert_close(logits_of(ours, tokens), theirs(tokens).logits, atol=1e-5, rtol=0)


ONE_SEQUENCE = [
    {"position": "learned", "max_positions": 32},
    {"position": "rotary", "norm": "post"},
    {"position": "alibi", "reach": ["local", "full"], "block": 4},
    {"position": "rotary", "reach": ["compressed", "local"], "block": 5},
    {"position": "t5", "reach": "compressed", "stride": 2},
]


@pytest.mark.parametrize("options", ONE_SEQUENCE, ids=str)
@torch.inference_mode()
def test_source_and_target_are_one_sequence(options: dict[str, Any]) -> None:
    model, pairs = small(**options), make_pairs()
    separate = logits_of(model, pairs.target, pairs.source, pairs.mask)
    for row, length in enumerate(pairs.mask.sum(-1).tolist()):
        whole = torch.cat((pairs.source[row, :length], pairs.target[row]))[None]
        assert_close(separate[row], logits_of(model, whole)[0, length:], atol=1e-5, rtol=0)


@pytest.mark.parametrize("options", ONE_SEQUENCE, ids=str)
@torch.inference_mode()
def test_steps_from_an_empty_prompt_equal_teacher_forcing(options: dict[str, Any]) -> None:
    model, tokens = small(**options), make_pairs().target
    state = model.start(tokens[:, :0], None, room=tokens.shape[1])
    logits = []
    for time in range(tokens.shape[1]):
        step = model.step(tokens[:, time : time + 1], state)
        state = step.state
        logits.append(model.project(step.hidden))
    assert_close(torch.cat(logits, dim=1), logits_of(model, tokens), atol=1e-5, rtol=0)


def test_the_source_loss_equals_that_of_a_language_model() -> None:
    model, pairs = small(position="rotary", source_loss=0.5).train(), make_pairs()
    step = model.step(pairs.target, model.start(pairs.source, pairs.mask, room=0))
    lengths = pairs.mask.sum(-1).tolist()
    total = torch.zeros(())
    for row, length in zip(pairs.source, lengths, strict=True):
        logits = logits_of(model, row[None, : length - 1])[0]
        total = total + functional.cross_entropy(logits, row[1:length], reduction="sum")
    assert_close(step.losses["source"].total, 0.5 * total, atol=1e-5, rtol=0)
    assert int(step.losses["source"].count) == sum(lengths) - 3
    assert model.eval().step(pairs.target, model.start(pairs.source, pairs.mask, room=0)).losses == {}


@torch.no_grad()
def test_initial_output_projections_are_scaled_by_the_number_of_layers() -> None:
    torch.manual_seed(0)
    config = GPTConfig(dim=128, layers=8, heads=4, dropout=0.0)
    model = GPT(config, 50, 50)
    for layer in model.layers:
        assert isinstance(layer.self_attention, SelfAttention)
        for projection in (layer.self_attention.out, layer.feed_forward.fall):
            assert float(projection.weight.std()) == pytest.approx(0.02 / math.sqrt(16), rel=0.05)
        assert float(layer.feed_forward.rise.weight.std()) == pytest.approx(0.02, rel=0.05)
    post = GPT(config.model_copy(update={"norm": "post"}), 50, 50)
    first = next(iter(post.layers))
    assert isinstance(first.self_attention, SelfAttention)
    assert float(first.self_attention.out.weight.std()) == pytest.approx(0.02, rel=0.05)


@torch.inference_mode()
def test_initial_activations_of_many_layers_are_bounded() -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(dim=64, layers=24, heads=4, max_positions=64), 50, 50).eval()
    with record(model, "layers.*.out") as recorded:
        logits_of(model, torch.randint(50, (2, 64)))
    deviations = [float(recorded[f"layers.{layer}.out"].std()) for layer in range(24)]
    assert deviations[-1] < 5 * deviations[0]


def test_word_dropout_drops_all_occurrences_of_a_word() -> None:
    model = small(position="none", word_dropout=0.5, norm="post").train()
    tokens = torch.arange(4, 11).repeat(2, 3)  # each word six times
    inputs: list[Tensor] = []
    model.embedding_dropout.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0]))
    logits_of(model, tokens)
    dropped = {int(token) for token, x in zip(tokens.flatten(), inputs[0].flatten(0, 1), strict=True) if not x.any()}
    kept = {int(token) for token, x in zip(tokens.flatten(), inputs[0].flatten(0, 1), strict=True) if x.any()}
    assert dropped and kept and not dropped & kept
    some = next(iter(kept))
    assert_close(inputs[0][tokens == some][0], 2 * model.embedding.target.weight[some])


@torch.inference_mode()
def test_a_text_longer_than_the_learned_positions_is_an_error() -> None:
    model, tokens = small(max_positions=8), torch.full((1, 9), END)
    with pytest.raises(HeedfulError, match="9 tokens was given to a model with 8 learned positions"):
        logits_of(model, tokens)
    with pytest.raises(HeedfulError, match="9 tokens"):
        model.start(tokens, None, room=0)
    state = model.step(tokens[:, :4], model.start(tokens[:, :4], None, room=20)).state
    with pytest.raises(HeedfulError, match="9 tokens"):
        model.step(tokens[:, :1], state)
    assert model.max_length == 4


def test_a_second_step_requires_room() -> None:
    model, pairs = small(), make_pairs()
    state = model.step(pairs.target, model.start(pairs.source, pairs.mask, room=0)).state
    with pytest.raises(AssertionError, match="decoding by steps requires `room`"):
        model.step(pairs.target, state)


def test_all_problems_of_a_config_are_reported() -> None:
    problems = config_problems(GPTConfig, dim=15, heads=2, layers=3, reach=["local", "full"], stride=2, relative_clip=4)
    assert problems == {
        "reach": "given ['local', 'full'], expected one pattern or one for each of 3 layers",
        "heads": "given 2, which does not divide dim 15; choose a divisor or set model.head_dim",
        "relative_clip": "given 4, but has no effect because only relative positions are clipped, not 'learned'; remove it",
        "stride": "given 2, but has no effect because no layer has reach 'compressed'; remove it",
    }
    assert "compresses nothing" in config_problems(GPTConfig, reach="compressed", stride=1)["stride"]
    assert "even head_dim" in config_problems(GPTConfig, dim=6, heads=2, position="rotary")["position"]


def test_problems_with_the_data_are_reported() -> None:
    config = GPTConfig(max_positions=100)
    assert [problem.path for problem in config.problems_with(shared=False, source=60, target=40)] == ["family", "max_positions"]
    assert config.problems_with(shared=True, source=50, target=50) == []
    assert config.problems_with(shared=True, source=0, target=100) == []
    assert [problem.path for problem in config.problems_with(shared=True, source=0, target=101)] == ["max_positions"]
