"""The benchmark of Vision Transformers compares the same model: as many parameters, and the same images."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import vision_speed

pytestmark = pytest.mark.benchmark


def test_the_peer_has_as_many_parameters(tmp_path: Path) -> None:
    size = vision_speed.SIZES["toy"]
    images = vision_speed.make_images(size, 4)
    trainer = vision_speed.make_trainer(vision_speed.make_run(size, 4, compiles=False), size, images, tmp_path)
    ours, peer = trainer.model, vision_speed.peer_model(size)
    assert sum(one.numel() for one in ours.parameters()) == sum(one.numel() for one in peer.parameters())


def test_speeds_and_ratios_to_the_best_peer_are_stored(tmp_path: Path) -> None:
    small = ["--size", "toy", "--images", "2", "--blocks", "1", "--updates", "1", "--output"]
    vision_speed.main([*small, str(tmp_path / "speed.json")])
    result = json.loads((tmp_path / "speed.json").read_text())
    speeds = result["images_per_second"]
    assert result["best_peer"] == max((name for name in speeds if name.startswith("hf")), key=speeds.__getitem__)
    assert result["ratio"].keys() == {"heedful"} and result["ratio"]["heedful"] > 0
