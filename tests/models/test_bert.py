"""BERT equals the encoder of `transformers`, and has the parameters that were published."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from heedful.models.bert import Bert, BertConfig

LARGE = {"dim": 1024, "layers": 24, "heads": 16}
ROBERTA = {"segments": 1, "max_positions": 514}


@pytest.mark.parametrize(
    ("options", "vocab", "expected"),
    [
        ({}, 30522, 109_482_240),
        (LARGE, 30522, 335_141_888),
        (ROBERTA, 50265, 124_645_632),
        (ROBERTA | LARGE, 50265, 355_359_744),
    ],
    ids=["bert-base", "bert-large", "roberta-base", "roberta-large"],
)
def test_published_sizes_have_the_published_number_of_parameters(options: dict[str, int], vocab: int, expected: int) -> None:
    with torch.device("meta"):
        model = Bert(BertConfig.model_validate({"pooler": True} | options), vocab)
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


def copied_weights(reference: torch.nn.Module, layers: int) -> dict[str, Tensor]:
    """The weights of a BertModel of `transformers` under our names."""
    theirs = reference.state_dict()
    names = {
        "embedding.weight": "embeddings.word_embeddings.weight",
        "position.table.weight": "embeddings.position_embeddings.weight",
        "segment.weight": "embeddings.token_type_embeddings.weight",
        "embedding_norm": "embeddings.LayerNorm",
        "pooler": "pooler.dense",
    }
    parts = {
        "self_attention.out": "attention.output.dense",
        "self_attention_residual.norm": "attention.output.LayerNorm",
        "feed_forward.rise": "intermediate.dense",
        "feed_forward.fall": "output.dense",
        "feed_forward_residual.norm": "output.LayerNorm",
    }
    names |= {f"layers.{i}.{own}": f"encoder.layer.{i}.{other}" for i in range(layers) for own, other in parts.items()}
    weights = {}
    for own, other in names.items():
        for end in [""] if other in theirs else [".weight", ".bias"]:
            weights[own + end] = theirs[other + end]
    for i in range(layers):
        for end in ("weight", "bias"):
            blocks = [theirs[f"encoder.layer.{i}.attention.self.{name}.{end}"] for name in ("query", "key", "value")]
            weights[f"layers.{i}.self_attention.project.{end}"] = torch.cat(blocks)
    return weights


def test_hidden_states_and_pooler_equal_those_of_transformers() -> None:
    from transformers import BertConfig as ReferenceConfig
    from transformers import BertModel

    torch.manual_seed(3)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    reference = BertModel(ReferenceConfig(vocab_size=50, max_position_embeddings=16, **sizes)).eval()
    config = BertConfig(dim=32, layers=2, heads=4, feed_forward=64, max_positions=16, pooler=True)
    model = Bert(config, 50).eval()
    model.load_state_dict(copied_weights(reference, 2))
    tokens, segments = torch.randint(50, (3, 9)), torch.arange(9).expand(3, 9) // 5
    mask = torch.arange(9) < torch.tensor([[9], [4], [7]])
    with torch.inference_mode():
        expected = reference(input_ids=tokens, attention_mask=mask.long(), token_type_ids=segments)
        hidden = model.encode(tokens, mask, segments=segments)
        pooled = model.first_state(hidden)
    assert_close(hidden[mask], expected.last_hidden_state[mask], atol=1e-5, rtol=0)
    assert_close(pooled, expected.pooler_output, atol=1e-5, rtol=0)
