"""The residual convolutional network: its receptive field, and captions of one batch learned by heart from its feature map."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from heedful.data.image_files import ImageFormat
from heedful.data.shape_scenes import draw_scenes
from heedful.models.resnet import ResNet, ResNetConfig
from heedful.models.vision_encoder_decoder import VisionEncoderDecoder, VisionEncoderDecoderConfig

HEIGHT, WIDTH = 9, 11


@pytest.mark.parametrize("layers", [0, 1, 2])
def test_a_state_depends_on_the_pixels_that_its_convolutions_reach_and_no_others(layers: int) -> None:
    """With patches of one pixel: one convolution of the stem and two of each block, each of radius 1."""
    torch.manual_seed(1)
    model = ResNet(ResNetConfig(dim=8, layers=layers, image_size=(HEIGHT, WIDTH), patch=1)).eval()
    pixels = torch.randint(256, (1, HEIGHT, WIDTH, 3)).float().requires_grad_()
    row, column = 4, 5
    hidden = model.encode(pixels)[0, row * WIDTH + column] @ torch.randn(8)
    found = torch.autograd.grad(hidden, pixels)[0][0].abs().sum(-1) > 0
    rows, columns = torch.arange(HEIGHT)[:, None], torch.arange(WIDTH)
    expected = torch.maximum((rows - row).abs(), (columns - column).abs()) <= 1 + 2 * layers
    assert torch.equal(found, expected)


def test_every_parameter_receives_a_gradient() -> None:
    model = ResNet(ResNetConfig(dim=8, layers=2, image_size=(8, 12), patch=4, position="learned")).eval()
    loss = (model.first_state(model.encode(torch.randint(256, (2, 8, 12, 3)))) @ torch.randn(8)).sum()
    gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    assert gradients and all(gradient is not None and bool(gradient.any()) for gradient in gradients)


def test_captions_of_one_batch_are_learned_by_heart() -> None:
    torch.manual_seed(2)
    drawn = list(draw_scenes("train", 6, ImageFormat(16, 16, 3)))
    words = sorted({word for one in drawn for word in one.scene.words})
    longest = max(len(one.scene.words) for one in drawn)
    rows = [[words.index(word) + 2 for word in one.scene.words] for one in drawn]
    target = torch.tensor([[1, *row, *[0] * (longest - len(row) + 1)] for row in rows])  # 1: start, 0: end and padding
    pixels: Tensor = torch.from_numpy(np.stack([one.pixels for one in drawn]))
    config = VisionEncoderDecoderConfig(
        dim=32, image_encoder="resnet", layers=1, decoder_layers=1, heads=2, image_size=(16, 16), patch=4, dropout=0.0
    )
    model = VisionEncoderDecoder(config, 0, len(words) + 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(60):
        logits = model.forced_logits(pixels, None, target[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        found, state = target[:, :1], model.eval().start(pixels, None, room=longest + 1)
        for _ in range(longest + 1):
            step = model.step(found[:, -1:].contiguous(), state)
            state, found = step.state, torch.cat((found, model.project(step.hidden).argmax(-1)), dim=1)
    assert torch.equal(found, target)
