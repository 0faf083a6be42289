"""Explaining a trained model by its own numbers: a head, a training step, a search, a batch; and the topics that need none.

explain_head(system, "the cat sees the dog", Choice("cross", layer=1, head=2), SearchConfig()) -> Explanation
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.errors import ConfigError, lookup
from heedful.inspection.attention_maps import AttentionMap
from heedful.inspection.explaining import decoding, examples, losses, positions
from heedful.inspection.explaining import lookup as lookup_example
from heedful.inspection.explaining.attention_stages import View, head_stages, scored_stages
from heedful.inspection.explaining.batches import Prepared, preparation
from heedful.inspection.explaining.heads import head_of
from heedful.inspection.explaining.recording import TokenPair, record_attention
from heedful.inspection.explaining.recurrent import scored
from heedful.inspection.explaining.stages import Cell, Check, Explanation, Matrix, Stage
from heedful.inspection.explaining.tree import Say, Tree, grow, hypothesis
from heedful.nn.scores import SourceAttention
from heedful.search import SearchConfig, length_limits
from heedful.studies.trace import UNSAID, Trace, look_at, read_alone, sequences, tokens_of
from heedful.tasks.batches import collate, source_tensors
from heedful.tasks.translate import Piece, System, search_pieces, translate
from heedful.text.specials import Specials


class HeadChoice(NamedTuple):
    """Which head, and whose look; layers and heads are counted from 0, as taps are."""

    kind: str | None = None  # cross where there is such a kind
    layer: int = 0
    head: int = 0
    token: str | None = None  # as it is spelled, or its number from 0; see `telling` for what is shown unless said


def explain_head(
    system: System, source: str, choice: HeadChoice, config: SearchConfig, target: str | None = None
) -> Explanation:
    return explain_trace(system, look_at(system, source, config, target), choice)


def explain_head_alone(system: System, text: str, choice: HeadChoice) -> Explanation:
    """Of a language model, which only reads."""
    return explain_trace(system, read_alone(system, text), choice)


def explain_trace(system: System, trace: Trace, choice: HeadChoice) -> Explanation:
    one = chosen(trace.maps, choice)
    recorded = record_attention(system.models[0], TokenPair(*sequences(system, trace.source, trace.target)), one.name)
    queries, keys = trace.queries(one), trace.keys(one)
    marks = {trace.start, trace.end, UNSAID}
    at = telling(queries, keys, one.weights[choice.head], marks) if choice.token is None else place_of(queries, choice.token)
    view = View(queries, keys, at, trace.fed(one))
    name = f"{one.kind.name} attention, layer {one.layer}, head {choice.head}"
    if isinstance(recorded.owner, SourceAttention):
        stages = scored_stages(scored(recorded), view)
    else:
        stages = head_stages(head_of(recorded, choice.head), view, choice.head)
    read = "" if trace.source is None else f"'{trace.source.text}' -> "
    opening = f"{read}'{trace.target.text}'. Shown is how '{view.query[0]}' looks; --token chooses another."
    return Explanation(f"How {name} looked", opening, stages)


def chosen(maps: Sequence[AttentionMap], choice: HeadChoice) -> AttentionMap:
    if not maps:
        raise ConfigError(
            "this model does not attend, so there is no head to explain", hint="--step, --tree and --batch explain any model"
        )
    kinds = list(dict.fromkeys(one.kind.name for one in maps))
    kind = choice.kind or ("cross" if "cross" in kinds else kinds[-1])
    lookup(kind, dict.fromkeys(kinds), "kind of attention")
    layers = {one.layer: one for one in maps if one.kind.name == kind}
    if choice.layer not in layers:
        raise ConfigError(f"--layer: given {choice.layer}, expected one of: {', '.join(map(str, layers))} ({kind} attention)")
    one = layers[choice.layer]
    heads = one.weights.shape[0]
    if not heads:
        raise ConfigError(f"no head is left in layer {one.layer} of {kind} attention; expected a layer that has some")
    if not 0 <= choice.head < heads:
        expected = "0" if heads == 1 else f"0 to {heads - 1}"
        raise ConfigError(f"--head: given {choice.head}, expected {expected} ({kind} attention, layer {one.layer})")
    return one


def telling(queries: Sequence[str], keys: Sequence[str], weights: Tensor, marks: Set[str]) -> int:
    """Whose look to show: of the words that look most at a word, the one nearest the middle; the middle one if none does.

    weights (query, key); marks: the tokens that are no words."""
    words = [at for at, token in enumerate(queries) if token not in marks] or list(range(len(queries)))
    at_words = [at for at in words if keys[int(weights[at].argmax())] not in marks]
    middle = words[len(words) // 2]
    return min(at_words or words, key=lambda at: abs(at - middle))


def place_of(tokens: Sequence[str], wanted: str) -> int:
    """Where a token stands, by its spelling or by its number."""
    plain = [token.strip("▁") for token in tokens]
    if wanted in plain or wanted in tokens:
        return plain.index(wanted) if wanted in plain else list(tokens).index(wanted)
    if wanted.isdecimal() and int(wanted) < len(tokens):
        return int(wanted)
    raise ConfigError(f"--token: given {wanted!r}, expected one of: {' '.join(tokens)}; or its number, 0 to {len(tokens) - 1}")


def explain_search(system: System, source: str, config: SearchConfig) -> Explanation:
    """The tree of the search, grown again without caches, and whether it found what the search finds."""
    read = tokens_of(system, source, "source")
    if not read.ids:
        raise ConfigError("an empty sentence was given; expected one that has words to search a translation for")
    specials = system.target_tokenizer.specials
    limits = length_limits(config, torch.tensor([len(read.ids)]), torch.tensor([0]))
    limit = min([int(limits[0]), *(model.longest for model in system.models if model.longest is not None)])
    with torch.inference_mode():
        nodes, best = grow(says(system, read.ids), config, limit, start=specials.start, end=specials.end)
        ((_, real),) = search_pieces(system, [Piece(0, read.ids, [], source)], config)
    ours = [hypothesis(nodes, at) for at in best]
    same = [one.tokens for one in ours] == [one.tokens for one in real]
    apart = max(abs(one.score - other.score) for one, other in zip(ours, real, strict=True)) if same else float("inf")
    agrees = Check("each hypothesis with its score", apart, max(abs(one.score) for one in real), 1e-5)
    words = system.target_tokenizer.pieces([node.token for node in nodes])
    rows: list[list[Cell]] = [[system.target_tokenizer.decode(one.tokens), one.log_probability, one.score] for one in ours]
    names = [f"hypothesis {rank}" for rank in range(1, len(ours) + 1)]
    width = "greedy" if config.method == "greedy" else f"a beam of {config.beam}"
    stage = Stage(
        f"Search with {width}",
        f"log P = sum_t ln p_t , score = {score_of(config)}",
        [Matrix("found", names, ["sentence", "log P", "score"], rows)],
        "At each step the beginnings that live are continued; the best continuations are kept, as many as the beam has places. "
        "p is the probability of a token after its beginning, log P that of all tokens so far.",
        checks=[agrees],
        tree=Tree(nodes, words, best),
    )
    return Explanation(f"How '{source}' was searched", f"At most {limit} tokens, the end counted.", [stage])


PENALTY = {"wu": "frac(log P, ((5 + n) / 6)^alpha)", "power": "frac(log P, n^alpha)"}


def score_of(config: SearchConfig) -> str:
    """As a formula; what a penalty of 0 divides by is 1."""
    if config.method != "beam" or not config.length_penalty:
        return "log P"
    return f"{PENALTY[config.penalty]} , alpha = {config.length_penalty:g}"


def says(system: System, ids: list[int]) -> Say:
    """What comes next, by reading source and beginning anew; an ensemble's is the mean probability."""
    source, _ = source_tensors([ids], system.source_tokenizer.specials)
    source = source.to(system.device)

    def say(beginnings: list[list[int]]) -> Tensor:
        tokens = torch.tensor(beginnings, device=system.device)
        logs = []
        for model in system.models:
            state = model.start(source.expand(len(tokens), -1), None, room=0)
            logs.append(model.project(model.step(tokens, state).hidden[:, -1]).double().log_softmax(-1))
        return torch.stack(logs).exp().mean(0).log()  # (rows, vocab)

    return say


