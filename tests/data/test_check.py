from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from heedful.data.check import Rules, check_corpora, check_data
from heedful.data.pairs import sentences
from heedful.data.sources import CorpusConfig
from heedful.data.splits import DataConfig, Splits, splits_of_files
from heedful.errors import DataError


def write(folder: Path, name: str, pairs: list[tuple[str, str]]) -> CorpusConfig:
    for side, language in enumerate(("en", "de")):
        (folder / f"{name}.{language}").write_text("".join(pair[side] + "\n" for pair in pairs), newline="\n")
    return CorpusConfig(source=f"{folder}/{name}.en", target=f"{folder}/{name}.de")


def numbered(count: int) -> list[tuple[str, str]]:
    return [(f"source {number}", f"target {number}") for number in range(count)]


def test_clean_corpora_are_clean(tmp_path: Path) -> None:
    pairs = numbered(20)
    report = check_corpora(Splits((write(tmp_path, "train", pairs[:18]),), (write(tmp_path, "valid", pairs[18:]),)))
    assert report.clean
    assert [(corpus.split, corpus.total, corpus.kept) for corpus in report.corpora] == [("train", 18, 18), ("valid", 2, 2)]


def test_duplicates_and_leaks_equal_those_of_a_plain_search(tmp_path: Path) -> None:
    """Compared with sets of strings, over two training corpora of few distinct sentences."""
    draw = random.Random(1)
    pool = [(f"source {i}", f"target {j}") for i in range(40) for j in range(3)]
    first, second, valid, test = ([draw.choice(pool) for _ in range(size)] for size in (60, 50, 4, 3))
    splits = Splits(
        (write(tmp_path, "first", first), write(tmp_path, "second", second)),
        (write(tmp_path, "valid", valid),),
        (write(tmp_path, "test", test),),
    )
    earlier: set[tuple[str, str]] = set()
    held_out = {source for source, _ in valid + test}
    repeated: list[list[int]] = []
    leaked: list[list[int]] = []
    for pairs in (first, second):
        repeated.append([])
        leaked.append([line for line, pair in enumerate(pairs, start=1) if pair[0] in held_out])
        for line, pair in enumerate(pairs, start=1):
            if pair in earlier:
                repeated[-1].append(line)
            earlier.add(pair)
    assert all(repeated), "both corpora must have something to find"
    assert all(leaked), "both corpora must have something to find"

    def dropped(**rules: bool) -> list[list[int]]:
        return [lines.tolist() for lines in check_corpora(splits, Rules(**rules)).dropped("train")]

    assert dropped(drop_duplicates=True) == repeated
    assert dropped(drop_leaks=True) == leaked
    assert dropped() == [[], []]
    both = [sorted({*again, *leak}) for again, leak in zip(repeated, leaked, strict=True)]
    report = check_corpora(splits, Rules(drop_duplicates=True, drop_leaks=True))
    assert [lines.tolist() for lines in report.dropped("train")] == both
    assert [corpus.kept for corpus in report.corpora[:2]] == [60 - len(both[0]), 50 - len(both[1])]


def test_test_data_is_never_dropped(tmp_path: Path) -> None:
    twice = [("the same", "das gleiche")] * 2
    splits = Splits((write(tmp_path, "train", numbered(3)),), (), (write(tmp_path, "test", twice),))
    report = check_corpora(splits, Rules(drop_duplicates=True, drop_leaks=True))
    assert report.corpora[1].kept == 2
    assert [(finding.kind, finding.action) for finding in report.corpora[1].findings] == [("duplicate", "kept")]


def test_texts_are_compared_with_their_tags(tmp_path: Path) -> None:
    plain = write(tmp_path, "train", [("one", "eins")])
    splits = Splits((plain, plain.model_copy(update={"tag": "<2de>"})))
    assert check_corpora(splits).clean
    assert not check_corpora(Splits((plain, plain))).clean


def test_the_report_names_every_problem_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\n\xff\nthree\nfour\n@@\none\nhello\n")
    (tmp_path / "b").write_bytes(b"eins\nzwei\n \nvi\0er\n" + b"x" * 50 + b"\neins\nhallo\n")
    (tmp_path / "v.tsv").write_text("hello\tguten Tag\n")
    report = check_corpora(splits_of_files([f"{tmp_path}/a", f"{tmp_path}/b", f"{tmp_path}/v.tsv"]))
    assert (
        "\n".join(report.lines()).replace(f"{tmp_path}/", "")
        == """\
train  7 lines, 3 pairs kept  a + b
       1 line that is not UTF-8, skipped
         a line 2: byte 1 is not UTF-8
       1 line with an empty side, skipped
         b line 3: the text is empty or white space
       1 line with a NUL byte, skipped
         b line 4: the text contains a NUL byte
       1 line that exceeds the maximum length ratio, skipped
         a line 5: 2 characters, but 50 in the translation: '@@'
       1 duplicate, kept
         a line 6: the same pair as a line 1
       1 source that is also in valid or test, kept
         a line 7: the source is also in v.tsv line 1
valid  1 line, 1 pair kept  v.tsv"""
    )
    (utf8, *_) = report.as_dict()["corpora"][0]["problems"]
    assert utf8 == {
        "problem": "utf8",
        "count": 1,
        "action": "skipped",
        "examples": [{"place": f"{tmp_path}/a line 2", "text": "byte 1 is not UTF-8"}],
    }
    assert json.loads(json.dumps(report.as_dict())) == report.as_dict()


