"""The wheel, installed beside its dependencies and nothing else of this checkout, runs the demo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run(*arguments: str | Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "HEED_DATA", "HEED_CACHE")}
    done = subprocess.run(
        [str(one) for one in arguments], cwd=folder, env=kept | environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done


def test_the_installed_wheel_trains_the_demo(tmp_path: Path) -> None:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, ROOT, folder=tmp_path)
    (wheel,) = tmp_path.glob("heedful-*.whl")
    venv.create(tmp_path / "empty", with_pip=False)
    python = tmp_path / "empty/bin/python"
    site = next((tmp_path / "empty/lib").glob("python*/site-packages"))
    run(*pip, "install", "--no-deps", "--no-index", "--target", site, wheel, folder=tmp_path)
    # The dependencies are those of this environment: on this path its .pth files, and with them this checkout, are not read.
    others = {"PYTHONPATH": sysconfig.get_path("purelib"), "HEED_CACHE": str(tmp_path / "cache")}
    where = run(python, "-c", "import heedful; print(heedful.__file__)", folder=tmp_path, **others).stdout
    assert Path(where.strip()).is_relative_to(site)
    steps = [f"training.{name}=5" for name in ("steps", "validate_every", "save_every")]
    counts = ["data.counts={train=500, valid=20, test=20}", "task.validation_sentences=4"]
    demo = run(python, "-m", "heedful", "demo", *steps, *counts, "--run", "demo", "--json", folder=tmp_path, **others)
    assert json.loads(demo.stdout)["run"] == "demo" and (tmp_path / "demo/checkpoints/step-5/model.safetensors").is_file()
