"""Baselines of text classification, fitted on the training data of a run: what a trained model should exceed.

    majority class               the most frequent label
    bag of words                 logistic regression on the counts of words
    naive Bayes features         logistic regression on words and pairs of words that occur, each multiplied by its log-count
                                 ratio r (Wang and Manning, 2012):
                                     r = log((p + 1) / |p + 1|) - log((q + 1) / |q + 1|)
                                 p, q: number of texts with and without the label that contain the word

One regression for each label against all others; one in all for two labels. scikit-learn is an optional dependency.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.errors import ConfigError

Sets = NDArray[np.bool_]  # (examples, labels): the labels of each example
WORD = r"(?u)\w+(?:'\w+)?|[^\w\s]"  # words, with n't and 's, and punctuation
MIN_TEXTS = 2  # words and pairs of words in fewer texts are left out


def require_scikit_learn() -> None:
    try:
        import sklearn  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "--baselines needs scikit-learn, which is not installed", hint="pip install 'heedful[baselines]'"
        ) from error


def majority(train: Sequence[str], gold: Sets, test: Sequence[str], *, one_label: bool) -> Sets:
    shares = gold.mean(0)
    chosen = np.eye(gold.shape[1], dtype=bool)[shares.argmax()] if one_label else shares > 0.5
    return np.tile(chosen, (len(test), 1))


def bag_of_words(train: Sequence[str], gold: Sets, test: Sequence[str], *, one_label: bool) -> Sets:
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(token_pattern=WORD)
    features, tested = counter.fit_transform(train), counter.transform(test)
    return choose(scores(features, gold, tested, 0.03, lambda features, has_label: np.ones(features.shape[1])), one_label)


def naive_bayes_features(train: Sequence[str], gold: Sets, test: Sequence[str], *, one_label: bool) -> Sets:
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(token_pattern=WORD, ngram_range=(1, 2), binary=True, min_df=min(MIN_TEXTS, len(train)))
    features, tested = counter.fit_transform(train), counter.transform(test)
    return choose(scores(features, gold, tested, 1.0, log_count_ratio), one_label)


def log_count_ratio(features: Any, has_label: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The weight r of each feature: features (texts, features), sparse."""
    p, q = (np.asarray(features[rows].sum(0), dtype=np.float64).ravel() + 1 for rows in (has_label, ~has_label))
    ratio: NDArray[np.float64] = np.log(p / p.sum()) - np.log(q / q.sum())
    return ratio


def scores(
    features: Any, gold: Sets, tested: Any, c: float, weigh: Callable[[Any, NDArray[np.bool_]], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """The score of each label, (tested texts, labels); positive: the text has the label. c: inverse of the regularization."""
    from scipy.sparse import diags
    from sklearn.linear_model import LogisticRegression

    found = np.zeros((tested.shape[0], gold.shape[1]))
    exclusive = gold.shape[1] == 2 and bool((gold.sum(1) == 1).all())
    for label in [1] if exclusive else range(gold.shape[1]):
        has_label = gold[:, label]
        if has_label.all() or not has_label.any():  # nothing to learn
            found[:, label] = 1.0 if has_label.any() else -1.0
            continue
        weights = diags(weigh(features, has_label))
        model = LogisticRegression(C=c, solver="liblinear", max_iter=1000).fit(features @ weights, has_label)
        found[:, label] = model.decision_function(tested @ weights)
    if exclusive:
        found[:, 0] = -found[:, 1]
    return found


def choose(scored: NDArray[np.float64], one_label: bool) -> Sets:
    chosen: Sets = np.eye(scored.shape[1], dtype=bool)[scored.argmax(1)] if one_label else scored > 0
    return chosen


BASELINES: dict[str, Callable[..., Sets]] = {  # name -> function of training texts, their labels and the texts to classify
    "majority class": majority,
    "bag of words": bag_of_words,
    "naive Bayes features": naive_bayes_features,
}
