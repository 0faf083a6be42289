"""Generated text in the terms of OpenAI's API: options of a request -> options of `predictions` -> choices.

`choices_of` is the only place that reads predictions, and `generation_options` the only one that sets their options.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from heedful.serving.failures import ApiError
from heedful.serving.limits import Limits
from heedful.serving.served import Served
from heedful.tasks.conversation import Replier
from heedful.tasks.language.generate import Continuation
from heedful.tasks.language.predictor import TextGenerator
from heedful.tasks.pair_predictor import PairPredictor
from heedful.tasks.predictor import Prediction, Predictor


@dataclass(frozen=True)
class Generation:
    """How to generate."""

    max_tokens: int | None = None  # None: as many as the model allows
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    n: int = 1
    stop: Sequence[str] = ()
    logprobs: int | None = None  # most probable tokens to return for each token


class Choice(NamedTuple):
    """One generated text."""

    text: str
    tokens: int
    finish_reason: str  # stop or length
    log_probabilities: Sequence[Any] | None = None  # TokenLogProbability(token, log_probability, top)


def generates(predictor: Predictor) -> bool:
    """Whether the output of a model is text: translations, replies, continued texts."""
    return isinstance(predictor, PairPredictor | TextGenerator | Replier)


def reads_turns(predictor: Predictor) -> bool:
    """Whether the input of a model is a dialogue, as turns joined by tabs."""
    return isinstance(predictor, Replier)


def stops_by_itself(predictor: Predictor) -> bool:
    """Whether a model ends its output at a stop string; the output of others is cut there."""
    return isinstance(predictor, TextGenerator)


def count_tokens(served: Served, text: str) -> int:
    return len(served.predictor.input_tokenizer.encode(text))


def generation_options(served: Served, given: Generation, texts: Sequence[str], limits: Limits) -> dict[str, Any]:
    """The options of `predictions`."""
    predictor = served.predictor
    refuse_too_much(given, limits)
    if isinstance(predictor, TextGenerator):
        longest = max((count_tokens(served, text) for text in texts), default=0)
        room = max(1, predictor.system.max_length - longest)
        options: dict[str, Any] = {"length": given.max_tokens or min(room, limits.max_tokens)}
        options |= {"stop": list(given.stop)} if given.stop else {}
        options |= {"logprobs": given.logprobs} if given.logprobs is not None else {}
    elif isinstance(predictor, PairPredictor):
        options = {} if given.max_tokens is None else {"max_length": given.max_tokens}
    else:  # it retrieves stored texts
        return {"top": given.n}
    if given.logprobs is not None and "logprobs" not in options:
        raise ApiError(400, f"logprobs: model {served.id!r} does not return them", param="logprobs")
    return options | sampling_options(predictor, given)


def refuse_too_much(given: Generation, limits: Limits) -> None:
    most = {"max_tokens": limits.max_tokens, "n": limits.max_candidates}
    for name, limit in most.items():
        if (getattr(given, name) or 0) > limit:
            raise ApiError(400, f"{name}: given {getattr(given, name)}, expected at most {limit}", param=name)


def sampling_options(predictor: Predictor, given: Generation) -> dict[str, Any]:
    """Search options: a temperature or top_p selects sampling, temperature 0 the most probable output. Without any of these a
    model searches as it was configured. Samples without a seed differ each time."""
    search = predictor.run.search
    is_sampled = search.method == "sample" if given.temperature is None else given.temperature > 0
    is_sampled |= given.temperature is None and given.top_p not in (None, 1.0)
    if given.n > 1 and not is_sampled:
        if isinstance(predictor, TextGenerator):
            raise ApiError(400, f"n: given {given.n}, but temperature 0 generates one text", param="n")
        return {"method": "beam", "beam": max(given.n, search.beam), "n_best": given.n}
    if not is_sampled:
        return {"method": "greedy"} if search.method == "sample" else {}
    options: dict[str, Any] = {"method": "sample"}
    options |= {"temperature": given.temperature} if given.temperature is not None else {}
    options |= {"top_p": max(given.top_p, 1e-6)} if given.top_p is not None else {}
    options |= {"n_best": given.n} if given.n > 1 else {}
    return options | {"seed": secrets.randbelow(2**31) if given.seed is None else given.seed % 2**31}


def choices_of(served: Served, prediction: Prediction, given: Generation) -> list[Choice]:
    """The generated texts of a prediction, cut before the first stop string."""
    found: Any = prediction
    if isinstance(found, Continuation):
        return [Choice(one.text, len(one.tokens), one.finish_reason, one.log_probabilities) for one in found.completions]
    choices = [Choice(one.text, count_output(served, one), "stop") for one in found.candidates]
    return [cut_at_stop(served, choice, given.stop) for choice in choices[: given.n]]


def count_output(served: Served, candidate: Any) -> int:
    tokens = getattr(candidate, "tokens", None)
    return len(tokens) + 1 if tokens is not None else count_tokens(served, candidate.text)  # and the end token


def cut_at_stop(served: Served, choice: Choice, stop: Sequence[str]) -> Choice:
    """The text before the first stop string."""
    ends = [at for one in stop if one and (at := choice.text.find(one)) >= 0]
    if not ends:
        return choice
    text = choice.text[: min(ends)]
    return Choice(text, count_tokens(served, text), "stop", choice.log_probabilities)
