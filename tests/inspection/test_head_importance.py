"""Analysis of heads over a corpus, for every family with attention."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from tiny import FAMILIES, VOCAB, Variant, forward_of, tiny_config, tiny_model
from torch import Tensor
from torch.testing import assert_close

from heedful.data.conllu import Arc
from heedful.data.grammar import generate
from heedful.data.samples import Sample, from_grammar, from_lines
from heedful.errors import ConfigError, DataError
from heedful.evaluation.word_alignment import Alignment
from heedful.inspection.measures.attention_maps import attention_maps
from heedful.inspection.measures.head_importance import study
from heedful.inspection.measures.head_statistics import HeadStatistics, count_tokens, rarest, relations
from heedful.inspection.measures.head_views import self_attention_view, source_view
from heedful.models import MODELS
from heedful.nn.hooks import hook
from heedful.nn.model import ATTENTION_KINDS, SequenceModel
from heedful.search import SearchConfig
from heedful.tasks.forced import EncodedSample, ForcedBatch, Pieces, sequence_batches, words_of
from heedful.tasks.language.predictor import encode_texts
from heedful.tasks.system import System, collate_one
from heedful.tasks.translation.evaluate import score_pairs
from heedful.tasks.translation.samples import encode_pairs, fill_targets
from heedful.tasks.translation.translate import translate
from heedful.text.tokenizer import Tokenizer, TokenizerConfig
from heedful.text.train import train_tokenizer

KIND = {kind.name: kind for kind in ATTENTION_KINDS}
LINES = ["a b c d e f g", "c a", "g f e d", "b b a", "d e a c"]


@cache
def spaces() -> Tokenizer:
    """Seven words and the special tokens, the vocabulary of the tiny models."""
    made = train_tokenizer(TokenizerConfig(kind="spaces", min_frequency=1), ["a b c d e f g"], [])
    assert len(made) == VOCAB
    return made


def system_of(model: SequenceModel) -> System:
    return System([model], spaces(), spaces(), torch.device("cpu"), max_length=20)


def batches_of(system: System, several: list[Sample]) -> list[ForcedBatch]:
    return list(sequence_batches(system, encode_pairs(system, several)))


def samples() -> list[Sample]:
    both = [Alignment(frozenset({(0, 0)}), frozenset({(0, 0), (1, 0)}))] * 5
    return [
        Sample(line, " ".join(reversed(line.split())), alignment=alignment) for line, alignment in zip(LINES, both, strict=True)
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_with_attention_returns_all_heads(family: str) -> None:
    model = tiny_model(Variant(family, ()))
    system = system_of(model)
    pairs = batches_of(system, samples())
    if not model.attentions():
        with pytest.raises(ConfigError, match="no attention"):
            study(model, pairs, {})
        return
    result = study(model, pairs, {"source": torch.arange(VOCAB), "target": torch.arange(VOCAB)})
    scored = [one for one in score_pairs(system, LINES, [one.target or "" for one in samples()]) if one is not None]
    expected = -sum(one.log_probability for one in scored) / sum(one.tokens for one in scored)
    assert result.loss == pytest.approx(expected, rel=1e-4)
    assert {head.kind for head in result.heads} == {attention.kind.name for attention in model.attentions()}
    for head in result.heads:
        assert head.confidence is not None and 0 < head.confidence <= 1
        roles = {measure.role for measure in head.measures}
        assert ("positional" in roles) == (head.kind not in ("cross", "utterance"))
        assert ("alignment" in roles) == (head.kind in ("cross", "utterance", "within"))
        assert head.relevance is None or 0 <= head.relevance <= 1
    assert (result.heads[0].relevance is not None) == (family in ("transformer", "gpt"))


def test_a_text_without_a_source_starts_after_an_end_token() -> None:
    model = tiny_model(Variant("gpt", (("position", "rotary"), ("norm", "pre"))))
    system = system_of(model)
    result = study(model, list(sequence_batches(system, encode_texts(system, [Sample(None, line) for line in LINES]))), {})
    assert {head.kind for head in result.heads} == {"within"} and len(result.heads) == 4
    end, total = spaces().specials.end, 0.0
    for line in LINES:
        ids = torch.tensor([[end, *spaces().encode(line), end]])
        with torch.no_grad():
            hidden = model.step(ids[:, :-1], model.start(ids[:, :0], None, room=0)).hidden
            total -= float(model.project(hidden).log_softmax(-1).gather(-1, ids[:, 1:, None]).sum())
    assert result.loss == pytest.approx(total / 25, rel=1e-4)


@pytest.mark.parametrize("family", ["transformer", "gpt"])
def test_confidence_does_not_depend_on_padding(family: str) -> None:
    """Padding in a batch does not change the values of a sentence."""
    model = tiny_model(Variant(family, (("position", "rotary"), ("norm", "pre"))))
    system = system_of(model)
    pairs = batches_of(system, samples())
    result = study(model, pairs, {})
    expected: dict[tuple[str, int], Tensor] = {}
    tokens: dict[str, int] = {}
    for pair in encode_pairs(system, samples()):
        assert pair.source is not None
        for one in attention_maps(model, forward_of(*collate_one(system, pair.source.ids, pair.target.ids))):
            rows = slice(0, len(pair.source.ids)) if one.kind.queries == "source" else slice(1, len(pair.target.ids) + 1)
            if one.kind.name == "cross":
                rows = slice(0, len(pair.target.ids))
            marks = [len(pair.source.ids)] if one.kind.keys != "target" else [0]
            marks += [len(pair.source.ids) + 1] if one.kind.keys == "both" else []
            weights = one.weights[:, rows].clone()
            weights[..., marks] = 0.0
            key = one.kind.name, one.layer
            expected[key] = expected.get(key, torch.zeros(2)) + weights.amax(-1).sum(-1)
            tokens[one.kind.name] = tokens.get(one.kind.name, 0) + (weights.shape[1] if one.layer == 0 else 0)
    for head in result.heads:
        assert head.confidence == pytest.approx(float(expected[head.kind, head.layer][head.head]) / tokens[head.kind], rel=1e-4)
    assert len(result.heads) == sum(len(sums) for sums in expected.values())


def test_special_tokens_and_padding_are_removed() -> None:
    """Each weight encodes its row and column: 10 row + column."""
    weights = (10 * torch.arange(9)[:, None] + torch.arange(9)).float()[None]
    pair = EncodedSample(Pieces([4, 5], [0, 1]), Pieces([6, 7, 8], [0, 0, 1]))
    encoder = self_attention_view(KIND["encoder"], weights, pair, 4)
    assert_close(encoder.weights[0], torch.tensor([[0.0, 1.0], [10.0, 11.0]]))
    decoder = self_attention_view(KIND["decoder"], weights, pair, 4)
    assert_close(decoder.weights[0, 0], torch.tensor([11.0, 12.0, 13.0]))  # without the start token
    within = self_attention_view(KIND["within"], weights, pair, 4)  # a source of 2, padded to 4, then the start
    assert_close(within.weights[0, 0], torch.tensor([10.0, 11.0, 15.0, 16.0, 17.0]))
    assert (within.shift, within.word_shift, within.key_words) == (2, 2, [0, 1, 2, 2, 3])
    cross = source_view(weights, pair)
    assert_close(cross.weights[0], torch.tensor([[0.0, 1.0], [10.0, 11.0], [20.0, 21.0]]))


def test_a_previous_token_head_is_detected() -> None:
    model: SequenceModel = MODELS["transformer"](tiny_config("transformer", {}), VOCAB, VOCAB).eval()

    def attend_to_previous(_: str, weights: Tensor) -> Tensor:
        """Head 1 attends to the previous token, the first token to itself."""
        previous = torch.eye(weights.shape[-1]).roll(-1, 1)
        previous[0] = torch.eye(weights.shape[-1])[0]
        return torch.stack((weights[:, 0], previous.expand_as(weights[:, 0])), dim=1)

    system = system_of(model)
    pairs = batches_of(system, samples() * 5)
    with hook(model, "encoder.0.self_attention.weights", attend_to_previous):
        result = study(model, pairs, {})
    roles = {(head.kind, head.layer, head.head): [(one.role, one.what) for one in head.roles] for head in result.heads}
    assert roles["encoder", 0, 1] == [("positional", "-1")]
    assert roles["encoder", 0, 0] == []


def test_relations_of_words_with_several_pieces() -> None:
    """Word 1 of three has two pieces and depends on word 2; both pieces attend to it in head 0, none in head 1."""
    pieces = Pieces([4, 5, 6, 7], [0, 1, 1, 2], [Arc(1, 2, "nsubj"), Arc(0, 2, "det")])
    weights = torch.full((2, 5, 5), 0.01)
    weights[0, 1:3, 3] = 0.9
    weights[1, 1:3, 0] = 0.9
    statistics = HeadStatistics()
    statistics.add(KIND["encoder"], weights, EncodedSample(pieces, Pieces([4], [0])), 5, {})
    measures = {(one.role, one.what): one.value for one in statistics.measures()[0]}
    assert measures["syntactic", "nsubj to head"] == 1.0
    assert {(one.role, one.what): one.value for one in statistics.measures()[1]}["syntactic", "nsubj to head"] == 0.0
    assert not any("det" in what for _, what in measures)


def test_masked_keys_are_not_expected() -> None:
    """In a causal decoder word 2 can attend to its head, word 0, but word 0 not to word 2."""
    pieces = Pieces([4, 5, 6], [0, 1, 2], [Arc(2, 0, "obj"), Arc(0, 1, "amod")])
    weights = torch.ones(1, 4, 4).tril()
    statistics = HeadStatistics()
    statistics.add(KIND["decoder"], weights, EncodedSample(Pieces([4], [0]), pieces), 2, {"target": torch.arange(11).flip(0)})
    assert {(one.role, one.what): one.cases for one in statistics.measures()[0] if one.baseline is not None} == {
        ("rare", ""): 1,  # the rarest token is the last
        ("syntactic", "obj to head"): 1,
        ("syntactic", "obj to dependent"): 0,
        ("syntactic", "amod to head"): 0,
        ("syntactic", "amod to dependent"): 1,
    }


@pytest.mark.parametrize("kind", ["characters", "words", "wordpiece", "spaces", "bpe", "unigram", "bytes"])
def test_pieces_map_to_words_with_unknown_tokens(kind: str) -> None:
    options = {"min_frequency": 1, "vocab": 60} if kind in ("words", "spaces") else {}
    tokenizer = train_tokenizer(TokenizerConfig(kind=kind, **options), ["the cat's hat, the old one", "a cat"] * 3, [])  # type: ignore[arg-type]
    text = "the cat's zz9, hat"
    ids = tokenizer.encode(text)
    words = words_of(tokenizer, text, ids)
    assert len(words) == len(ids) and words == sorted(words) and set(words) == {0, 1, 2, 3}


def test_relations_have_two_directions_and_accept_old_names() -> None:
    expected = relations([Arc(2, 0, "dobj"), Arc(1, 2, "amod"), Arc(3, 0, "punct")], 4)
    assert {name: matrix.nonzero().tolist() for name, matrix in expected.items()} == {
        "obj to head": [[2, 0]],
        "obj to dependent": [[0, 2]],
        "amod to head": [[1, 2]],
        "amod to dependent": [[2, 1]],
    }


def test_the_rarest_token_is_unique_or_none() -> None:
    frequency = torch.tensor([9, 3, 5, 3])
    assert rarest(torch.tensor([0, 2, 1]), frequency).tolist() == [False, False, True]
    assert rarest(torch.tensor([1, 0, 1]), frequency).tolist() == [True, False, True]  # the same token twice
    assert rarest(torch.tensor([1, 0, 3]), frequency).tolist() == [False, False, False]


def test_a_head_equal_to_the_gold_alignment_has_no_error() -> None:
    gold = Alignment(frozenset({(0, 0), (2, 1)}), frozenset({(0, 0), (2, 1)}))
    pair = EncodedSample(Pieces([4, 5, 6], [0, 1, 2]), Pieces([7, 8], [0, 1]), gold)
    weights = torch.full((2, 3, 4), 0.1)
    weights[0, 0, 0] = weights[0, 1, 2] = weights[1, 0, 1] = weights[1, 1, 1] = 0.7
    statistics = HeadStatistics()
    statistics.add(KIND["cross"], weights, pair, 4, {})
    assert statistics.alignment_errors() == [0.0, 1.0]
    assert [[one.value for one in row] for row in statistics.measures()] == [[1.0], [0.0]]


def test_the_built_in_grammar_has_trees_and_alignments() -> None:
    (sample,) = from_grammar(generate("valid", 1))
    assert sample.source_arcs is not None and sample.alignment is not None
    words = (sample.source or "").split()
    assert len(sample.source_arcs) == len(words) - 1  # all but the root have a head
    assert {arc.dependent for arc in sample.source_arcs} < set(range(len(words)))


def test_lines_with_one_two_and_three_columns() -> None:
    bare, pair, aligned = from_lines(["a b", "a b\tc", "a b\tc\t0-0 1?0"], "file")
    assert (bare.target, pair.target, pair.alignment) == (None, "c", None)
    assert aligned.alignment == Alignment(frozenset({(0, 0)}), frozenset({(0, 0), (1, 0)}))
    with pytest.raises(DataError, match="file line 2 has 4 columns; expected at most 3"):
        list(from_lines(["a", "a\tb\t0-0\td"], "file"))
    with pytest.raises(DataError, match="file line 1: '0:0' is not a link"):
        list(from_lines(["a\tb\t0:0"], "file"))


def test_missing_targets_are_translated_by_the_system() -> None:
    system, config = system_of(tiny_model(Variant("transformer", ()))), SearchConfig(beam=1, max_length=5)
    given = Sample("a", "b")
    filled = fill_targets(system, [given, Sample("a b", source_arcs=[]), Sample("c d e", source_arcs=[])], config)
    assert filled[0] == given
    assert [one.target for one in filled[1:]] == [one.text for one in translate(system, ["a b", "c d e"], config)]


def test_samples_that_do_not_fit_are_skipped() -> None:
    system = system_of(tiny_model(Variant("transformer", ())))
    fits, beyond = (Alignment(frozenset({link}), frozenset({link})) for link in ((1, 0), (2, 0)))
    tree = [Arc(0, 1, "nsubj")]
    several = [Sample("a b", "c", tree, alignment=fits), Sample("a b", "c", alignment=beyond), Sample("a b", "")]
    several += [Sample("c " * 30, "c"), Sample("", "c")]
    (left,) = encode_pairs(system, several)
    assert left.source is not None and left.source.arcs == tree and left.alignment == fits
    with pytest.raises(DataError, match="all sentences were skipped"):
        study(system.models[0], [], {})


def test_frequencies_count_tokens() -> None:
    counts = count_tokens(spaces(), ["a b a", "c"])
    assert {word: int(counts[spaces().encode(word)[0]]) for word in "abcd"} == {"a": 2, "b": 1, "c": 1, "d": 0}


def test_reported_progress_sums_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.tasks.forced.BATCH", 10)
    system = system_of(tiny_model(Variant("transformer", ())))
    shares: list[float] = []
    result = study(system.models[0], batches_of(system, samples()), {}, shares.append)
    assert len(shares) >= 2 * (len(result.heads) + 1)  # in several batches
    assert sum(shares) == pytest.approx(1.0) and min(shares) > 0
