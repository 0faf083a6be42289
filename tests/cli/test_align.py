"""heed align: links, reports and error messages; and a guided run from training to alignment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from workshop import RECIPE, heed, write_pairs

SMALL = ("model.layers=2", "training.steps=4", "training.validate_every=4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of reversed sentences with gold links, a guided run on it, and a run of the opposite direction."""
    path: Path = tmp_path_factory.mktemp("align")
    pairs = [line.split("\t") for line in write_pairs(path / "pairs.tsv").read_text().splitlines()]
    (path / "a.src").write_text("".join(f"{source}\n" for source, _ in pairs))
    (path / "a.tgt").write_text("".join(f"{target}\n" for _, target in pairs))
    lengths = [len(source.split()) for source, _ in pairs]
    (path / "a.gold").write_text("".join(" ".join(f"{i}-{n - 1 - i}" for i in range(n)) + "\n" for n in lengths))
    (path / "recipe.toml").write_text(RECIPE.format(data=path / "pairs.tsv"))
    corpus = f'data.train={{tsv="{path / "pairs.tsv"}", alignment="{path / "a.gold"}"}}'
    assert heed("train", path / "recipe.toml", *SMALL, corpus, "task.guided_alignment=1", "--run", path / "guided") == 0
    columns = f'data.train={{tsv="{path / "pairs.tsv"}", columns=[2, 1]}}'
    assert heed("train", path / "recipe.toml", *SMALL, columns, "--run", path / "back") == 0
    return path


def files(folder: Path) -> list[str | Path]:
    return ["--source", folder / "a.src", "--target", folder / "a.tgt"]


