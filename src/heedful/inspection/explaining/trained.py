"""Explanations of a trained model with its own numbers (a head, a search, a batch), and topics that need no model.

explain_head(predictor, predictor.encode_example("the cat sees the dog"), HeadChoice("cross", layer=1, head=2)) -> Explanation
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.config.bounds import MAX_SIZE
from heedful.data.text_store import encode_text
from heedful.errors import ConfigError, lookup
from heedful.inspection.explaining import decoding, examples, hierarchical, losses, masking, norms, positions
from heedful.inspection.explaining import lookup as lookup_example
from heedful.inspection.explaining.attention_stages import QueryView, head_stages, source_attention_stages
from heedful.inspection.explaining.batches import PreparedBatch, explain_preparation
from heedful.inspection.explaining.head_tensors import head_tensors, source_attention_tensors
from heedful.inspection.explaining.heads import trace_head
from heedful.inspection.explaining.recording import record_attention
from heedful.inspection.explaining.source_attention import trace_source_attention
from heedful.inspection.explaining.stages import Cell, Check, Explanation, Matrix, Stage
from heedful.inspection.explaining.tree import NextTokenFn, Tree, grow_tree, make_hypothesis
from heedful.inspection.measures.attention_maps import AttentionMap
from heedful.inspection.measures.trace import trace_example
from heedful.nn.scores import SourceAttention
from heedful.search import SearchConfig
from heedful.tasks.batches import collate, source_tensors
from heedful.tasks.decoding import Decoder, Piece, search_pieces
from heedful.tasks.encoded_example import EncodedExample, mark
from heedful.tasks.language.generate import text_decoder
from heedful.tasks.language.predictor import TextGenerator
from heedful.tasks.pair_predictor import PairPredictor
from heedful.tasks.predictor import Predictor, refuse_empty
from heedful.tasks.system import System
from heedful.tasks.translation.predictor import Translator
from heedful.tasks.translation.translate import pair_decoder, translate
from heedful.text.specials import Specials

CONTINUATION = 12  # tokens of the search tree of a language model, whose texts have no end of their own


class HeadChoice(NamedTuple):
    """Which head and query to explain; layers and heads are counted from 0, as in hook points."""

    kind: str | None = None  # default: cross if the model has cross-attention, else the last kind
    layer: int = 0
    head: int = 0
    token: str | None = None  # the query token or its index from 0; default: see `choose_query`


def explain_head(predictor: Predictor, example: EncodedExample, choice: HeadChoice) -> Explanation:
    """Explain one head in the pass over an example."""
    trace = trace_example(predictor, example)
    attention = select_map(trace.maps, choice)
    recorded = record_attention(predictor.model.base_model, example.forward, attention.name)
    queries, keys = trace.queries(attention), trace.keys(attention)
    if choice.token is None:
        index = choose_query(queries, keys, attention.weights[choice.head], set(mark(example.start, [], example.end)))
    else:
        index = find_token(queries, choice.token)
    view = QueryView(queries, keys, index, trace.input_tokens(attention))
    if isinstance(recorded.owner, SourceAttention):
        source_trace = trace_source_attention(recorded)
        stages, tensors = source_attention_stages(source_trace, view), source_attention_tensors(recorded, source_trace, index)
    else:
        head_trace = trace_head(recorded, choice.head)
        stages = head_stages(head_trace, view, choice.head)
        tensors = head_tensors(recorded, head_trace, choice.head, index)
    source = "" if example.source is None else f"'{example.source.text}' -> "
    opening = f"{source}'{example.target.text}'. The query is '{view.query[0]}'; choose another one with --token."
    return Explanation(
        f"{KIND_NAMES[attention.kind.name]}, layer {attention.layer}, head {choice.head}", opening, stages, tensors
    )


KIND_NAMES = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Cross-attention",
    "utterance": "Attention within utterances",
    "reading": "Self-attention within the source",
    "within": "Self-attention",
    "self": "Self-attention",
}


def select_map(maps: Sequence[AttentionMap], choice: HeadChoice) -> AttentionMap:
    if not maps:
        raise ConfigError(
            "this model has no attention, so there is no head to explain",
            hint="use --step, --tree or --batch, which explain any model",
        )
    kinds = list(dict.fromkeys(attention.kind.name for attention in maps))
    kind = choice.kind or ("cross" if "cross" in kinds else kinds[-1])
    lookup(kind, dict.fromkeys(kinds), "kind of attention")
    layers = {attention.layer: attention for attention in maps if attention.kind.name == kind}
    if choice.layer not in layers:
        raise ConfigError(f"layer: given {choice.layer}, expected one of: {', '.join(map(str, layers))} ({kind} attention)")
    attention = layers[choice.layer]
    heads = attention.weights.shape[0]
    if not heads:
        raise ConfigError(f"layer {attention.layer} of {kind} attention has no heads left; expected a layer with heads")
    if not 0 <= choice.head < heads:
        expected = "0" if heads == 1 else f"0 to {heads - 1}"
        raise ConfigError(f"head: given {choice.head}, expected {expected} ({kind} attention, layer {attention.layer})")
    return attention


def choose_query(queries: Sequence[str], keys: Sequence[str], weights: Tensor, specials: Set[str]) -> int:
    """The index of an informative query: the most central word whose largest weight is on a word; else the middle word.

    weights (query, key); specials: the start and end tokens."""
    words = [i for i, token in enumerate(queries) if token not in specials] or list(range(len(queries)))
    attend_to_words = [i for i in words if keys[int(weights[i].argmax())] not in specials]
    middle = words[len(words) // 2]
    return min(attend_to_words or words, key=lambda i: abs(i - middle))


def find_token(tokens: Sequence[str], given: str) -> int:
    """The index of a token, given by its text or by its index; #3 is always an index, also where "3" is a token."""
    number = given.removeprefix("#")
    if given.startswith("#") and number.isdecimal() and int(number) < len(tokens):
        return int(number)
    plain = [token.strip("▁") for token in tokens]
    if given in plain or given in tokens:
        return plain.index(given) if given in plain else list(tokens).index(given)
    if given.isdecimal() and int(given) < len(tokens):
        return int(given)
    raise ConfigError(f"token: given {given!r}, expected one of: {' '.join(tokens)}; or its index, 0 to {len(tokens) - 1}")


