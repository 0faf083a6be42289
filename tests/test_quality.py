"""The quality benchmarks: peers, side-by-side runs, and the reported results."""

from __future__ import annotations

import json
import random
import shutil
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import quality
import report
import torch
from headers import ON_A_GPU, changes, is_measured, measured, with_header
from peers.decoding import decode
from peers.models import Size, marian_model
from peers.translation import SCHEDULES, WARMUP, Options, Peer, Trained, batches, choose, encoded, train
from quality_rows import quality_rows
from workshop import WORDS, write_recipe

from heedful.data.store import JoinedStore
from heedful.runs import auto
from heedful.runs.build import make_tokenizers
from heedful.runs.config import read_run
from heedful.runs.recipes import MEASURED, all_recipes, recipe_folder, settings_digest
from heedful.tasks.translation.data import Examples, TranslationData
from heedful.text.tokenizer import Tokenizer, TokenizerConfig
from heedful.text.train import train_tokenizer

pytestmark = pytest.mark.benchmark

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(TokenizerConfig(kind="words", min_frequency=1), [" ".join(WORDS)])


def tiny(tokenizer: Tokenizer, dropout: float = 0.0) -> torch.nn.Module:
    torch.manual_seed(3)
    return marian_model(Size(32, 1, 2, 64, len(tokenizer), dropout)).eval()


def sentences(count: int) -> list[str]:
    draw = random.Random(5)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 9))) for _ in range(count)]