def test_a_guided_run_logs_its_alignment_loss_and_records_its_alignment_file(folder: Path) -> None:
    lines = [json.loads(line) for line in (folder / "guided" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["alignment"] for line in lines if line["kind"] == "train"]
    assert len(losses) == 4 and min(losses) > 0
    assert str(folder / "a.gold") in json.loads((folder / "guided" / "run.json").read_text())["data"]


def test_links_are_written_one_line_per_pair(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert heed("align", folder / "guided", *files(folder), "--out", folder / "links", "--heads", "1") == 0
    assert heed("align", folder / "guided", *files(folder), "--heads", "1") == 0
    printed = capsys.readouterr().out.split("\n", 1)[1]
    assert (folder / "links").read_text() == printed
    assert printed.count("\n") == (folder / "a.src").read_text().count("\n")
    targets = [{link.split("-")[1] for link in line.split()} for line in printed.splitlines()]
    words = [len(line.split()) for line in (folder / "a.tgt").read_text().splitlines()]
    assert [len(one) for one in targets] == words  # every target word has a link


def test_gold_links_yield_error_rates_and_select_an_aligner(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gold = [*files(folder), "--gold", folder / "a.gold"]
    other: list[str | Path] = ["--choose-on", folder / "a.src", folder / "a.tgt", folder / "a.gold"]
    assert heed("inspect", "alignment", folder / "guided", *gold, *other, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["aer"]["low"] <= result["aer"]["value"] <= result["aer"]["high"]
    assert [one["layer"] for one in result["layers"]] == [0, 1]
    assert result["aer"]["value"] <= min(one["predict"] for one in (*result["layers"], *result["heads"]))
    chosen = result["aligner"]
    again = ["--heads", ",".join(chosen["heads"]), "--moment", chosen["moment"], "--cover", chosen["cover"]]
    again += ["--row", str(chosen["row"]), "--column", str(chosen["column"])]
    for options in (other, again):
        assert heed("align", folder / "guided", *files(folder), *options, "--json") == 0
        assert json.loads(capsys.readouterr().out)["links"] == result["links"]
    assert heed("inspect", "alignment", folder / "guided", *gold) == 0
    shown = capsys.readouterr().out
    assert "alignment error rate" in shown and "--heads 0.0 --moment predict --row 0.3" in shown  # the guided head
    assert heed("align", folder / "guided", *files(folder)) == 0
    assert "--heads 0.0 --moment predict --row 0.3" in capsys.readouterr().err


def test_a_layer_is_all_of_its_heads(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for heads in ("1", "1.0,1.1"):
        assert heed("align", folder / "guided", *files(folder), "--heads", heads) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


def test_two_runs_align_in_both_directions(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = {}
    for method in ("intersection", "grow-diag-final-and", "union"):
        assert heed("align", folder / "guided", *files(folder), "--reverse", folder / "back", "--symmetrize", method) == 0
        counts[method] = len(capsys.readouterr().out.split())
    heads = ["--heads", "1.0,back.1.1", "--row", "0.7"]
    assert heed("align", folder / "guided", *files(folder), "--reverse", folder / "back", *heads) == 0
    assert capsys.readouterr().out.count("\n") == (folder / "a.src").read_text().count("\n")
    assert counts["intersection"] < counts["grow-diag-final-and"] < counts["union"]


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (["--source", "a.src"], 2, "--source and --target require each other"),
        (["--source", "a.src", "--target", "a.tgt", "--heads", "7"], 2, "layers with attention to the source: 0, 1"),
        (["--source", "a.src", "--target", "a.tgt", "--heads", "0.1,x"], 2, "expected layer.head or a layer, as in 0.3,1"),
        (
            ["--source", "a.src", "--target", "a.tgt", "--heads", "0.9"],
            2,
            "unknown head 0.9, expected any of: 0.0, 0.1, 1.0, 1.1",
        ),
        (["--source", "a.src", "--target", "short"], 3, "line n of each for the same pair"),
        (
            ["--source", "a.src", "--target", "a.tgt", "--heads", "1", "--choose-on", "a.src", "a.tgt", "a.gold"],
            2,
            "they cannot be combined",
        ),
        (["--source", "a.src", "--target", "a.tgt", "--symmetrize", "union"], 2, "has no effect without --reverse"),
        (["--source", "a.src", "--target", "a.tgt", "--out", "/no/such/links"], 4, "/no/such/links cannot be written"),
    ],
)
def test_invalid_options_and_files_are_one_message(
    folder: Path, options: list[str], code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "short").write_text("w1\n")
    given = [folder / one if (folder / one).exists() else one for one in options]
    assert heed("align", folder / "guided", *given) == code
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (["--gold", "a.gold"], 2, "--gold requires --source and --target"),
        (["--source", "a.src"], 2, "--source and --target require each other"),
        (["--source", "a.src", "--target", "a.tgt", "--gold", "short"], 3, "is not a link"),
        (["--source", "a.src", "--target", "a.tgt", "--bootstrap", "1"], 2, "expected 0 (no interval) or at least"),
        (["--source", "a.src", "--target", "a.tgt", "--bootstrap", "200"], 2, "--bootstrap has no effect without gold links"),
        (["--source", "a.src", "--target", "a.tgt", "--symmetrize", "union"], 2, "has no effect without --reverse"),
        (["--source", "-", "--target", "-"], 2, "standard input is given 2 times"),
        (["--picture", "x.gif"], 2, "expected"),
    ],
)
def test_invalid_options_of_the_analysis_are_one_message(
    folder: Path, options: list[str], code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "short").write_text("w1\n")
    given = [folder / one if (folder / one).exists() else one for one in options]
    assert heed("inspect", "alignment", folder / "guided", *given) == code
    assert sentence in capsys.readouterr().err


def test_a_resumed_guided_run_equals_an_uninterrupted_one(folder: Path) -> None:
    corpus = f'data.train={{tsv="{folder / "pairs.tsv"}", alignment="{folder / "a.gold"}"}}'
    common: list[str | Path] = [
        folder / "recipe.toml",
        SMALL[0],
        SMALL[2],
        corpus,
        "task.guided_alignment=1",
        "training.save_every=1",
    ]
    assert heed("train", *common, "training.steps=2", "--run", folder / "halves") == 0
    assert heed("train", *common, "training.steps=4", "--run", folder / "halves") == 0
    assert heed("train", *common, "training.steps=4", "--run", folder / "whole") == 0
    halves, whole = (folder / name / "checkpoints" / "step-4" / "model.safetensors" for name in ("halves", "whole"))
    assert halves.read_bytes() == whole.read_bytes()
