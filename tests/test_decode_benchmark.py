"""The decoding benchmark is fair: the peers have our weights and generate the same tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import decode
import pytest
import torch
from peers import laps
from peers.decoders import DECODERS, search_together
from peers.processes import in_processes
from peers.weights import for_ctranslate2, for_hugging_face
from tiny import END, START, VOCAB, Pairs, logits_of, make_pairs, perturb
from torch.nn import functional
from torch.testing import assert_close
from workshop import heed, write_recipe

from heedful.models.transformer import Transformer, TransformerConfig
from heedful.search import SearchConfig
from heedful.tasks.batches import pad, source_tensors
from heedful.text.specials import Specials

pytestmark = pytest.mark.benchmark

SPECIALS = Specials(0, START, END, 3)
CPU = torch.device("cpu")
SHAPES: list[dict[str, Any]] = [
    {"norm": "post"},
    {"norm": "pre"},
    {"norm": "pre", "position": "learned", "max_positions": 40, "scale_embeddings": False, "activation": "gelu"},
    {"norm": "post", "layers": 3, "decoder_layers": 1, "activation": "gelu"},
]
KNOWN = [[4, 5, 6, 7, 8, 9, 10], [9, 8, 4], [10, 10, 5, 6, 4]]
PACKAGES = decode.PACKAGES


def make(vocab: int = VOCAB, **changes: Any) -> Transformer:
    config = TransformerConfig(**({"dim": 16, "layers": 2, "heads": 2, "feed_forward": 32, "dropout": 0.0} | changes))
    return perturb(Transformer(config, vocab, vocab)).eval()


def words(pairs: Pairs) -> list[list[int]]:
    """The sources without padding."""
    return [row[mask].tolist() for row, mask in zip(pairs.source, pairs.mask, strict=True)]


def decode_ours(model: Transformer, sources: list[list[int]], config: SearchConfig) -> list[list[list[int]]]:
    results = search_together(model, SPECIALS, sources, config, device=CPU)
    return [[one.tokens for one in hypotheses] for hypotheses in results]


def decode_peer(peer: str, model: Transformer, sources: list[list[int]], config: SearchConfig) -> list[list[list[int]]]:
    pytest.importorskip(PACKAGES[peer])
    return DECODERS[peer](model, SPECIALS, "fp32", CPU)(sources, config)


@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_hugging_face_has_our_logits(changes: dict[str, Any], pairs: Pairs) -> None:
    pytest.importorskip("transformers")
    model = make(**changes)
    theirs = for_hugging_face(model, SPECIALS)
    with torch.inference_mode():
        expected = theirs(input_ids=pairs.source, attention_mask=pairs.mask.long(), decoder_input_ids=pairs.target).logits
        assert_close(logits_of(model, pairs), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_ctranslate2_has_our_probabilities(changes: dict[str, Any], pairs: Pairs, tmp_path: Path) -> None:
    library = pytest.importorskip("ctranslate2")
    model = make(**changes)
    theirs = library.Translator(str(for_ctranslate2(model, SPECIALS, tmp_path)), compute_type="float32", intra_threads=1)
    with torch.inference_mode():
        logits = logits_of(model, pairs._replace(target=functional.pad(pairs.target, (1, 0), value=START)))
    target_out = functional.pad(pairs.target, (0, 1), value=END)
    ours = logits.log_softmax(-1).gather(-1, target_out[..., None])[..., 0]  # (rows, time)
    sides = ([[str(token) for token in row] for row in side] for side in (words(pairs), pairs.target.tolist()))
    assert_close(torch.tensor([one.log_probs for one in theirs.score_batch(*sides)]), ours, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "changes", [{"tie": "output"}, {"position": "rotary"}, {"window": 3}, {"head_dim": 6}, {"activation": "swiglu"}], ids=str
)
def test_models_that_the_peers_cannot_represent_are_errors(changes: dict[str, Any], tmp_path: Path) -> None:
    for carry in (lambda model: for_hugging_face(model, SPECIALS), lambda model: for_ctranslate2(model, SPECIALS, tmp_path)):
        with pytest.raises(SystemExit, match="the peers cannot represent this model"):
            carry(make(**changes))


@pytest.mark.parametrize("peer", PACKAGES)
@pytest.mark.parametrize("beam", [1, 4])
def test_a_peer_generates_the_same_prefixes_until_the_length_limit(peer: str, beam: int, pairs: Pairs) -> None:
    """The same prefixes remain; which of them is best depends on the end token, which only our search adds."""
    model = make(vocab=200)
    model.embedding.target.weight.data[END] = 0.0
    config = decode.fixed(beam, 12).model_copy(update={"n_best": beam})
    ours, theirs = decode_ours(model, words(pairs), config), decode_peer(peer, model, words(pairs), config)
    assert [sorted(rows) for rows in theirs] == [sorted(rows) for rows in ours]
    assert {len(row) for rows in ours for row in rows} == {12} and len(ours) == 3


@pytest.fixture(scope="module")
def learned() -> Transformer:
    """A model trained to memorize three sentences of 7, 3 and 5 words."""
    torch.manual_seed(0)
    model, pairs = make(), make_pairs()
    source, mask = source_tensors(words(pairs), SPECIALS)
    target_in, target_out = pad([[START, *row] for row in KNOWN], 0), pad([[*row, END] for row in KNOWN], 0)
    assert mask is not None
    adam = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        logits = logits_of(model, Pairs(source, mask, target_in))
        adam.zero_grad()
        torch.autograd.backward(functional.cross_entropy(logits.flatten(0, 1), target_out.flatten(), ignore_index=0))
        adam.step()
    return model


@pytest.mark.parametrize("method", ["greedy", "beam"])
@pytest.mark.parametrize(("peer", "penalty"), [("hf", 0.0), ("hf", 1.0), ("ct2", 0.0)])
def test_a_peer_ends_at_the_same_token(peer: str, penalty: float, method: Any, learned: Transformer, pairs: Pairs) -> None:
    """With a penalty CTranslate2 stops at the fourth end token, however improbable, and may miss the best hypothesis."""
    options: dict[str, Any] = {"penalty": "power", "length_penalty": penalty} if method == "beam" else {}
    config = SearchConfig(method=method, **options)
    assert decode_ours(learned, words(pairs), config) == [[row] for row in KNOWN]
    assert decode_peer(peer, learned, words(pairs), config) == [[row] for row in KNOWN]


def test_an_unsupported_length_penalty_is_an_error(learned: Transformer, pairs: Pairs) -> None:
    with pytest.raises(SystemExit, match="no length penalty 'wu'"):
        decode_peer("hf", learned, words(pairs), SearchConfig(penalty="wu"))


def test_blocks_alternate_and_the_first_call_is_reported_separately(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def system(name: str, first: float, later: float) -> Callable[[], int]:
        def call() -> int:
            calls.append(name)
            now[0] += first if calls.count(name) == 1 else later
            return calls.count(name)

        return call

    now = [0.0]
    monkeypatch.setattr("peers.laps.time.perf_counter", lambda: now[0])
    timings = laps.alternate({"a": system("a", 5.0, 1.0), "b": system("b", 2.0, 4.0)}, blocks=3, least=0.0)
    assert calls == ["a", "b", *"ab", *"ba", *"ab"]  # the first calls, then every other block in reverse
    assert timings == {"a": (1.0, 5.0, {"b": [4.0] * 3}, 4), "b": (4.0, 2.0, {"a": [0.25] * 3}, 4)}


def test_a_system_that_ends_early_is_an_error(pairs: Pairs) -> None:
    short = decode.exactly("hf", lambda sources, config: [[[5] * 63] for _ in sources], 64)
    with pytest.raises(SystemExit, match=r"generated \[63\] tokens in 3 rows; expected 64"):
        short(words(pairs), 4)


def shifted(by: int) -> Callable[[int], int]:
    return lambda number: 10 // (number + by)


def test_a_system_in_another_process_returns_results_and_errors() -> None:
    with in_processes({"one": partial(shifted, 1), "two": partial(shifted, 2)}) as systems:
        assert [systems["one"](4), systems["two"](3), systems["one"](0)] == [2, 2, 10]
        with pytest.raises(SystemExit, match="two: ZeroDivisionError"):
            systems["two"](-2)
        assert systems["two"](0) == 5, "it survives the error"


def test_every_row_has_a_speed_and_ratios(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole program on a toy model, with an untrained run."""
    pytest.importorskip("transformers")
    monkeypatch.setattr(laps, "LEAST", 0.0)
    monkeypatch.setattr(decode, "TARGET", 8)
    monkeypatch.setitem(decode.PARTS, "cpu", decode.PARTS["cpu"]._replace(rows=[decode.Row(3, 2)]))
    recipe, run, output = write_recipe(tmp_path), tmp_path / "run", tmp_path / "decode.json"
    assert heed("train", recipe, "training.steps=2", "search.max_extra=2", "--run", run) == 0
    options = ["--size", "toy", "--blocks", "2", "--threads", "1", "--run", str(run), "--output", str(output)]
    decode.main(["--parts", "cpu,file", "--peers", "hf", *options])
    results = json.loads(output.read_text())
    rows = {(row["row"], row["system"]): row for row in results["rows"]}
    systems = {"heedful fp32", "heedful int8", "hf fp32"}
    assert rows.keys() == {(row, system) for row in ("3 x beam 2", "file on cpu") for system in systems}
    assert all(row["tokens_per_second"] > 0 and row["ratio"].keys() == systems - {row["system"]} for row in rows.values())
    plain = results["file"]["plain"]
    assert plain["compared"] == plain["same"] + plain["ties"] == results["file"]["sentences"] == 60


def test_the_confidence_interval_of_a_median() -> None:
    assert laps.interval([float(value) for value in reversed(range(41))]) == (14.0, 26.0)
    assert laps.interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
