"""Scores equal those of sacreBLEU and hand-worked formulas."""

from __future__ import annotations

import gzip
import math
import os
import random
from pathlib import Path

import pytest
import sacrebleu
from sacrebleu.metrics import BLEU, CHRF, TER

from heedful.errors import ConfigError, DataError
from heedful.evaluation.metrics import METRICS, bleu, chrf, exact_match, perplexity, ter

OWN = {"bleu": BLEU, "chrf": CHRF, "ter": TER}


def corpus(lines: int = 80) -> tuple[list[str], list[str]]:
    """References of random words, and hypotheses that lack or change some of them."""
    generator = random.Random(7)
    words = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("a", "e", "io", "un", "esta")]
    references = [" ".join(generator.choices(words, k=generator.randint(4, 15))).capitalize() for _ in range(lines)]
    hypotheses = []
    for reference in references:
        kept = [word if generator.random() < 0.85 else generator.choice(words) for word in reference.split()]
        hypotheses.append(" ".join(word for word in kept if generator.random() < 0.95))
    return hypotheses, references


@pytest.mark.parametrize("name", OWN)
def test_value_and_signature_equal_those_of_sacrebleu(name: str) -> None:
    hypotheses, references = corpus()
    own = OWN[name]()
    value = own.corpus_score(hypotheses, [references]).score
    score = METRICS[name](hypotheses, references)
    assert 0 < value < 100
    assert (score.name, score.value, score.low, score.high) == (name, value, None, None)
    assert score.signature == str(own.get_signature())


@pytest.mark.parametrize("name", OWN)
def test_interval_and_its_signature_equal_those_of_sacrebleu(name: str) -> None:
    hypotheses, references = corpus()
    own = OWN[name]()
    theirs = own.corpus_score(hypotheses, [references], n_bootstrap=400)
    score = METRICS[name](hypotheses, references, bootstrap=400, seed=12345)
    assert score.low is not None and score.high is not None
    assert score.low < score.value < score.high
    assert (score.high - score.low) / 2 == pytest.approx(theirs._ci, rel=1e-6)
    assert score.signature == str(own.get_signature())


def test_bleu_equals_the_formula_worked_by_hand() -> None:
    # matches: words 5/6 (the, cat, on, the, mat), pairs 3/5, triples 1/4; fours 0/3, which smoothing makes 1/(2*3)
    score = bleu(["the cat sat on the mat"], ["the cat is on the mat"])
    assert score.value == pytest.approx(100 * (5 / 6 * 3 / 5 * 1 / 4 * 1 / 6) ** 0.25)


def test_bleu_of_a_prefix_is_the_brevity_penalty() -> None:
    assert bleu(["a b c d e"], ["a b c d e f g"]).value == pytest.approx(100 * math.exp(1 - 7 / 5))


def test_chrf_equals_the_formula_worked_by_hand() -> None:
    # precision 2/2 and 1/1, recall 2/3 and 1/2, orders beyond two do not occur; F with beta 2
    precision, recall = 1.0, (2 / 3 + 1 / 2) / 2
    assert chrf(["ab"], ["abc"]).value == pytest.approx(100 * 5 * precision * recall / (4 * precision + recall))


def test_ter_counts_edits_per_reference_word() -> None:
    assert ter(["a b c"], ["a x c d"]).value == pytest.approx(100 * 2 / 4)


def test_exact_match_is_the_share_of_equal_lines() -> None:
    references = ["Io sono alla moda", "Faccio la doccia", "ciao", "no"]
    assert exact_match(["Io sono alla moda", " Faccio la doccia ", "Ciao", "si"], references).value == 50
    assert exact_match(["Io sono alla moda", "Faccio la doccia", "Ciao", "si"], references, lowercase=True).value == 75


@pytest.mark.parametrize("name", METRICS)
def test_equal_texts_have_the_best_score_and_case_may_be_ignored(name: str) -> None:
    _, references = corpus(20)
    best = 100 if METRICS[name].higher_is_better else 0
    shouted = [line.upper() for line in references]
    assert METRICS[name](references, references).value == pytest.approx(best)
    assert METRICS[name](shouted, references, lowercase=True).value == pytest.approx(best)
    assert METRICS[name](shouted, references, lowercase=False).value != pytest.approx(best)