def explain_batch(system: System, sources: Sequence[str], config: SearchConfig, targets: Sequence[str] | None) -> Explanation:
    """targets: what the sources should become; what the model makes of them unless given."""
    said = [one.text for one in translate(system, sources, config)] if targets is None else list(targets)
    if not all(source.strip() for source in sources):
        raise ConfigError("an empty sentence was given; expected some that have words")
    if len(said) != len(sources):
        raise ConfigError(f"{len(said)} targets were given for {len(sources)} sentences; expected one for each")
    read, write = system.source_tokenizer, system.target_tokenizer
    ids = [(read.encode(source), write.encode(target)) for source, target in zip(sources, said, strict=True)]
    pieces = [(read.pieces(source), write.pieces(target)) for source, target in ids]
    batch = prepared(list(zip(sources, said, strict=True)), pieces, ids, (read.specials, write.specials))
    return preparation(batch, "A batch being prepared", "By the tokenizers of this run.")


Texts = Sequence[tuple[str, str]]
Sides = Sequence[tuple[list[str], list[str]]]
Ids = Sequence[tuple[list[int], list[int]]]


def prepared(texts: Texts, pieces: Sides, ids: Ids, specials: tuple[Specials, Specials]) -> Prepared:
    batch = collate([source for source, _ in ids], [target for _, target in ids], *specials)
    mask = torch.ones_like(batch.source, dtype=torch.bool) if batch.source_mask is None else batch.source_mask
    return Prepared(texts, pieces, ids, batch.source, mask, batch.target_in, batch.target_out, specials[1]._asdict())