class SearchSubject(NamedTuple):
    """What is searched for: a target of a source, or the continuation of a text."""

    heading: str
    decoder: Decoder
    piece: Piece
    next_token: NextTokenFn  # without a cache


def pair_search(predictor: PairPredictor, source: str) -> SearchSubject:
    system, tokens = predictor.system, predictor.encode_source(source)
    piece = Piece(0, tokens.ids, [], source)
    output = "translation of" if isinstance(predictor, Translator) else "reply to"
    return SearchSubject(
        f"The search for a {output} '{source}'", pair_decoder(system), piece, next_token_function(system, tokens.ids)
    )


def continuation_search(generator: TextGenerator, text: str) -> SearchSubject:
    """The search for the first CONTINUATION tokens after a text. They end by their number, at a padding token, so that all
    hypotheses are equally long."""
    system = generator.system
    context = [system.target_tokenizer.specials.end, *encode_text(system.target_tokenizer, text)]
    if len(context) + CONTINUATION > system.max_length:
        raise ConfigError(
            f"the text has {len(context) - 1} tokens; expected at most {system.max_length - CONTINUATION - 1}, because "
            f"{CONTINUATION} tokens are generated after it",
            hint="give a shorter text",
        )
    piece = Piece(0, context[:-1], [], "", start=context[-1], limit=CONTINUATION)
    next_token = continuation_function(system, context[:-1])
    return SearchSubject(f"The search for a continuation of '{text}'", text_decoder(system), piece, next_token)