class Echo(torch.nn.Module):
    """Returns its input as `generate` would: a start token, the tokens, and padding after the end token."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def generate(self, source: torch.Tensor, attention_mask: torch.Tensor, generation_config: Any) -> torch.Tensor:
        assert attention_mask.equal((source != generation_config.pad_token_id).long())
        assert generation_config.max_new_tokens == source.shape[1] + 4 and generation_config.num_beams == 2
        start = torch.full((len(source), 1), generation_config.decoder_start_token_id)
        return torch.cat((start, source), dim=1)


def test_a_peer_translates_in_the_order_of_the_sources(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peers.decoding.ROWS", 3)
    sources = sentences(11)
    assert decode(Echo(), tokenizer, sources, beam=2, penalty=1.0, extra=4) == sources


def test_a_peers_validation_loss_is_the_mean_over_tokens_for_any_batch_size(tokenizer: Tokenizer) -> None:
    peer = Peer(tiny(tokenizer), tokenizer.specials.pad, CPU)
    examples = Examples(sentences(20), sentences(20)[::-1])
    total = count = 0.0
    for source, target in zip(*map(tokenizer.encode_many, examples), strict=True):  # one sentence at a time, no padding
        target_in, target_out = [tokenizer.specials.start, *target], [*target, tokenizer.specials.end]
        ids = torch.tensor([[*source, tokenizer.specials.end]])
        logits = peer.model.eval()(input_ids=ids, decoder_input_ids=torch.tensor([target_in])).logits
        total -= float(logits.log_softmax(-1)[0, range(len(target_out)), target_out].detach().sum())
        count += len(target_out)
    for budget in (8, 64, 4096):
        assert peer.validate(list(encoded(examples, tokenizer, budget))) == pytest.approx(total / count, rel=1e-5)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_learning_rate_peaks_at_the_end_of_warm_up_and_then_decays(name: str) -> None:
    rates = [SCHEDULES[name](percent / 100) for percent in range(101)]
    assert rates[0] == 0 and max(rates) == pytest.approx(1) == rates[round(100 * WARMUP)]
    after = rates[round(100 * WARMUP) :]
    assert all(rate > following for rate, following in pairwise(after))


def test_a_peer_trains_until_its_time_limit(tmp_path: Path) -> None:
    config = read_run(write_recipe(tmp_path)).config
    data = TranslationData(config)
    tokenizers = make_tokenizers(config, tmp_path, data)
    corpora = data.prepare(tokenizers, data.check())
    assert isinstance(corpora.train, JoinedStore)
    options = Options(seconds=2.0, rate=3e-3, schedule="linear", dropout=0.0, batch_tokens=256, beam=2, seed=1)
    peer = Peer(tiny(tokenizers[0]), tokenizers[0].specials.pad, CPU)
    valid = list(encoded(corpora.valid, tokenizers[0], 256))
    before, started = peer.validate(valid), time.monotonic()
    trained = train(peer, batches(corpora.train, tokenizers[0], options, False), valid, options)
    assert 2.0 <= trained.seconds <= time.monotonic() - started < 6.0
    assert trained.updates > 5 and trained.candidates["last"].loss < before - 0.1


def test_weights_and_penalty_are_chosen_by_validation_bleu(tokenizer: Tokenizer) -> None:
    peer = Peer(tiny(tokenizer), tokenizer.specials.pad, CPU)
    first, second = peer.copy(1.0), peer.copy(2.0)
    for value in second.state.values():
        value += 1
    text = "a b c d e f g"
    outputs = {("last", 1.0): "a b c d x f g", ("last", 1.4): text}

    def translate(sources: list[str], penalty: float) -> list[str]:
        loaded = peer.model.state_dict()
        name = "last" if all(torch.equal(loaded[key], value) for key, value in second.state.items()) else "best"
        return [outputs.get((name, penalty), "x y z")] * len(sources)

    trained = Trained({"best": first, "last": second}, 1, 1, 1.0, 1.0)
    chosen, tried = choose(peer, trained, translate, Examples([text] * 3, [text] * 3))
    assert (chosen.weights, chosen.penalty) == ("last", 1.4) and chosen.bleu == pytest.approx(100) and len(tried) == 4


def result(bleu: float, **more: Any) -> dict[str, Any]:
    scores = {name: {"value": bleu, "signature": "s"} for name in ("bleu", "chrf")}
    lowercased = {name: {"value": bleu + 1, "signature": "s"} for name in ("bleu", "chrf")}
    found = {"recipe": "news-en-de", "overrides": ["seed=1", "a=b"], "scores": scores, "lowercased": lowercased}
    return found | {"train_seconds": 120, "machine": "a machine", "date": "2026-01-02"} | more


def test_results_are_grouped_by_name_and_the_peer_is_chosen_by_validation(tmp_path: Path) -> None:
    assert quality_rows(tmp_path / "nowhere") == []
    files = {
        "news-en-de-1": result(10.0, system="heedful"),
        "news-en-de-2": result(12.0),
        "news-en-de-hf1": result(9.0, system="hf", valid={"bleu": 8.0}),
        "news-en-de-hf2": result(7.0, system="hf", valid={"bleu": 8.5}),
        "news-de-en-hf": result(7.0, system="hf", valid={"bleu": 8.5}),
    }
    for name, content in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    (row,) = quality_rows(tmp_path)
    assert row.name == "news-en-de" and len(row.seeds) == 2 and row.peer == files["news-en-de-hf2"]
    lines = measured(row, row.seeds)
    assert list(lines) == list(MEASURED)
    assert lines["result"].startswith("11.00 BLEU, 12.00 lowercased, mean of 2 seeds") and "7.00" in lines["result"]
    assert lines["minutes"] == "2.0"


RECIPE_OF_A_GPU = "[training]\nsteps = 100\ninit = 'runs/language-books'\n\n[data]\npad_to_multiple_of = 12\n"


@pytest.mark.parametrize(
    ("overrides", "changed"),
    [
        (["seed=3", "training.precision=bf16", "training.cuda_graphs=true", "data.pad_to_multiple_of=12"], []),
        (["training.steps=100", "training.init=books"], []),
        (["training.precision=fp32"], ["training.precision=fp32"]),
        (["data.pad_to_multiple_of=16"], ["data.pad_to_multiple_of=16"]),
        (['training.init=""', "model.dim=8"], ['training.init=""', "model.dim=8"]),
    ],
)
def test_a_result_with_overrides_that_change_nothing_is_one_of_the_recipe(
    overrides: list[str], changed: list[str], tmp_path: Path
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE_OF_A_GPU)
    found = {"overrides": overrides, "machine": "NVIDIA H200", "settings": settings_digest(recipe)}
    assert changes(found, recipe) == changed
    assert is_measured(found, recipe) is not bool(changed)
    assert not is_measured(found | {"settings": "another"}, recipe)


def test_a_time_limit_changes_nothing_if_all_steps_were_done(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE_OF_A_GPU)
    found = {"overrides": ["training.minutes=2"], "machine": "NVIDIA H200"}
    for steps, neutral in ((100, True), (99, False)):
        assert is_measured(found | {"steps": steps}, recipe) is neutral
    for finished in (True, False):
        assert is_measured(found | {"finished": finished}, recipe) is finished


def test_precision_on_a_cpu_is_a_change(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE_OF_A_GPU)
    found = {"overrides": ["training.precision=bf16", "training.cuda_graphs=false"], "machine": "Linux x86_64, 2 cores"}
    assert changes(found, recipe) == ["training.precision=bf16"]


def test_the_values_on_a_gpu_are_those_that_auto_becomes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "multiplies_bf16", lambda device: True)
    resolved = auto.resolve(read_run(None, ["data.builtin=true"]).config, torch.device("cuda"))
    assert {path: auto.value_of(resolved, path) for path in auto.OFF} == ON_A_GPU


def test_the_headers_of_all_recipes_are_those_of_the_stored_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: path.read_text() for name, path in all_recipes().items()}
    shutil.copytree(recipe_folder(), tmp_path / "recipes")
    monkeypatch.setattr("heedful.runs.recipes.recipe_folder", lambda: tmp_path / "recipes")
    messages = [*report.update_headers()]
    assert len(messages) > 25 and not [line for line in messages if " 0 of " in line or "other settings" in line]
    assert {name: path.read_text() for name, path in all_recipes().items()} == before


def test_a_header_has_the_measured_lines_once_and_none_without_results() -> None:
    recipe = "# purpose: p\n# on a CPU: x=1\n\n[data]\n# result: a comment inside\n"
    once = with_header(recipe, {"result": "1 BLEU", "date": "today"})
    assert once == "# purpose: p\n# result: 1 BLEU\n# date: today\n# on a CPU: x=1\n\n[data]\n# result: a comment inside\n"
    assert with_header(once, {"result": "2 BLEU"}) == recipe.replace("p\n#", "p\n# result: 2 BLEU\n#", 1)
    assert with_header(once, {}) == recipe


def test_comments_do_not_change_the_digest_of_a_recipe(tmp_path: Path) -> None:
    first, second = tmp_path / "a.toml", tmp_path / "b.toml"
    first.write_text("# purpose: p\nseed = 1\n")
    second.write_text("seed = 1  # as always\n")
    assert settings_digest(first) == settings_digest(second)
    second.write_text("seed = 2\n")
    assert settings_digest(first) != settings_digest(second)


PROGRAM = """
import signal, sys, time
if sys.argv[1] == "polite":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
else:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("started", flush=True)
time.sleep(60)
"""


def test_a_process_over_its_time_limit_is_terminated_and_then_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sleeper.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    started = time.monotonic()
    code, output = quality.call(["sleeper", "polite"], tmp_path / "log", quality.Clock(started + 1.5, started + 20))
    assert (code, output) == (75, "started\n")
    now = time.monotonic()
    with pytest.raises(quality.Failed, match="time limit was reached"):
        quality.call(["sleeper", "stubborn"], tmp_path / "log", quality.Clock(now + 1, now + 2))
    assert time.monotonic() - started < 20


def test_a_run_is_trained_scored_and_written_and_a_failed_one_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = write_recipe(tmp_path)
    jobs = ["--run", f"good-a-b-1 {recipe} seed=1", "--run", f"bad-a-b-1 {recipe} seed=none"]
    assert quality.main([str(tmp_path / "out"), *jobs, "--limit", "100", "--also", "training.steps=3"]) == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["good-a-b-1.json"]
    (row,) = quality_rows(tmp_path / "out")
    (measurement,) = row.seeds
    assert (
        measurement["overrides"] == ["seed=1", "training.steps=3"]
        and measurement["finished"]
        and measurement["sentences"] == 60
    )
    assert measurement["settings"] == settings_digest(recipe) and measurement["validations"][-1]["step"] == 3
    assert measurement["lowercased"]["bleu"]["value"] == pytest.approx(
        measurement["scores"]["bleu"]["value"]
    )  # the words have no case
    output = capsys.readouterr().out
    assert "bad-a-b-1: no result" in output and "seed" in output