VOCABULARY = {"<sos>": 0, "<unk>": 1, "<pad>": 3, "il": 5, "gatto": 8, "è": 12, "is": 16, "qui": 20, "cat": 23, "here": 31}
VOCABULARY |= {"the": 42, "black": 64, "<eos>": 99}
PAIRS = [("the cat is here", "il gatto è qui"), ("the zebra is black", "la zebra è nera"), ("cat", "gatto")]


def batch() -> Explanation:
    """By a vocabulary whose padding is not 0."""
    specials = Specials(pad=3, start=0, end=99, unk=1)
    pieces = [(source.split(), target.split()) for source, target in PAIRS]
    ids = [tuple([VOCABULARY.get(word, specials.unk) for word in side] for side in pair) for pair in pieces]
    opening = "Three pairs, and a vocabulary that knows neither zebras nor feminine words."
    made = prepared(PAIRS, pieces, [(source, target) for source, target in ids], (specials, specials))
    return preparation(made, "A batch being prepared", opening)


TOPICS: dict[str, tuple[str, Callable[[], Explanation]]] = {
    "look-up": ("attention as a table that answers softly", lookup_example.look_up),
    "attention": ("queries, keys and values to scores, shares and a weighted sum", examples.attention),
    "masked": ("self-attention in which nobody looks ahead", examples.masked),
    "thinking": ("a head of 64 numbers: what the scale is for", lookup_example.thinking),
    "positions": ("sines, cosines and the rotation that shifts them", positions.positions),
    "batch": ("sentences on their way into a model, in order", batch),
    "loss": ("one training step: targets, outputs, loss, smoothing", losses.loss),
    "schedule": ("the learning rate, step by step", losses.schedule),
    "sampling": ("temperature, top-k, top-p", decoding.sampling),
    "search": ("beam search as a tree: what was kept, what was dropped and why", decoding.search),
}