def explain_search(predictor: PairPredictor | TextGenerator, text: str, config: SearchConfig) -> Explanation:
    """The search tree, recomputed without caches and compared with the result of the actual search."""
    refuse_empty(text)
    system = predictor.system
    if isinstance(predictor, TextGenerator):
        subject = continuation_search(predictor, text)
        config = config.model_copy(update={"min_length": MAX_SIZE})  # no end before the limit, as in generation
    else:
        subject = pair_search(predictor, text)
    decoder, piece = subject.decoder, subject.piece
    limit = decoder.limit(piece, config)
    start = decoder.start if piece.start is None else piece.start
    with torch.inference_mode():
        nodes, best = grow_tree(subject.next_token, config, limit, start=start, end=decoder.end)
        ((_, real),) = search_pieces(decoder, [piece], config)
    ours = [make_hypothesis(nodes, at) for at in best]
    same = [one.tokens for one in ours] == [one.tokens for one in real]
    difference = max(abs(one.score - other.score) for one, other in zip(ours, real, strict=True)) if same else float("inf")
    check = Check("each hypothesis and its score", difference, max(abs(one.score) for one in real), 1e-5)
    words = system.target_tokenizer.pieces([node.token for node in nodes])
    rows: list[list[Cell]] = [[system.target_tokenizer.decode(one.tokens), one.log_probability, one.score] for one in ours]
    names = [f"hypothesis {rank}" for rank in range(1, len(ours) + 1)]
    method = "Greedy search" if config.method == "greedy" else f"Beam search, beam size {config.beam}"
    stage = Stage(
        method,
        f"log P = sum_t ln p_t , score = {score_formula(config)}",
        [Matrix("result", names, ["sentence", "log P", "score"], rows)],
        "At each step all kept prefixes are expanded by one token, and the best expansions are kept, as many as the beam has "
        "free slots. p is the probability of a token given its prefix, log P the log-probability of all tokens so far.",
        checks=[check],
        tree=Tree(nodes, words, best),
    )
    return Explanation(subject.heading, f"At most {limit} tokens, including the end token.", [stage])


PENALTY = {"wu": "frac(log P, ((5 + n) / 6)^alpha)", "power": "frac(log P, n^alpha)"}


def score_formula(config: SearchConfig) -> str:
    """The score as a formula; a length penalty of 0 divides by 1."""
    if config.method != "beam" or not config.length_penalty:
        return "log P"
    return f"{PENALTY[config.penalty]} , alpha = {config.length_penalty:g}"


def next_token_function(system: System, ids: list[int]) -> NextTokenFn:
    """Log-probabilities of the next token, computed from source and prefix without a cache; ensembles average probabilities."""
    source, _ = source_tensors([ids], system.source_tokenizer.specials)
    source = source.to(system.device)

    def next_token(prefixes: list[list[int]]) -> Tensor:
        tokens = torch.tensor(prefixes, device=system.device)
        logs = []
        for model in system.models:
            state = model.start(source.expand(len(tokens), -1), None, room=0)
            logs.append(model.project(model.step(tokens, state).hidden[:, -1]).double().log_softmax(-1))
        return torch.stack(logs).exp().mean(0).log()  # (rows, vocab)

    return next_token


def continuation_function(system: System, context: list[int]) -> NextTokenFn:
    """Log-probabilities of the next token of a language model after context and prefix, computed without a cache."""
    before = torch.tensor([context], dtype=torch.long, device=system.device)  # (1, context)

    def next_token(prefixes: list[list[int]]) -> Tensor:
        tokens = torch.tensor(prefixes, device=system.device)  # (rows, prefix)
        given = torch.cat((before.expand(len(tokens), -1), tokens), dim=1)
        logs = [model.project(model.forced(None, None, given).hidden[:, -1]) for model in system.models]
        return torch.stack([one.double().log_softmax(-1) for one in logs]).exp().mean(0).log()  # (rows, vocab)

    return next_token