@pytest.mark.parametrize("tokenize", ["13a", "intl", "char", "zh", "none"])
def test_bleu_accepts_the_tokenizers_of_sacrebleu(tokenize: str) -> None:
    hypotheses, references = ["Ja, das ist (fast) gut."], ["Ja das ist fast gut!"]
    theirs = sacrebleu.corpus_bleu(hypotheses, [references], tokenize=tokenize)
    score = bleu(hypotheses, references, tokenize=tokenize)
    assert score.value == theirs.score
    assert f"tok:{tokenize}" in score.signature


def test_an_unknown_tokenizer_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="unknown BLEU tokenizer '13b'; expected one of: none, zh, 13a") as caught:
        bleu(["a"], ["a"], tokenize="13b")
    assert caught.value.hint == "did you mean '13a'?"


@pytest.mark.parametrize("name", ["chrf", "ter", "exact_match"])
def test_a_tokenizer_without_effect_is_an_error(name: str) -> None:
    with pytest.raises(ConfigError, match=f"tokenize='intl' has no effect on {name}"):
        METRICS[name](["a"], ["a"], tokenize="intl")


@pytest.mark.parametrize("name", METRICS)
def test_unequal_counts_are_an_error_with_the_counts(name: str) -> None:
    with pytest.raises(DataError, match="cannot score 2 hypotheses, 3 references"):
        METRICS[name](["a", "b"], ["a", "b", "c"])


@pytest.mark.parametrize("name", METRICS)
def test_nothing_to_score_is_an_error(name: str) -> None:
    with pytest.raises(DataError, match="nothing to score: 0 hypotheses, 0 references"):
        METRICS[name]([], [])


@pytest.mark.parametrize("name", METRICS)
def test_empty_lines_can_be_scored(name: str) -> None:
    score = METRICS[name](["", "a b"], ["a b c", ""], bootstrap=50)
    assert score.low is not None and score.high is not None
    assert math.isfinite(score.value) and math.isfinite(score.low) and math.isfinite(score.high)


@pytest.mark.parametrize("name", METRICS)
def test_an_interval_contains_the_value_and_depends_only_on_the_seed(name: str) -> None:
    hypotheses, references = corpus(40)
    hypotheses[::2] = references[::2]
    one, same, other = (METRICS[name](hypotheses, references, bootstrap=200, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert (one.low, one.high) != (other.low, other.high)
    assert one.low is not None and one.high is not None
    assert one.low < one.value < one.high
    assert "bs:200|seed:1|" in one.signature


def test_too_few_resamples_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap must be 0 .* or at least 40 resamples, but is 10"):
        bleu(["a"], ["a"], bootstrap=10)


def test_lines_that_end_in_a_separate_period_give_no_warning(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    lines = ["das ist gut ."] * 150
    assert bleu(lines, lines).value == pytest.approx(100)
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


def test_perplexity_is_the_exponential_of_the_mean() -> None:
    # the worked example "Io sono alla moda <eos>": five probabilities, rows renormalized
    nats = -sum(math.log(p) for p in (0.93 / 1.010, 0.8, 0.99 / 0.996, 0.94 / 0.974, 0.98 / 1.003))
    assert perplexity(nats, 5).value == pytest.approx(1.0769, abs=1e-4)
    assert perplexity(1e6, 3).value == math.inf
    with pytest.raises(DataError, match="0 predicted tokens"):
        perplexity(0.0, 0)


def test_scores_of_real_text_equal_those_of_sacrebleu() -> None:
    folder = os.environ.get("HEED_DATA")
    if folder is None:
        pytest.skip("HEED_DATA is not set: no Multi30k to score")
    with gzip.open(Path(folder) / "multi30k" / "test2016.de.gz", "rt", encoding="utf-8") as file:
        references = file.read().split("\n")[:300]
    hypotheses = [line.replace("ein", "der", 1) for line in references]
    assert bleu(hypotheses, references).value == sacrebleu.corpus_bleu(hypotheses, [references]).score < 100
    assert chrf(hypotheses, references).value == sacrebleu.corpus_chrf(hypotheses, [references]).score < 100
    assert ter(hypotheses, references).value == sacrebleu.corpus_ter(hypotheses, [references]).score > 0
