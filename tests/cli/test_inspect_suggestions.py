"""heed inspect summary lists the analyses of a run: all of them work, for families of every kind (for every task:
contracts/test_tasks.py)."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from workshop import RECIPE, heed, write_pairs

from heedful import inspection

SIZES = {  # options of the recipe's [model] that a family has
    "transformer": 'layers = 2\nheads = 2\nfeed_forward = 32\nnorm = "pre"\n',
    "gpt": "layers = 2\nheads = 2\n",
    "bahdanau": "",
    "sutskever": "layers = 1\n",
    "convs2s": "layers = 2\nchannels = 16\n",
    "mixed": 'encoder = ["convolution", "self-attention"]\ndecoder = ["self-attention", "lstm"]\nheads = 2\n',
}
VECTOR = "mixed, bridged by a vector"  # self-attention, but no attention from target to source


@pytest.fixture(params=[family for family in [*SIZES, VECTOR] if family != "transformer"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    recipe, family, bridge = tmp_path / "recipe.toml", request.param, []
    if family == VECTOR:
        family, bridge = "mixed", ["model.bridge=vector"]
    text = RECIPE.format(data=write_pairs(tmp_path / "pairs.tsv"))
    recipe.write_text(text.replace(SIZES["transformer"], SIZES[family]).replace("[model]", f'[model]\nfamily = "{family}"'))
    assert heed("train", recipe, "training.steps=2", *bridge, "--run", tmp_path / "run") == 0
    return tmp_path / "run"


def test_all_listed_analyses_work(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert heed("inspect", "summary", run, "--json") == 0
    model = json.loads(capsys.readouterr().out)
    assert heed("inspect", "summary", run) == 0
    shown, listed = capsys.readouterr().out, model["analyses"]
    ran = 0
    for arguments in listed:
        assert arguments in shown
        values = {"RUN": str(run), "a text": "a cat", "another text": "a dog"}
        words = [values.get(word, word) for word in shlex.split(arguments)]
        if words[0] in inspection.__all__:
            short = ("--rows", "1", "--tokens", "4") if words[0] == "cost" else ()
            assert heed("inspect", *words, *short) == 0, arguments
            ran += 1
        assert "has no positional encoding" not in capsys.readouterr().out
    assert ran >= 4 and "cost RUN" in listed
    assert heed("inspect", "report", run, "a cat", "--include", "lens", "--include", "saliency", "--html", "page.html") == 0
    page = Path("page.html").read_text()
    assert page.count("<section><h2>") == 2 and "saliency: gradient x input, in nats</text>" in page
    assert any("alignment" in shows for shows in listed.values()) == bool(model["attention"].keys() & {"cross", "within"})
    if model["attention"]:
        assert 'attention RUN "a text"' in listed and any("--head " in one for one in listed)
        assert heed("inspect", "saliency", run, "a cat", "--picture", "saliency.svg") == 0
        assert "saliency: gradient x input" in Path("saliency.svg").read_text()
    else:
        assert not any("--head" in one or one.startswith("attention") for one in listed)
    assert "patch" in {one.split()[0] for one in listed}
