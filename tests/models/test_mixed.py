"""Mixed: any encoder works with any decoder and bridge, and layers of attention are the Transformer."""

from __future__ import annotations

import re
from itertools import product
from typing import Any, get_args

import pytest
import torch
from tiny import END, PAD, START, VOCAB, WORDS, Pairs, config_problems, forward_of, logits_of, perturb
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from heedful.errors import HeedfulError
from heedful.inspection.measures.attention_maps import attention_maps
from heedful.models.mixed import Mixed, MixedConfig
from heedful.models.transformer import Transformer, TransformerConfig
from heedful.nn import masks
from heedful.nn.hooks import patch, record
from heedful.nn.sequence_layers import SEQUENCE_LAYERS, KindName
from heedful.search import SearchConfig, SourceBatch, search_batch, step_function

KINDS = ("lstm", "convolution", "self-attention")  # recurrence, convolution, attention
BRIDGES = ("vector", "attention")
FAMILIES = list(product(KINDS, KINDS, BRIDGES))
SMALL: dict[str, Any] = {"dim": 16, "feed_forward": 32, "dropout": 0.0}
EVERY = pytest.mark.parametrize("kind", SEQUENCE_LAYERS)


def make(encoder: str, *decoder: str, **changes: Any) -> Mixed:
    config = MixedConfig.model_validate(SMALL | {"encoder": [encoder], "decoder": decoder} | changes)
    return perturb(Mixed(config, VOCAB, VOCAB)).eval()


def ten_pairs() -> Pairs:
    """Sources of 2 to 6 words, targets of 6."""
    generator = torch.Generator().manual_seed(3)
    source, target = torch.randint(WORDS.start, WORDS.stop, (2, 10, 6), generator=generator)
    mask = masks.padding(torch.arange(10) % 5 + 2, 6)
    return Pairs(source.masked_fill(~mask, PAD), mask, target)


def decode(model: Mixed, pairs: Pairs) -> list[list[int]]:
    sources, time = pairs.target.shape
    with torch.inference_mode():
        state = model.start(pairs.source, pairs.mask, room=time + 3)
        group = SourceBatch(state, torch.full((sources,), time + 3), range(sources), [[]] * sources)
        found = search_batch(step_function(model), group, SearchConfig(method="greedy"), start=START, end=END)
    return [best.tokens for (best,) in found]


@pytest.mark.parametrize(("encoder", "decoder", "bridge"), FAMILIES)
def test_every_combination_overfits_ten_pairs(encoder: str, decoder: str, bridge: str) -> None:
    pairs = ten_pairs()
    config = {"dim": 32, "feed_forward": 64, "dropout": 0.0, "norm": "pre", "bridge": bridge}
    model = Mixed(MixedConfig.model_validate(config | {"encoder": [encoder], "decoder": [decoder] * 2}), VOCAB, VOCAB)
    adam = torch.optim.Adam(model.parameters(), lr=5e-3)
    target_in, target_out = functional.pad(pairs.target, (1, 0), value=START), functional.pad(pairs.target, (0, 1), value=END)
    for _ in range(400):
        logits = logits_of(model, pairs._replace(target=target_in))
        if torch.equal(logits.argmax(-1), target_out):
            break
        adam.zero_grad()
        functional.cross_entropy(logits.flatten(0, 1), target_out.flatten()).backward()  # type: ignore[no-untyped-call]
        adam.step()
    assert decode(model.eval(), pairs) == pairs.target.tolist()


@EVERY
@pytest.mark.parametrize("bridge", BRIDGES)
@pytest.mark.parametrize("chunk", [1, 7])
def test_stepping_equals_teacher_forcing_beyond_every_window(kind: str, bridge: str, chunk: int) -> None:
    """Forty tokens: several blocks of a window, and more than the receptive field of two convolutions."""
    options = {name: value for name, value in {"window": 5, "dilation": 3}.items() if name in SEQUENCE_LAYERS[kind].options}
    model = make("self-attention", kind, kind, bridge=bridge, **options)
    source, target = torch.randint(WORDS.start, WORDS.stop, (2, 3, 40))
    with torch.inference_mode():
        whole = model.step(target, model.start(source, None, room=0)).hidden
        state, outputs = model.start(source, None, room=40), []
        for tokens in target.split(chunk, dim=1):
            step = model.step(tokens, state)
            state = step.state
            outputs.append(step.hidden)
    assert_close(torch.cat(outputs, dim=1), whole, atol=1e-5, rtol=0)


