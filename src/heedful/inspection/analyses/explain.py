"""Explanations, stage by stage: worked examples, or the computations of a trained model with its own numbers.

explain("attention")                            a topic
explain(predictor, "the cat sees the dog")      a head
explain(predictor, "…", about="step")           a training step
explain(predictor, "…", about="tree")           the search tree of a translation, a reply or a continued text
explain(predictor, ["…", "…"], about="batch")   from texts to padded tensors
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from heedful.errors import ConfigError, lookup
from heedful.inspection.explaining.stages import Explanation
from heedful.inspection.explaining.trained import TOPICS, HeadChoice, explain_batch, explain_head, explain_search
from heedful.inspection.explaining.training_step import explain_step
from heedful.search import SearchConfig
from heedful.tasks.language.predictor import TextGenerator
from heedful.tasks.pair_predictor import PairPredictor
from heedful.tasks.predictor import Predictor
from heedful.tasks.translation.predictor import Translator

About = Literal["head", "step", "tree", "batch"]


def explain(
    subject: str | Predictor,
    texts: str | Sequence[str] | None = None,
    *,
    about: About = "head",
    target: str | Sequence[str] | None = None,
    config: SearchConfig | None = None,
    kind: str | None = None,
    layer: int = 0,
    head: int = 0,
    token: str | None = None,
) -> Explanation:
    """Explain a topic, or a model at work on a text.

    subject: the name of a topic, or a predictor; about: a head, a training step, the search tree, or a batch of several texts;
    target: default: the model's own output; kind, layer, head, token: the head and the query to explain.

    >>> heedful.inspection.explain("attention").stages[0].title
    'Queries, keys and values'
    >>> len(heedful.inspection.explain(translator, "w1 w2", target="w2 w1", layer=1).stages) > 4
    True
    """
    choice = HeadChoice(kind, layer, head, token)
    given = [texts] if isinstance(texts, str) else list(texts or [])
    targets = None if target is None else [target] if isinstance(target, str) else list(target)
    if isinstance(subject, str):
        if given or targets or config is not None or about != "head" or choice != HeadChoice():
            raise ConfigError(
                f"{subject!r} is a topic and takes no text, layer or head", hint="give a trained model to explain it"
            )
        return lookup(subject, TOPICS, "topic")[1]()
    check_options(about, given, targets, choice)
    if about == "tree":
        if not isinstance(subject, PairPredictor | TextGenerator):
            raise ConfigError(
                f"a search tree is explained for models that generate text; given a run of task {subject.run.task.name!r}",
                hint="explain a head or a training step",
            )
        return explain_search(subject, given[0], config or subject.run.search)
    if about == "batch":
        return explain_batch(translator_of(subject), given, config or subject.run.search, targets)
    example = subject.encode_example(given[0], targets[0] if targets else None, config)
    if about == "step":
        return explain_step(subject, example, subject.token_loss(), own=targets is None and not subject.predicts_input)
    return explain_head(subject, example, choice)


def translator_of(predictor: Predictor) -> Translator:
    """The predictor as a translator, which alone has sentence pairs."""
    if isinstance(predictor, Translator):
        return predictor
    raise ConfigError(
        f"a batch of sentence pairs is explained for translation only; given a run of task {predictor.run.task.name!r}",
        hint="explain a head or a training step",
    )


def check_options(about: About, texts: Sequence[str], targets: Sequence[str] | None, choice: HeadChoice) -> None:
    """Raise an error for options that have no effect together."""
    if not texts:
        raise ConfigError("a text is missing; expected a text to explain the model with")
    if about != "batch" and len(texts) > 1:
        raise ConfigError(f"{len(texts)} texts were given; expected one, in quotes", hint="explain a batch of several texts")
    unused = [name for name, value in choice._asdict().items() if value] if about != "head" else []
    unused += ["target"] if about == "tree" and targets else []
    if unused:
        raise ConfigError(
            f"{unused[0]} was given, which has no effect on the explanation of a {about}", hint="remove one of them"
        )
    if about != "batch" and targets is not None and len(targets) > 1:
        raise ConfigError(f"{len(targets)} targets were given; expected one", hint="explain a batch of several texts")