def explain_batch(
    translator: Translator, sources: Sequence[str], config: SearchConfig, targets: Sequence[str] | None
) -> Explanation:
    """targets: the reference translations; default: the model's own translations."""
    system = translator.system
    for text in (*sources, *(targets or ())):
        refuse_empty(text)
    translations = [one.text for one in translate(system, sources, config)] if targets is None else list(targets)
    if len(translations) != len(sources):
        raise ConfigError(f"{len(translations)} targets were given for {len(sources)} sentences; expected one for each")
    reader, writer = system.source_tokenizer, system.target_tokenizer
    ids = [(reader.encode(source), writer.encode(target)) for source, target in zip(sources, translations, strict=True)]
    pieces = [(reader.pieces(source), writer.pieces(target)) for source, target in ids]
    batch = prepare_batch(list(zip(sources, translations, strict=True)), pieces, ids, (reader.specials, writer.specials))
    return explain_preparation(batch, "Preparing a batch", "With the tokenizers of this run.")


Texts = Sequence[tuple[str, str]]
Sides = Sequence[tuple[list[str], list[str]]]
Ids = Sequence[tuple[list[int], list[int]]]


def prepare_batch(texts: Texts, pieces: Sides, ids: Ids, specials: tuple[Specials, Specials]) -> PreparedBatch:
    batch = collate([source for source, _ in ids], [target for _, target in ids], *specials)
    mask = torch.ones_like(batch.source, dtype=torch.bool) if batch.source_mask is None else batch.source_mask
    names = {role: id for role, id in specials[1]._asdict().items() if id is not None}
    return PreparedBatch(texts, pieces, ids, batch.source, mask, batch.target_in, batch.target_out, names)


VOCABULARY = {"<sos>": 0, "<unk>": 1, "<pad>": 3, "il": 5, "gatto": 8, "è": 12, "is": 16, "qui": 20, "cat": 23, "here": 31}
VOCABULARY |= {"the": 42, "black": 64, "<eos>": 99}
PAIRS = [("the cat is here", "il gatto è qui"), ("the zebra is black", "la zebra è nera"), ("cat", "gatto")]


def batch() -> Explanation:
    """An example with a vocabulary whose padding id is not 0."""
    specials = Specials(pad=3, start=0, end=99, unk=1)
    pieces = [(source.split(), target.split()) for source, target in PAIRS]
    ids = [tuple([VOCABULARY.get(word, specials.unk) for word in side] for side in pair) for pair in pieces]
    opening = "Three sentence pairs and a small vocabulary that lacks 'zebra', 'la' and 'nera'."
    prepared = prepare_batch(PAIRS, pieces, [(source, target) for source, target in ids], (specials, specials))
    return explain_preparation(prepared, "Preparing a batch", opening)


TOPICS: dict[str, tuple[str, Callable[[], Explanation]]] = {
    "look-up": ("attention as a soft lookup in a table of keys and values", lookup_example.look_up),
    "attention": ("queries, keys and values, scores, softmax and weighted sum", examples.attention),
    "masked": ("self-attention with a causal mask", examples.masked),
    "scaling": ("why scores are divided by the square root of the head dimension", lookup_example.scaling),
    "positions": ("sinusoidal positional encoding", positions.positions),
    "norms": ("layer and batch normalization, with the axis each averages over", norms.norms),
    "batch": ("from sentences to padded tensors and masks", batch),
    "loss": ("teacher forcing, cross-entropy, perplexity and label smoothing", losses.loss),
    "masking": ("masked language modeling: tokens chosen, masked and replaced", masking.masking),
    "hierarchical": ("words, sentences and document: two levels of attention pooling", hierarchical.hierarchical),
    "schedule": ("learning rate schedule: warm-up and decay", losses.schedule),
    "sampling": ("temperature, top-k and top-p", decoding.sampling),
    "search": ("greedy search, beam search as a tree, and length penalty", decoding.search),
}