def as_mixed(name: str) -> str:
    """The name in Mixed of a parameter of the Transformer."""
    name = re.sub(r"(\d)\.self_attention\.", r"\1.mix.self_attention.", name)
    return name.replace("self_attention_residual", "mix_residual")


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_attention_layers_with_a_bridge_of_attention_equal_the_transformer(norm: str, pairs: Pairs) -> None:
    changes: dict[str, Any] = {"dim": 16, "feed_forward": 32, "heads": 2, "norm": norm}
    transformer = perturb(Transformer(TransformerConfig(layers=2, **changes), VOCAB, VOCAB)).eval()
    mixed = Mixed(MixedConfig(encoder=("self-attention",) * 2, decoder=("self-attention",) * 2, **changes), VOCAB, VOCAB)
    mixed.load_state_dict({as_mixed(name): value for name, value in transformer.state_dict().items()})
    assert_close(logits_of(mixed.eval(), pairs), logits_of(transformer, pairs))


def test_the_vector_is_a_projection_of_the_mean_over_real_tokens(pairs: Pairs) -> None:
    model = make("convolution", "lstm", bridge="vector")
    assert model.summary is not None
    with torch.inference_mode(), record(model, "encoder.0.out", "summary.thought") as recorded:
        memory = model.start(pairs.source, pairs.mask, room=0).memory
    assert memory.keys() == {"vector"}
    for row, length in enumerate(pairs.mask.sum(1).tolist()):
        mean = recorded["encoder.0.out"][row, :length].mean(0)
        assert_close(memory["vector"][row, 0], model.summary.map(mean))


def test_every_token_depends_on_the_vector(pairs: Pairs) -> None:
    """Also with a convolution of width one, which does not depend on previous tokens."""
    model = make("gru", "convolution", bridge="vector", kernel=1)
    other = pairs._replace(source=pairs.source.flip(0), mask=pairs.mask.flip(0))
    logits, other_logits = (logits_of(model, given) for given in (pairs, other))
    assert ((logits - other_logits).abs().amax(-1)[[0, 2]] > 1e-3).all()


def test_only_a_bridge_of_attention_has_cross_attention() -> None:
    models = {bridge: make("lstm", "lstm", bridge=bridge) for bridge in BRIDGES}
    kinds = {bridge: [attention.kind.name for attention in model.attentions()] for bridge, model in models.items()}
    assert kinds == {"attention": ["cross"], "vector": []}


def test_recorded_weights_of_a_window_cover_whole_sequences() -> None:
    """Attention runs in blocks of sixteen, but hooks get weights of all forty tokens; outputs are bit-identical."""
    model = make("restricted", "restricted", window=6)
    source, target = torch.randint(WORDS.start, WORDS.stop, (2, 1, 40))
    given = Pairs(source, torch.ones_like(source, dtype=torch.bool), target)
    places = torch.arange(40)
    distance = places[:, None] - places
    allowed = {
        "encoder": distance.abs() <= 3,
        "decoder": (distance >= 0) & (distance < 6),
        "cross": torch.ones(40, 40, dtype=torch.bool),
    }
    with torch.inference_mode():
        before = logits_of(model, given)
        maps = attention_maps(model, forward_of(source, target))
        with record(model, "*") as recorded:
            assert torch.equal(logits_of(model, given), before)
        with patch(model, recorded):
            assert_close(logits_of(model, given), before, atol=1e-5, rtol=0)
    assert [one.kind.name for one in maps] == ["encoder", "decoder", "cross"]
    for one in maps:
        assert torch.equal(one.weights > 0, allowed[one.kind.name].expand_as(one.weights))


def test_a_second_step_requires_room(pairs: Pairs) -> None:
    model = make("lstm", "lstm")
    state = model.step(pairs.target, model.start(pairs.source, pairs.mask, room=0)).state
    with pytest.raises(AssertionError, match="requires `room`"):
        model.step(pairs.target, state)


