"""Word links become links between tokens and stay with their pair when pairs are dropped or tagged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from heedful.data.encode import StoreOptions, open_store
from heedful.data.grammar import generate
from heedful.data.links import AlignedCorpus, JoinedLinks, Links, expand_to_pieces, open_links
from heedful.data.sources import CorpusConfig
from heedful.errors import DataError
from heedful.text.tokenizer import Tokenizer, TokenizerConfig
from heedful.text.train import train_tokenizer

PAIRS = [("ab cd", "x yz w"), ("a", "x"), ("cd ab cd", "yz w x")]
ALIGNED = ["0-0 1-1 1-2", "0-0", "0-0 0-1 2?2"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(TokenizerConfig(kind="characters"), [text for pair in PAIRS for text in pair] + ["<2it>"], ["<2it>"])


def corpus(folder: Path, aligned: list[str] = ALIGNED, tag: str | None = None) -> CorpusConfig:
    (folder / "pairs.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    (folder / "train.align").write_text("".join(f"{line}\n" for line in aligned))
    return CorpusConfig(tsv=str(folder / "pairs.tsv"), alignment=str(folder / "train.align"), tag=tag)


def build_links(
    one: CorpusConfig, tokenizer: Tokenizer, folder: Path, dropped: list[int] | None = None, longest: int = 99
) -> Links:
    lines = np.array(dropped or [], np.int64)
    store = open_store(one, (tokenizer, tokenizer), StoreOptions(max_length=longest), dropped=lines, cache=folder)
    return open_links(AlignedCorpus(one, store, len(PAIRS)), (tokenizer, tokenizer), folder)


def word_links(links: Links, tokenizer: Tokenizer, pairs: list[tuple[str, str]]) -> list[set[tuple[int, int]]]:
    """Map links between tokens back to links between words."""
    result = []
    for index, (source, target) in enumerate(pairs):
        owners = [tokenizer.word_of(tokenizer.encode(text)) for text in (source, target)]
        result.append({(owners[0][i], owners[1][j]) for i, j in links.of(index).tolist()})
    return result


def test_linked_words_link_all_their_tokens() -> None:
    assert expand_to_pieces([(1, 0)], np.array([0, 1, 1]), np.array([0, 0, 1])).tolist() == [[1, 0], [1, 1], [2, 0], [2, 1]]
    assert expand_to_pieces([], np.array([0]), np.array([0])).shape == (0, 2)


def test_token_links_map_back_to_the_word_links_of_the_file(tmp_path: Path, tokenizer: Tokenizer) -> None:
    links = build_links(corpus(tmp_path), tokenizer, tmp_path)
    assert len(links) == 3
    assert word_links(links, tokenizer, PAIRS) == [{(0, 0), (1, 1), (1, 2)}, {(0, 0)}, {(0, 0), (0, 1), (2, 2)}]


def test_links_stay_with_their_pair_when_others_are_dropped_or_too_long(tmp_path: Path, tokenizer: Tokenizer) -> None:
    text_corpus = corpus(tmp_path)
    assert word_links(build_links(text_corpus, tokenizer, tmp_path, dropped=[2]), tokenizer, [PAIRS[0], PAIRS[2]])[1] == {
        (0, 0),
        (0, 1),
        (2, 2),
    }
    short = build_links(text_corpus, tokenizer, tmp_path, longest=2)
    assert len(short) == 1 and word_links(short, tokenizer, [PAIRS[1]]) == [{(0, 0)}]


def test_a_tag_shifts_the_source_words_by_one(tmp_path: Path, tokenizer: Tokenizer) -> None:
    tagged = [(f"<2it> {source}", target) for source, target in PAIRS]
    links = build_links(corpus(tmp_path, tag="<2it>"), tokenizer, tmp_path)
    assert word_links(links, tokenizer, tagged) == [{(1, 0), (2, 1), (2, 2)}, {(1, 0)}, {(1, 0), (1, 1), (3, 2)}]


def test_a_changed_file_leads_to_new_links(tmp_path: Path, tokenizer: Tokenizer) -> None:
    before = build_links(corpus(tmp_path), tokenizer, tmp_path).of(1).tolist()
    after = build_links(corpus(tmp_path, [ALIGNED[0], "", ALIGNED[2]]), tokenizer, tmp_path).of(1).tolist()
    assert before == [[0, 0]] and after == []


def test_joined_links_are_the_concatenation(tmp_path: Path, tokenizer: Tokenizer) -> None:
    text_corpus = corpus(tmp_path)
    parts = [build_links(text_corpus, tokenizer, tmp_path, dropped=[2]), build_links(text_corpus, tokenizer, tmp_path)]
    joined = JoinedLinks(parts)
    expected = [parts[0].of(0), parts[0].of(1), parts[1].of(0), parts[1].of(1), parts[1].of(2)]
    assert [joined.of(i).tolist() for i in range(5)] == [one.tolist() for one in expected]


@pytest.mark.parametrize(
    ("aligned", "sentence"),
    [
        (ALIGNED[:2], "train.align has 2 lines, but its corpus has 3"),
        ([*ALIGNED, "0-0"], "train.align has 4 lines, but its corpus has 3"),
        (["0-0", "1-0", ""], "train.align line 2: the link 1-0 is out of range; the source has 1 words, the target 1"),
        (["0-0", "0~0", ""], "train.align line 2: '0~0' is not a link"),
    ],
)
def test_a_wrong_alignment_file_is_an_error_with_its_line_and_leaves_no_files(
    aligned: list[str], sentence: str, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    for _ in range(2):
        with pytest.raises(DataError, match=sentence):
            build_links(corpus(tmp_path, aligned), tokenizer, tmp_path)


def test_the_built_in_corpus_has_its_own_alignments(tmp_path: Path) -> None:
    sentences = list(generate("train", 20))
    lines = [text for one in sentences for text in (one.source, one.target)]
    words = train_tokenizer(TokenizerConfig(kind="words", min_frequency=1), lines, [])
    one = CorpusConfig(builtin=True, split="train", count=20)
    store = open_store(one, (words, words), cache=tmp_path)
    links = open_links(AlignedCorpus(one, store, 20), (words, words), tmp_path)
    pairs = [(sentence.source, sentence.target) for sentence in sentences]
    assert word_links(links, words, pairs) == [set(sentence.alignment) for sentence in sentences]
