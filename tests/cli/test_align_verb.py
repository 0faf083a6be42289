"""heed align, from files to files: lines, reports, and sentences for what does not fit; and a guided run from end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from workshop import RECIPE, heed, write_pairs

SMALL = ("model.layers=2", "training.steps=4", "training.validate_every=4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus that reverses, as files, with its gold links; a guided run on it, and a plain run back."""
    here: Path = tmp_path_factory.mktemp("align")
    pairs = [line.split("\t") for line in write_pairs(here / "pairs.tsv").read_text().splitlines()]
    (here / "a.src").write_text("".join(f"{source}\n" for source, _ in pairs))
    (here / "a.tgt").write_text("".join(f"{target}\n" for _, target in pairs))
    lengths = [len(source.split()) for source, _ in pairs]
    (here / "a.gold").write_text("".join(" ".join(f"{i}-{n - 1 - i}" for i in range(n)) + "\n" for n in lengths))
    (here / "recipe.toml").write_text(RECIPE.format(data=here / "pairs.tsv"))
    corpus = f'data.train={{tsv="{here / "pairs.tsv"}", alignment="{here / "a.gold"}"}}'
    assert heed("train", here / "recipe.toml", *SMALL, corpus, "task.guided_alignment=1", "--run", here / "guided") == 0
    columns = f'data.train={{tsv="{here / "pairs.tsv"}", columns=[2, 1]}}'
    assert heed("train", here / "recipe.toml", *SMALL, columns, "--run", here / "back") == 0
    return here


def files(folder: Path) -> list[str | Path]:
    return ["--source", folder / "a.src", "--target", folder / "a.tgt"]


def test_a_guided_run_tells_its_alignment_loss_and_notes_its_alignment_file(folder: Path) -> None:
    lines = [json.loads(line) for line in (folder / "guided" / "metrics.jsonl").read_text().splitlines()]
    told = [line["alignment"] for line in lines if line["kind"] == "train"]
    assert len(told) == 4 and min(told) > 0
    assert str(folder / "a.gold") in json.loads((folder / "guided" / "run.json").read_text())["data"]


def test_links_are_written_a_line_a_pair(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert heed("align", folder / "guided", *files(folder), "--out", folder / "links", "--layer", "1") == 0
    assert heed("align", folder / "guided", *files(folder), "--layer", "1") == 0
    printed = capsys.readouterr().out.split("\n", 1)[1]
    assert (folder / "links").read_text() == printed
    assert printed.count("\n") == (folder / "a.src").read_text().count("\n")
    targets = [{link.split("-")[1] for link in line.split()} for line in printed.splitlines()]
    words = [len(line.split()) for line in (folder / "a.tgt").read_text().splitlines()]
    assert [len(one) for one in targets] == words  # every target word has a link


def test_gold_links_give_rates_and_a_table_and_a_choice_on_others(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gold = [*files(folder), "--gold", folder / "a.gold"]
    other: list[str | Path] = ["--choose-on", folder / "a.src", folder / "a.tgt", folder / "a.gold"]
    assert heed("align", folder / "guided", *gold, *other, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["aer"]["low"] <= told["aer"]["value"] <= told["aer"]["high"]
    assert [one["layer"] for one in told["layers"]] == [0, 1]
    assert told["aer"]["value"] <= min(one["said"] for one in told["layers"])
    chosen = told["aligner"]
    again = ["--heads", ",".join(chosen["heads"]), "--moment", chosen["moment"], "--cover", chosen["cover"]]
    again += ["--row", str(chosen["row"]), "--column", str(chosen["column"])]
    assert heed("align", folder / "guided", *gold, *again, "--json") == 0
    assert json.loads(capsys.readouterr().out)["aer"] == told["aer"]
    assert heed("align", folder / "guided", *gold) == 0
    shown = capsys.readouterr()
    assert "alignment error rate" in shown.out and "--heads 0.0 --moment said --row 0.3" in shown.err  # the guided head


def test_two_runs_align_from_both_sides(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
        (["--source", "a.src"], 2, "--source and --target belong together"),
        (["--gold", "a.gold"], 2, "--gold needs --source and --target"),
        (["--source", "a.src", "--target", "a.tgt", "--layer", "7"], 2, "looks at its source in layers: 0, 1"),
        (["--source", "a.src", "--target", "a.tgt", "--heads", "0"], 2, "3,5 with --layer or 0.3,1.5 without"),
        (["--source", "a.src", "--target", "a.tgt", "--heads", "0.9"], 2, "there is no 0.9, but: 0.0, 0.1, 1.0, 1.1"),
        (["--source", "a.src", "--target", "short"], 3, "with line n of each for the same pair"),
        (["--source", "a.src", "--target", "a.tgt", "--gold", "short"], 3, "is not a link"),
        (
            ["--source", "a.src", "--target", "a.tgt", "--layer", "1", "--choose-on", "a.src", "a.tgt", "a.gold"],
            2,
            "give it or them, not both",
        ),
        (["--source", "a.src", "--target", "a.tgt", "--symmetrize", "union"], 2, "has no effect without --reverse"),
        (["--source", "a.src", "--target", "a.tgt", "--out", "/no/such/links"], 2, "/no/such/links cannot be written"),
    ],
)
def test_what_does_not_fit_is_one_sentence(
    folder: Path, options: list[str], code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "short").write_text("w1\n")
    given = [folder / one if (folder / one).exists() else one for one in options]
    assert heed("align", folder / "guided", *given) == code
    assert sentence in capsys.readouterr().err


def test_a_guided_run_goes_on_as_if_it_had_never_stopped(folder: Path) -> None:
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