def test_a_mask_does_not_require_room(pairs: Pairs) -> None:
    model = make("lstm", "convolution", "restricted", "gru", window=3)
    real = torch.tensor([[0, 0, 1, 1, 0, 1, 1], [1, 1, 1, 0, 0, 0, 1], [1, 0, 1, 0, 1, 1, 0]]).bool()
    with torch.inference_mode():
        hidden: Tensor = model.step(pairs.target, model.start(pairs.source, pairs.mask, room=0), real).hidden
        for row in range(3):
            state = model.start(pairs.source[[row]], pairs.mask[[row]], room=0)
            alone = model.step(pairs.target[row, real[row]][None], state).hidden
            assert_close(hidden[row, real[row]], alone[0], atol=1e-5, rtol=0)


def test_learned_positions_are_limited_except_in_captured_steps() -> None:
    model, token = make("lstm", "self-attention", position="learned", max_positions=4), torch.tensor([[5]])
    with torch.inference_mode():
        state = model.start(token, None, room=8)
        for _ in range(4):
            state = model.step(token, state).state
        with pytest.raises(HeedfulError, match="a sequence of 5 tokens was given to a model with 4 learned positions"):
            model.step(token, state)
        assert model.step(token, state._replace(filled=torch.tensor(5))).hidden.isfinite().all()
        real = torch.tensor([[False, True, True, False, True, True]])  # padding takes no position
        assert model.step(token.expand(1, 6), model.start(token, None, room=8), real).hidden.isfinite().all()
        with pytest.raises(HeedfulError, match="5 tokens"):
            model.step(token.expand(1, 5), model.start(token, None, room=0))
        with pytest.raises(HeedfulError, match="5 tokens"):
            model.start(token.expand(1, 5), None, room=0)


def test_kind_names_are_those_of_the_registry() -> None:
    assert get_args(KindName) == tuple(SEQUENCE_LAYERS)


@pytest.mark.parametrize(
    ("given", "path", "sentence"),
    [
        ({"dim": 20}, "heads", "given 8, which does not divide dim 20"),
        ({"dim": 15, "heads": 3}, "dim", "given 15, expected an even number"),
        ({"window": 4}, "window", "has no effect because no layer is 'restricted'"),
        ({"kernel": 4}, "kernel", "has no effect because no layer is 'convolution' or 'dilated'"),
        ({"decoder": ["convolution"], "dilation": 4}, "dilation", "has no effect because no layer is 'dilated'"),
        ({"max_positions": 9}, "max_positions", "only learned positions have a limit, not 'sinusoidal'"),
        ({"encoder": []}, "encoder", "at least 1 item"),
        (
            {"encoder": ["lstm"], "decoder": ["gru"], "bridge": "vector", "heads": 2},
            "heads",
            "neither a layer nor the bridge is attention",
        ),
        ({"decoder": ["lstm", "transformer"]}, "decoder.1", "'self-attention', 'restricted', 'parameter-free', 'lstm'"),
        ({"bridge": "bridge"}, "bridge", "'attention' or 'vector'"),
        ({"position": "rotary"}, "position", "'none', 'sinusoidal' or 'learned'"),
    ],
)
def test_invalid_configs_are_errors(given: dict[str, Any], path: str, sentence: str) -> None:
    problems = config_problems(MixedConfig, **given)
    assert problems.keys() == {path}
    assert sentence in problems[path]


def test_unused_sizes_are_not_checked() -> None:
    """The default of eight heads does not divide 20, but there is no attention."""
    model = make("gru", "convolution", dim=20, bridge="vector", kernel=2)
    assert model.step(torch.tensor([[START]]), model.start(torch.tensor([[5, 6]]), None, room=0)).hidden.shape == (1, 1, 20)


def test_problems_with_the_data_are_reported() -> None:
    config = MixedConfig(position="learned", max_positions=30)
    assert [problem.path for problem in config.problems_with(shared=False, source=20, target=40)] == ["tie", "max_positions"]
    assert config.problems_with(shared=True, source=20, target=30) == []