def test_only_the_first_examples_are_listed(tmp_path: Path) -> None:
    corpus = write(tmp_path, "train", [("one", "eins"), *[("", "leer")] * 1200])
    lines = check_corpora(Splits((corpus,))).lines()
    assert lines[1].strip() == "1,200 lines with an empty side, skipped"
    assert lines[-1].strip() == "… and 1,195 more"


def test_a_corpus_without_a_usable_pair_is_always_an_error(tmp_path: Path) -> None:
    corpus = write(tmp_path, "train", [("", "a"), ("b", "")])
    error = check_corpora(Splits((corpus,))).training_error(1.0)
    assert str(error).replace(f"{tmp_path}/", "") == (
        "train.en + train.de has 2 lines, but no usable pair; 2 lines with an empty side, "
        "the first at train.en line 1: the text is empty or white space\n\nhint: check these lines"
    )


def test_too_many_unusable_lines_are_an_error(tmp_path: Path) -> None:
    for bad, refused in ((5, False), (6, True)):
        corpus = write(tmp_path, "train", [*numbered(100 - bad), *[("", "x")] * bad])
        report = check_corpora(Splits((corpus,)))
        assert (report.training_error(0.05) is not None) == refused
        assert report.training_error(0.06) is None


def test_the_conversion_command_names_the_likely_encoding(tmp_path: Path) -> None:
    """0x80 to 0x9f are letters in Windows-1252 only; each file gets its own command."""
    (tmp_path / "a").write_bytes("une pensée\n".encode("latin-1") * 8 + b"plain\n" * 8)
    (tmp_path / "b").write_bytes(b"plain\n" * 8 + "“quoted”\n".encode("cp1252") * 8)
    error = check_corpora(splits_of_files([f"{tmp_path}/a", f"{tmp_path}/b"])).training_error(0.05)
    assert error is not None and error.hint is not None
    assert error.hint.startswith(
        f"convert it: iconv -f ISO-8859-1 -t UTF-8 {tmp_path}/a > {tmp_path}/a.utf8"
        f" && iconv -f WINDOWS-1252 -t UTF-8 {tmp_path}/b > {tmp_path}/b.utf8"
    )


def test_two_files_of_the_same_text_are_an_error(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("one\ntwo\n")
    with pytest.raises(DataError, match="have the same text in all 2 lines"):
        check_corpora(splits_of_files([f"{tmp_path}/a", f"{tmp_path}/b"]))
    (tmp_path / "copy.tsv").write_text("one\tone\ntwo\ttwo\n")
    assert check_corpora(splits_of_files([f"{tmp_path}/copy.tsv"])).clean


def test_a_very_long_line_is_skipped_before_tokenizing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.data.pairs.MAX_CHARACTERS", 50)
    corpus = write(tmp_path, "train", [*numbered(3), ("x" * 51, "y" * 40)])
    (finding,) = check_corpora(Splits((corpus,))).corpora[0].findings
    assert (finding.kind, finding.examples[0].text) == ("long", "51 characters; expected at most 50")
    assert len(list(sentences([corpus], "source"))) == 3


def test_strict_problems_and_unequal_counts_are_errors(tmp_path: Path) -> None:
    corpus = write(tmp_path, "train", [("one", "eins"), ("", "zwei")])
    with pytest.raises(DataError, match="line 2: the text is empty or white space"):
        check_corpora(Splits((corpus,)), Rules(strict=True))
    with (tmp_path / "train.de").open("a") as stream:
        stream.write("drei\n")
    with pytest.raises(DataError, match=r"has 2 lines, but .* has 3"):
        check_corpora(Splits((corpus,)))


@pytest.mark.skipif("HEED_DATA" not in os.environ, reason="HEED_DATA is not set: Multi30k is not here")
def test_multi30k_has_two_lines_without_a_translation() -> None:
    """Training lines whose German side is "@@": the only pairs of the corpus over the maximum ratio."""
    report = check_data(DataConfig(folder="multi30k", languages=("en", "de")))
    counts = {corpus.split: (corpus.total, corpus.kept) for corpus in report.corpora}
    assert counts == {"train": (29_000, 28_998), "valid": (1_014, 1_014), "test": (1_000, 1_000)}
    (ratio,) = [finding for finding in report.corpora[0].findings if finding.kind == "ratio"]
    assert ratio.count == 2
