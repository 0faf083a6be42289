"""Toys: exact answers, seeded, disjoint splits, and usable as data of their forms."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import islice
from typing import Any, get_args

import pytest

from heedful.data import toys
from heedful.data.dialogues import DialoguesConfig, read_dialogues
from heedful.data.dialogues import find_split_file as dialogue_file
from heedful.data.fractions import PARTS
from heedful.data.generated_split import split_of
from heedful.data.labeled import LabeledConfig, LabeledFile, read_examples
from heedful.data.labeled import find_split_file as labeled_file
from heedful.data.links import read_word_links
from heedful.data.pairs import pairs
from heedful.data.sources import CorpusConfig, title_of
from heedful.data.splits import Counts, DataConfig, splits_of
from heedful.data.tagged import TaggedConfig, read_sentences
from heedful.data.tagged import find_split_file as tagged_file
from heedful.data.toys import NEGATIVE, NOT, PERHAPS, POSITIVE, Pair, sample, swap_adjectives
from heedful.errors import DataError

DRAWS = {name: draw for made in toys.FORMS.values() for name, draw in made.items()}
PAIR_TOYS = list(toys.PAIRS)


def some(draw: Any, count: int = 200, split: str = "train", seed: int = 1) -> list[Any]:
    return list(sample(draw, split, count, seed))


@pytest.mark.parametrize("name", DRAWS)
def test_examples_depend_on_the_seed_only_and_a_larger_count_appends(name: str) -> None:
    first = some(DRAWS[name], 40)
    assert first == some(DRAWS[name], 80)[:40] != some(DRAWS[name], 40, seed=2)


@pytest.mark.parametrize("name", DRAWS)
def test_splits_have_no_input_in_common_for_any_seeds(name: str) -> None:
    inputs = [{one.group for one in some(DRAWS[name], 150, split, seed)} for split, seed in zip(PARTS, (1, 2, 3), strict=True)]
    assert all(inputs) and not (inputs[0] & inputs[1] | inputs[0] & inputs[2] | inputs[1] & inputs[2])
    assert {split_of(text) for text in inputs[2]} == {"test"}


def test_every_toy_has_a_name_in_the_config_and_a_line_in_the_list() -> None:
    listed = toys.list_toys()
    assert [row["name"] for row in listed] == list(DRAWS) and all(all(row.values()) for row in listed)
    names = [toys.PairToy, toys.LabeledToy, toys.TaggedToy, toys.DialogueToy]
    assert [[*get_args(kind)] for kind in names] == [[*made] for made in toys.FORMS.values()]


@pytest.mark.parametrize("name", PAIR_TOYS)
def test_links_lead_from_every_word_to_its_one_translation(name: str) -> None:
    meanings: dict[str, set[str]] = {}
    for pair in some(toys.PAIRS[name]):  # type: ignore[index]
        assert sorted(source for source, _ in pair.links) == list(range(len(pair.source)))
        assert sorted(target for _, target in pair.links) == list(range(len(pair.target)))
        for source, target in pair.links:
            meanings.setdefault(pair.source[source], set()).add(pair.target[target])
    assert all(len(words) == 1 for words in meanings.values())
    assert len(set.union(*meanings.values())) == len(meanings), "two words have one translation"


def test_copies_and_reversed_copies() -> None:
    assert all(pair.target == pair.source for pair in some(toys.copy))
    assert all(pair.target == pair.source[::-1] for pair in some(toys.reverse))
    found = some(partial(toys.copy, lengths=[4, 6], symbols=5))
    assert {len(pair.source) for pair in found} == {4, 6}
    assert {word for pair in found for word in pair.source} == {f"s{number}" for number in range(5)}


@pytest.mark.parametrize(
    ("source", "order"),
    [
        ("n1 n2", [0, 1]),
        ("a1 n2", [1, 0]),
        ("n1 a2", [0, 1]),
        ("a1 a2 n3", [1, 0, 2]),
        ("a1 a2 a3 n4", [1, 0, 3, 2]),
        ("a1", [0]),
        ("", []),
    ],
)
def test_an_adjective_is_swapped_with_the_word_on_its_right(source: str, order: list[int]) -> None:
    assert swap_adjectives(source.split()) == order


def name_of(pair: Pair) -> str:
    (name,) = [word for word in pair.source if word.startswith("Name")]
    return name


def test_a_name_is_copied_and_no_two_splits_share_one() -> None:
    train, test = (some(partial(toys.names, names=500), 300, split) for split in ("train", "test"))
    assert all(name_of(pair) in pair.target for pair in train)
    assert not {name_of(pair) for pair in train} & {name_of(pair) for pair in test}


def test_several_orders_have_one_translation() -> None:
    sources: dict[str, set[str]] = {}
    for pair in some(partial(toys.many_to_one, words=2), 2000):
        sources.setdefault(" ".join(pair.target), set()).add(" ".join(pair.source))
    assert max(map(len, sources.values())) == 8  # adverb and two adjectives, each in two places
    alone = [source for known in sources.values() for source in known]
    assert len(alone) == len(set(alone)), "one source has two translations"


def test_only_the_word_before_the_adjective_counts_and_the_words_alone_are_not_enough() -> None:
    bags: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    for label, text in some(toys.negation, 2000):
        words = text.split()
        (at,) = [at for at, word in enumerate(words) if word in POSITIVE + NEGATIVE]
        positive, before = words[at] in POSITIVE, words[at - 1] if at else ""
        assert label == ("open" if before == PERHAPS else "positive" if positive != (before == NOT) else "negative")
        bags[positive][label] += 1
    assert 0.55 < sum(max(counts.values()) for counts in bags.values()) / 2000 < 0.65


def test_one_word_of_a_document_determines_its_label() -> None:
    kinds = {word: label for label, words in toys.TOPICS.items() for word in words}
    for label, text in some(toys.key_document):
        assert [kinds[word] for word in text.lower().split() if word in kinds] == [label] * (label != "other")
        assert text.count(" .") == 5


def test_labels_of_words_depend_on_words_before_them() -> None:
    for words, labels, _ in some(toys.tag_by_context):
        assert labels == ["first", *(f"c{word[1]}" for word in words[:-1])]
    for words, labels, _ in some(partial(toys.echo, distance=3)):
        assert labels == ["none"] * 3 + words[:-3]


def test_the_answer_of_a_dialogue_is_in_one_of_two_turns() -> None:
    places: Counter[int] = Counter()
    for dialogue in some(toys.two_turns_back):
        *before, question, answer = dialogue.turns
        (at,) = [at for at, turn in enumerate(before) if answer in turn.split()]
        assert question.split()[3] in before[at].split() and len(before) == 4
        places[at] += 1
    assert set(places) == {0, 2}


def test_a_split_that_no_example_belongs_to_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toys, "MAX_MISSES", 50)
    with pytest.raises(DataError, match="none of 50 generated examples belongs to the split 'valid'; it has 0 of 3"):
        some(partial(toys.copy, lengths=[1], symbols=1), 3, "valid" if split_of("s0") != "valid" else "test")


@pytest.mark.parametrize("name", PAIR_TOYS)
def test_pairs_of_a_toy_are_data_with_alignments(name: Any) -> None:
    data = DataConfig(builtin=name, counts=Counts(train=9, valid=3, test=4))
    splits = splits_of(data)
    found = [list(pairs(corpus)) for (corpus,) in splits]
    assert [len(some) for some in found] == [9, 3, 4]
    (train,) = splits.train
    for pair, links in zip(found[0], read_word_links(train, None), strict=True):
        assert {target for _, target in links.sure} == set(range(len(pair.target.split())))
    assert title_of(train) == f"built-in {name} train"


def test_labeled_and_tagged_toys_are_read_like_files() -> None:
    labeled = LabeledConfig(form="labeled", builtin="negation", counts=Counts(train=5))
    file = labeled_file(labeled, "train")
    assert isinstance(file, LabeledFile) and str(file.path) == "built-in negation train"
    examples = read_examples(labeled, file, ["positive", "negative", "open"])
    assert [(one.labels[0], one.texts[0]) for one in examples] == list(islice(sample(toys.negation, "train", 5), 5))
    tagged = TaggedConfig(form="tagged", builtin="echo", distance=4, counts=Counts(test=6))
    source = tagged_file(tagged, "test")
    assert source is not None
    sentences = read_sentences(tagged, source)
    assert len(sentences) == 6 and all(one.labels[4:] == one.words[:-4] for one in sentences)


def test_dialogues_of_a_toy_are_read_like_a_file() -> None:
    data = DialoguesConfig(form="dialogues", builtin="two-turns-back", counts=Counts(valid=4))
    file = dialogue_file(data, "valid")
    assert file is not None and str(file.path) == "built-in two-turns-back valid"
    found = [[turn.text for turn in dialogue.turns] for dialogue in read_dialogues(data, file)]
    assert found == [one.turns for one in sample(toys.two_turns_back, "valid", 4)]


@pytest.mark.parametrize(
    ("config", "options", "problem"),
    [
        (LabeledConfig, {"builtin": "negation", "folder": "a"}, "builtin: given with data.folder, expected one of them"),
        (LabeledConfig, {"folder": "a", "counts": {"train": 3}}, "counts: would have no effect without data.builtin"),
        (LabeledConfig, {"builtin": "negation", "split": [0.8, 0.1, 0.1]}, "split: given with data.builtin"),
        (TaggedConfig, {"builtin": "tag-by-context", "distance": 3}, "distance: would have no effect"),
        (TaggedConfig, {}, "train: missing; expected a table with a file, data.folder or data.builtin"),
    ],
)
def test_options_that_conflict_with_a_toy_are_refused(config: Any, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        config(form="labeled" if config is LabeledConfig else "tagged", **options)


def test_a_toy_is_one_form_of_a_corpus_with_a_count() -> None:
    with pytest.raises(ValueError, match="builtin is given without count"):
        CorpusConfig(builtin="copy")
    with pytest.raises(ValueError, match="builtin"):
        CorpusConfig(builtin="copies", count=3)  # type: ignore[arg-type]
