from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from workshop import heed, write_recipe

import heedful
from heedful.data import clean as cleaning
from heedful.data.clean import Filters, all_scripts, clean, script_of
from heedful.data.sources import CorpusConfig
from heedful.errors import ConfigError, DataError, WriteError

GOOD = [
    ("A man in a blue shirt is standing on a ladder.", "Ein Mann in einem blauen Hemd steht auf einer Leiter."),
    ("Two young women are sitting at a small table.", "Zwei junge Frauen sitzen an einem kleinen Tisch."),
    ("A little girl climbs into a wooden playhouse.", "Ein kleines Mädchen klettert in ein Spielhaus aus Holz."),
]
BAD = {
    "empty": ("A man.", " "),
    "ratio": ("Yes, yes.", "x" * 200),
    "words": ("one " * 30, "eins " * 30),
    "copy": ("www.example.org/index", "www.example.org/index"),
    "script": ("Two dogs run through the snow.", "Две собаки бегут по снегу."),
    "language": ("A woman is reading a book in the park.", "Une femme lit un livre dans le parc avec son chien."),
    "duplicate": GOOD[0],
    "near": (GOOD[1][0].replace("small", "smart"), GOOD[1][1] + "!"),
}
ALL = Filters(
    max_words=20, drop_copies=True, scripts=("LATIN", "LATIN"), languages=("en", "de"), near_duplicates=0.7
)  # except the score


def write(path: Path, pairs: Sequence[tuple[str, str]]) -> CorpusConfig:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    return CorpusConfig(tsv=str(path))


def read(path: Path) -> list[tuple[str, str]]:
    return [(row["source"], row["target"]) for row in map(json.loads, path.read_text().splitlines())]


def test_each_filter_drops_its_pair_and_counts_it(tmp_path: Path) -> None:
    pairs = [*GOOD, *BAD.values()]
    report = clean(write(tmp_path / "raw.tsv", pairs), ALL, tmp_path / "out.jsonl")
    assert read(tmp_path / "out.jsonl") == GOOD
    (corpus,) = report.corpora
    assert {finding.kind: (finding.count, finding.action) for finding in corpus.findings} == dict.fromkeys(BAD, (1, "dropped"))
    assert (corpus.total, corpus.kept) == (len(pairs), len(GOOD))
    places = {finding.kind: finding.examples[0].place for finding in corpus.findings}
    assert places == {kind: f"{tmp_path / 'raw.tsv'} line {line}" for line, kind in enumerate(BAD, start=len(GOOD) + 1)}


def test_kept_and_dropped_pairs_are_all_pairs_in_chunks_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(1)
    pairs = [draw.choice([*GOOD, *BAD.values()]) for _ in range(60)]
    pairs += [(f"{draw.random()} a word of {draw.random()}", f"ein Wort {draw.random()}") for _ in range(40)]
    corpus = write(tmp_path / "raw.tsv", pairs)
    filters = Filters(near_duplicates=0.7, drop_copies=True)
    for chunk in (1, 7, 4096):
        monkeypatch.setattr(cleaning, "CHUNK", chunk)
        (check,) = clean(corpus, filters, tmp_path / f"{chunk}.jsonl").corpora
        assert check.kept + sum(finding.count for finding in check.findings) == 100 == check.total
        assert check.kept == len(read(tmp_path / f"{chunk}.jsonl")) > 40
    assert (tmp_path / "1.jsonl").read_bytes() == (tmp_path / "7.jsonl").read_bytes() == (tmp_path / "4096.jsonl").read_bytes()


