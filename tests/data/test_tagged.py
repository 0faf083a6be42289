from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from heedful.data.tagged import TaggedConfig, TaggedSource, find_split_file, read_sentences
from heedful.errors import DataError

CONLLU = """# text = don't know
1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tdo\tdo\tAUX\tVBP\tMood=Ind\t3\taux\t_\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_
2.1\tever\tever\tADV\tRB\t_\t_\t_\t_\t_
3\tknow\tknow\tVERB\tVB\t_\t0\troot\t_\t_

1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_
"""


def config(**options: object) -> TaggedConfig:
    return TaggedConfig.model_validate({"form": "tagged", "folder": "x", **options})


@pytest.mark.parametrize(
    ("column", "expected"),
    [(None, ["AUX", "PART", "VERB"]), ("lemma", ["do", "not", "know"]), ("deprel", ["aux", "advmod", "root"])],
)
def test_a_column_of_conllu_by_name_for_every_numbered_token(column: str | None, expected: list[str], tmp_path: Path) -> None:
    path = tmp_path / "train.conllu.gz"
    path.write_bytes(gzip.compress(CONLLU.encode()))
    first, second = read_sentences(config(column=column), TaggedSource(path))
    assert (first.words, first.labels, first.lines) == (["do", "n't", "know"], expected, [3, 4, 6])
    assert (second.words, second.line) == (["Yes"], 8)


def test_two_columns_give_the_same_sentences_as_conllu(tmp_path: Path) -> None:
    (tmp_path / "train.conllu").write_text(CONLLU)
    (tmp_path / "train.txt").write_text("do\tAUX\nn't\tPART\nknow\tVERB\n\n\nYes\tINTJ")
    sentences = [
        [(one.words, one.labels) for one in read_sentences(config(), TaggedSource(tmp_path / name))]
        for name in ("train.conllu", "train.txt")
    ]
    assert sentences[0] == sentences[1] and len(sentences[0]) == 2


def test_the_parts_of_a_split_file_are_disjoint_and_complete(tmp_path: Path) -> None:
    text = "\n".join(f"w{i}\tA\nv{i}\tB\n" for i in range(200))
    (tmp_path / "all.tsv").write_text(text)
    data = TaggedConfig.model_validate(
        {"form": "tagged", "train": {"file": str(tmp_path / "all.tsv")}, "split": [0.6, 0.2, 0.2]}
    )
    parts = []
    for split in ("train", "valid", "test"):
        source = find_split_file(data, split)
        assert source is not None
        parts.append([one.line for one in read_sentences(data, source)])
    assert all(len(part) > 20 for part in parts) and sorted(line for part in parts for line in part) == list(range(1, 600, 3))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("train.tsv", "the\tD\ncat N\n", "line 2 has 1 column; expected two, a word and its label"),
        ("train.tsv", "the\tD\tx\n", "line 1 has 3 columns; expected two"),
        ("train.conllu", "1\tthe\tD\n", "line 1 has 3 columns; expected the 10"),
        ("train.conllu", CONLLU.replace("\n3\t", "\n4\t"), "line 6: the token is numbered '4'; expected 3"),
    ],
)
def test_lines_with_other_columns_are_refused_with_file_and_line(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError) as raised:
        read_sentences(config(), TaggedSource(tmp_path / name))
    assert str(tmp_path / name) in str(raised.value) and message in str(raised.value)


def test_numbers_that_are_none_are_refused_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("0.5\t1\tup\n0.5\tinf\tdown\n")
    with pytest.raises(DataError, match="line 2 has 'inf' where a number is expected"):
        read_sentences(config(numeric=True), TaggedSource(tmp_path / "train.tsv"))
