"""The decoding benchmark compares like with like: the peers have our weights and say what we say."""

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
from tiny import END, START, VOCAB, Pairs, logits_of, make_pairs, unsettle
from torch.nn import functional
from torch.testing import assert_close
from workshop import heed, write_recipe

from heedful.models.transformer import Transformer, TransformerConfig
from heedful.search import SearchConfig
from heedful.tasks.batches import pad, source_tensors
from heedful.text.specials import Specials

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
    return unsettle(Transformer(config, vocab, vocab)).eval()


def words(pairs: Pairs) -> list[list[int]]:
    """The sources without padding."""
    return [row[mask].tolist() for row, mask in zip(pairs.source, pairs.mask, strict=True)]


def said_by_us(model: Transformer, sources: list[list[int]], config: SearchConfig) -> list[list[list[int]]]:
    found = search_together(model, SPECIALS, sources, config, device=CPU)
    return [[one.tokens for one in hypotheses] for hypotheses in found]


def said_by(peer: str, model: Transformer, sources: list[list[int]], config: SearchConfig) -> list[list[list[int]]]:
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
    wanted = functional.pad(pairs.target, (0, 1), value=END)
    ours = logits.log_softmax(-1).gather(-1, wanted[..., None])[..., 0]  # (rows, time)
    sides = ([[str(token) for token in row] for row in side] for side in (words(pairs), pairs.target.tolist()))
    assert_close(torch.tensor([one.log_probs for one in theirs.score_batch(*sides)]), ours, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "changes", [{"tie": "output"}, {"position": "rotary"}, {"window": 3}, {"head_dim": 6}, {"activation": "swiglu"}], ids=str
)
def test_what_the_peers_cannot_be_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    for carry in (lambda model: for_hugging_face(model, SPECIALS), lambda model: for_ctranslate2(model, SPECIALS, tmp_path)):
        with pytest.raises(SystemExit, match="the peers have no such model"):
            carry(make(**changes))


@pytest.mark.parametrize("peer", PACKAGES)
@pytest.mark.parametrize("beam", [1, 4])
def test_a_peer_goes_on_as_we_do_until_it_is_stopped(peer: str, beam: int, pairs: Pairs) -> None:
    """The same beginnings are left; which of them is best depends on the end, which only we say."""
    model = make(vocab=200)
    model.target_embedding.weight.data[END] = 0.0
    config = decode.fixed(beam, 12).model_copy(update={"n_best": beam})
    ours, theirs = said_by_us(model, words(pairs), config), said_by(peer, model, words(pairs), config)
    assert [sorted(rows) for rows in theirs] == [sorted(rows) for rows in ours]
    assert {len(row) for rows in ours for row in rows} == {12} and len(ours) == 3


@pytest.fixture(scope="module")
def learned() -> Transformer:
    """It knows three sentences by heart, of 7, 3 and 5 words."""
    torch.manual_seed(0)
    model, pairs = make(), make_pairs()
    source, mask = source_tensors(words(pairs), SPECIALS)
    given, wanted = pad([[START, *row] for row in KNOWN], 0), pad([[*row, END] for row in KNOWN], 0)
    assert mask is not None
    adam = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        logits = logits_of(model, Pairs(source, mask, given))
        adam.zero_grad()
        torch.autograd.backward(functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=0))
        adam.step()
    return model


@pytest.mark.parametrize("method", ["greedy", "beam"])
@pytest.mark.parametrize(("peer", "penalty"), [("hf", 0.0), ("hf", 1.0), ("ct2", 0.0)])
def test_a_peer_ends_where_we_do(peer: str, penalty: float, method: Any, learned: Transformer, pairs: Pairs) -> None:
    """With a penalty CTranslate2 stops at the fourth end, however unlikely those were, and may miss the best."""
    judged: dict[str, Any] = {"penalty": "power", "length_penalty": penalty} if method == "beam" else {}
    config = SearchConfig(method=method, **judged)
    assert said_by_us(learned, words(pairs), config) == [[row] for row in KNOWN]
    assert said_by(peer, learned, words(pairs), config) == [[row] for row in KNOWN]


def test_a_peer_without_our_length_penalty_is_not_compared(learned: Transformer, pairs: Pairs) -> None:
    with pytest.raises(SystemExit, match="no length penalty 'wu'"):
        said_by("hf", learned, words(pairs), SearchConfig(penalty="wu"))


def test_blocks_alternate_and_the_first_call_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def system(name: str, first: float, later: float) -> Callable[[], int]:
        def call() -> int:
            calls.append(name)
            now[0] += first if calls.count(name) == 1 else later
            return calls.count(name)

        return call

    now = [0.0]
    monkeypatch.setattr("peers.laps.time.perf_counter", lambda: now[0])
    found = laps.alternate({"a": system("a", 5.0, 1.0), "b": system("b", 2.0, 4.0)}, blocks=3, least=0.0)
    assert calls == ["a", "b", *"ab", *"ba", *"ab"]  # the first calls, then every other block backwards
    assert found == {"a": (1.0, 5.0, {"b": [4.0] * 3}, 4), "b": (4.0, 2.0, {"a": [0.25] * 3}, 4)}


def test_a_system_that_ends_early_is_not_timed(pairs: Pairs) -> None:
    short = decode.exactly("hf", lambda sources, config: [[[5] * 63] for _ in sources], 64)
    with pytest.raises(SystemExit, match=r"said \[63\] tokens in 3 rows; expected 64"):
        short(words(pairs), 4)


def shifted(by: int) -> Callable[[int], int]:
    return lambda number: 10 // (number + by)


def test_a_system_in_a_process_of_its_own_answers_and_tells_its_errors() -> None:
    with in_processes({"one": partial(shifted, 1), "two": partial(shifted, 2)}) as systems:
        assert [systems["one"](4), systems["two"](3), systems["one"](0)] == [2, 2, 10]
        with pytest.raises(SystemExit, match="two: ZeroDivisionError"):
            systems["two"](-2)
        assert systems["two"](0) == 5, "it lives on"


def test_every_row_has_its_speed_and_its_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole program on a toy, with a run that knows nothing yet."""
    pytest.importorskip("transformers")
    monkeypatch.setattr(laps, "LEAST", 0.0)
    monkeypatch.setattr(decode, "TARGET", 8)
    monkeypatch.setitem(decode.PARTS, "cpu", decode.PARTS["cpu"]._replace(rows=[decode.Row(3, 2)]))
    recipe, run, output = write_recipe(tmp_path), tmp_path / "run", tmp_path / "decode.json"
    assert heed("train", recipe, "training.steps=2", "search.max_extra=2", "--run", run) == 0
    options = ["--size", "toy", "--blocks", "2", "--threads", "1", "--run", str(run), "--output", str(output)]
    decode.main(["--parts", "cpu,file", "--peers", "hf", *options])
    found = json.loads(output.read_text())
    rows = {(row["row"], row["system"]): row for row in found["rows"]}
    systems = {"heedful fp32", "heedful int8", "hf fp32"}
    assert rows.keys() == {(row, system) for row in ("3 x beam 2", "file on cpu") for system in systems}
    assert all(row["tokens_per_second"] > 0 and row["ratio"].keys() == systems - {row["system"]} for row in rows.values())
    plain = found["file"]["plain"]
    assert plain["compared"] == plain["same"] + plain["ties"] == found["file"]["sentences"] == 60


def test_the_interval_of_a_median_is_made_of_its_neighbors_in_rank() -> None:
    assert laps.interval([float(value) for value in reversed(range(41))]) == (14.0, 26.0)
    assert laps.interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