def test_a_score_below_the_minimum_is_dropped_with_the_log_probability_per_token_of_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert heed("train", write_recipe(tmp_path), "training.steps=2", "--run", tmp_path / "run") == 0
    pairs = [tuple(line.split("\t")) for line in (tmp_path / "pairs.tsv").read_text().splitlines()]
    sources, targets = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    scored = heedful.Translator.load(tmp_path / "run").score(sources, targets)
    means = [one.log_probability / one.tokens for one in scored if one is not None]
    limit = round(sorted(means)[len(means) // 2], 3)
    files: list[str | Path] = [tmp_path / "pairs.tsv", "--output", tmp_path / "out.tsv", "--keep-duplicates"]
    capsys.readouterr()
    assert heed("data", "clean", *files, "--score", tmp_path / "run", f"--min-score={limit}", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    kept = [f"{source}\t{target}" for source, target, mean in zip(sources, targets, means, strict=True) if mean >= limit]
    assert (tmp_path / "out.tsv").read_text().splitlines() == kept
    assert 10 < len(kept) == report["kept"] < len(pairs) - 10
    assert [(one["problem"], one["count"]) for one in report["problems"]] == [("score", len(pairs) - len(kept))]


def test_the_command_reports_and_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target, output = tmp_path / "a.en", tmp_path / "a.de", tmp_path / "out.tsv"
    source.write_text("".join(f"{pair[0]}\n" for pair in [*GOOD, GOOD[0]]))
    target.write_text("".join(f"{pair[1]}\n" for pair in [*GOOD, GOOD[0]]))
    assert heed("data", "clean", source, target, "--output", output, "--scripts", "Latin,Latin") == 0
    shown = capsys.readouterr()
    printed = shown.out
    assert f"wrote {output}" in shown.err
    assert heed("data", "clean", source, target, "--output", output) == 2
    assert f"{output} exists already; expected a new file" in capsys.readouterr().err
    assert "4 lines, 3 pairs kept" in printed and "1 duplicate, dropped" in printed
    assert output.read_text() == "".join(f"{a}\t{b}\n" for a, b in GOOD)
    output.unlink()
    wrong = {
        ("--scripts", "LATEN,LATIN"): "--scripts: given 'LATEN', expected two of",
        ("--scripts", "caron,latin"): "--scripts: given 'caron', expected two of: arabic, armenian,",
        ("--languages", "en,xx"): "--languages: given 'xx', expected two of",
        ("--languages", "en"): "expected two names",
        ("--min-score=-3",): "--min-score is given without --score",
        ("--near-duplicates=nan",): "nan",
    }
    for options, message in wrong.items():
        assert heed("data", "clean", source, target, "--output", output, *options) == 2
        assert message in capsys.readouterr().err
    assert heed("data", "clean", source, target, "--output", tmp_path / "out.txt") == 2
    for files in ([source], [source, target, source], [source, target, source, target]):
        capsys.readouterr()
        assert heed("data", "clean", *files, "--output", output) == 2
        message = capsys.readouterr().err
        assert "expected a source and a target file, or one .tsv" in message
        assert "heed data clean web.en web.de --output clean.jsonl" in message and "check" not in message
    assert not output.exists()


def test_the_script_of_a_letter_is_that_of_unicode() -> None:
    assert {"LATIN", "CJK", "HANGUL", "TAGBANWA"} < all_scripts()
    assert not all_scripts() & {"ALEF", "CARON", "FEMININE", "KELVIN", "FULLWIDTH", "MODIFIER", "UNKNOWN"}
    assert {"TAI LE", "TAI THAM", "CANADIAN SYLLABICS"} < all_scripts()
    assert not all_scripts() & {"TAI", "NEW", "OL", "CANADIAN", "KAYAH", "MEETEI", "SYLOTI"}
    assert [script_of(letter) for letter in "aßΩя字かカ한ا"] == [
        "LATIN", "LATIN", "GREEK", "CYRILLIC", "CJK", "HIRAGANA", "KATAKANA", "HANGUL", "ARABIC"
    ]  # fmt: skip


def test_an_output_of_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ends in \.jsonl or \.tsv"):
        clean(write(tmp_path / "raw.tsv", GOOD), Filters(), tmp_path / "out.csv")


def test_filters_that_drop_every_pair_are_an_error_and_write_nothing(tmp_path: Path) -> None:
    corpus, output = write(tmp_path / "raw.tsv", [*GOOD, BAD["copy"]]), tmp_path / "out.jsonl"
    with pytest.raises(DataError, match=r"4 lines, but no pair passes the filters; 3 lines below the minimum score") as error:
        clean(corpus, Filters(min_score=-1.0, drop_copies=True), output, lambda sources, targets: [-2.0] * len(sources))
    assert error.value.hint == "change --min-score"
    assert [path.name for path in tmp_path.iterdir()] == ["raw.tsv"]
    (tmp_path / "raw.tsv").write_text("source\ttarget\n")
    with pytest.raises(DataError, match="has no pairs; expected at least one"):
        clean(corpus.model_copy(update={"header": True}), Filters(), output)


def test_an_output_that_cannot_be_written_is_refused_before_the_corpus_is_read(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="cannot be written"):
        clean(CorpusConfig(tsv=str(tmp_path / "missing.tsv")), Filters(), tmp_path / "missing" / "out.jsonl")
