"""A classifier of nodes: an encoder whose attention is limited to neighbors, and a linear layer on the state of each node.

    mask_ij = 1 if i = j or there is an edge j -> i,  in every layer

So a layer moves information by one edge, and the output of a node depends on the nodes at a distance of at most `layers`
(attention over neighbors: Graph Attention Networks, Veličković et al., 2018; with queries and keys as in a Transformer:
Dwivedi and Bresson, 2020).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from heedful.nn.dropout import Dropout
from heedful.nn.losses import Loss
from heedful.nn.model import EncoderModel, ModelWithHead

PADDING = -100  # in labels: a node that is not scored


class NodeModel(ModelWithHead):
    """An encoder with a label for each node."""

    body: EncoderModel

    def __init__(self, body: EncoderModel, dim: int, labels: int, dropout: float) -> None:
        super().__init__()
        self.body = body
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(dim, labels)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def forward(self, nodes: Tensor, attends: Tensor) -> Tensor:
        """nodes: tokens (rows, nodes) or features (rows, nodes, features); attends (rows, query, key): True where a node
        attends to another -> logits (rows, nodes, labels)."""
        encode: Any = self.body.encode  # of a family with attention masks
        return self.classify(encode(nodes, attention_mask=attends))

    def classify(self, hidden: Tensor) -> Tensor:
        """Hidden states (…, dim) -> logits (…, labels)."""
        logits: Tensor = self.head(self.dropout(hidden))
        return logits

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """-log p of each label: logits (rows, nodes, labels), labels (rows, nodes) -> (rows, nodes), 0 for PADDING."""
        return functional.cross_entropy(logits.float().transpose(1, 2), labels, ignore_index=PADDING, reduction="none")

    def loss(self, logits: Tensor, labels: Tensor) -> Loss:
        return Loss(self.losses(logits, labels).sum(), (labels != PADDING).sum())

    def batch_logits(self, source: Tensor, target: Tensor) -> Tensor:
        """Every token is a node, and all attend to all; a model of features is given zeros: (rows, time, labels)."""
        rows, time = target.shape
        features = self.body.config.numeric_inputs
        nodes = torch.zeros(rows, time, features, device=target.device) if features else target
        return self(nodes, torch.ones(1, time, time, dtype=torch.bool, device=target.device))

    if TYPE_CHECKING:
        __call__ = forward
