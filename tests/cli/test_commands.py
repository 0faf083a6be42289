"""Every command on a tiny trained run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from workshop import heed, standard_input, write_recipe

from heedful.cli.output import format_bytes
from heedful.errors import ConfigError
from heedful.tasks.translation.predictor import Translator
from heedful.tasks.translation.report import differing_languages


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run trained for a few steps."""
    folder = tmp_path_factory.mktemp("trained")
    recipe = write_recipe(folder)
    schedule = ("training.schedule.learning_rate=1e-2", "training.schedule.warmup=10", "training.schedule.name=constant")
    assert heed("train", recipe, "training.steps=40", "training.save_every=10", *schedule, "--run", folder / "run") == 0
    return folder / "run"


def read_json(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def lines_of(run: Path, count: int) -> tuple[list[str], list[str]]:
    pairs = [line.split("\t") for line in (run.parent / "pairs.tsv").read_text().splitlines()[:count]]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_translate_reads_standard_input_and_equals_the_python_api(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sources, _ = lines_of(trained, 5)
    capsys.readouterr()
    with standard_input("\n".join([*sources, ""]).encode()):
        assert heed("translate", trained) == 0
    assert capsys.readouterr().out.splitlines() == Translator.load(trained).translate(sources)


def test_empty_input_yields_no_output(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty, (sources, _) = write(tmp_path / "empty.txt", []), lines_of(trained, 2)
    capsys.readouterr()
    with standard_input(b""):
        assert (heed("translate", trained, empty), heed("translate", trained)) == (0, 0)
    shown = capsys.readouterr()
    assert shown.out == shown.err == ""
    assert heed("translate", trained, empty, write(tmp_path / "in.txt", sources)) == 0
    assert capsys.readouterr().out.splitlines() == Translator.load(trained).translate(sources)


def test_translate_prints_one_json_object_per_line(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sources, _ = lines_of(trained, 4)
    capsys.readouterr()
    assert heed("translate", trained, write(tmp_path / "in.txt", sources), "-s", "n_best=2", "-s", "beam=3", "--json") == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [answer["source"] for answer in answers] == sources
    for answer in answers:
        assert len(answer["candidates"]) == 2
        assert answer["candidates"][0]["text"] == answer["translation"]
        assert answer["candidates"][0]["score"] >= answer["candidates"][1]["score"]


def test_the_score_of_translate_equals_that_of_score(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sources, _ = lines_of(trained, 6)
    source = write(tmp_path / "in.txt", sources)
    capsys.readouterr()
    assert heed("translate", trained, source, "--json") == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    target = write(tmp_path / "out.txt", [answer["translation"] for answer in answers])
    assert heed("score", trained, "--source", source, "--target", target, "--json") == 0
    pairs = read_json(capsys)["pairs"]
    assert len(pairs) == 6
    for answer, pair in zip(answers, pairs, strict=True):
        assert pair["log_probability"] == pytest.approx(answer["log_probability"], abs=1e-4)


def test_prefixes_are_forced_and_empty_lines_stay_empty(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "in.txt", ["w1 w2 w3", "", "w4 w5"])
    prefixes = write(tmp_path / "prefixes.txt", ["w9 w9", "", "w8"])
    capsys.readouterr()
    assert heed("translate", trained, source, "--prefixes", prefixes) == 0
    first, second, third = capsys.readouterr().out.split("\n")[:3]
    assert first.startswith("w9 w9") and second == "" and third.startswith("w8")


def test_translate_warns_of_unknown_words(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "in.txt", ["w1 w2", "w1 zebra, w2 gnu", "gnu zebra yak", "ibis"])
    assert heed("translate", trained, source) == 0
    message = "not in the model's vocabulary: zebra (line 2), gnu (line 2), yak (line 3) and 1 more"
    assert message in capsys.readouterr().err
    assert heed("translate", trained, write(tmp_path / "known.txt", ["w1 w2"])) == 0
    assert "vocabulary" not in capsys.readouterr().err


def test_evaluate_agrees_with_the_validation_of_training(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in metrics if line["kind"] == "valid"][-1]
    sources, references = lines_of(trained, 4)
    folder = trained.parent
    source, reference = write(folder / "four.src", sources), write(folder / "four.ref", references)
    capsys.readouterr()
    code = heed("evaluate", trained, "--source", source, "--reference", reference, "--bootstrap", "0",
                "--checkpoint", f"step-{last['step']}", "--json")  # fmt: skip
    assert code == 0
    assert read_json(capsys)["scores"]["bleu"]["value"] == pytest.approx(last["bleu"])
    assert heed("evaluate", trained, "--checkpoint", f"step-{last['step']}", "--json") == 0
    whole = read_json(capsys)
    assert whole["loss"] == pytest.approx(last["loss"])
    assert whole["scores"]["bleu"]["signature"].startswith("nrefs:1|bs:1000")


def test_lower_precisions_change_the_loss_only_slightly(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = {}
    for precision in ("fp32", "bf16", "int8"):
        capsys.readouterr()
        assert heed("evaluate", trained, "--precision", precision, "--metrics", "bleu", "--json") == 0
        found = read_json(capsys)
        assert found["precision"] == precision
        scores[precision] = found["loss"]
    assert scores["bf16"] == pytest.approx(scores["fp32"], rel=0.02) and scores["bf16"] != scores["fp32"]
    assert scores["int8"] == pytest.approx(scores["fp32"], rel=0.02) and scores["int8"] != scores["fp32"]
    assert heed("evaluate", trained, "--precision", "int9") == 2
    assert "did you mean 'int8'?" in capsys.readouterr().err


def test_evaluate_against_itself_finds_no_difference(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert heed("evaluate", trained, "--against", trained, "--metrics", "bleu", "--lowercase", "--json") == 0
    found = read_json(capsys)
    comparison = found["comparison"]["bleu"]
    assert found["against"] == found["checkpoint"]
    assert "case:lc" in comparison["system"]["signature"]
    assert comparison["difference"] == 0
    assert comparison["p_randomization"] == 1
    assert comparison["verdict"] == "no significant difference at 0.05"
    assert heed("evaluate", trained, "--against", trained, "--metrics", "bleu") == 0
    shown = capsys.readouterr().out
    assert f"against {found['checkpoint']}" in shown
    assert "(paired bootstrap, one-sided)" in shown and "(approximate randomization, two-sided)" in shown
    assert shown.splitlines()[-1] == "verdict by approximate randomization: bleu no significant difference at 0.05"


def test_an_ensemble_of_a_run_with_itself_equals_the_run(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "in.txt", lines_of(trained, 5)[0])
    capsys.readouterr()
    assert heed("translate", trained, source) == 0
    alone = capsys.readouterr().out
    assert heed("translate", trained, source, "--with", trained) == 0
    assert capsys.readouterr().out == alone
    assert len(alone.splitlines()) == 5


def test_average_is_the_mean_and_can_be_used(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from heedful.training.checkpoint import load_tensors

    assert heed("average", trained, "--last", "2", "--json") == 0
    names = read_json(capsys)["of"]
    assert len(names) == 2
    parts = [load_tensors(trained / "checkpoints" / name, "model") for name in names]
    mean = load_tensors(trained / "checkpoints" / "average", "model")
    for name, value in mean.items():
        assert value.allclose((parts[0][name] + parts[1][name]) / 2, atol=1e-6)
    assert Translator.load(trained, "average").translate(["w1 w2"])


def test_sweep_trains_the_grid_and_prints_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = write_recipe(tmp_path)
    grid = ("model.norm=pre,post", "training.steps=2,3")
    assert heed("sweep", recipe, *grid, "--run", tmp_path / "sweep", "--json") == 0
    rows = read_json(capsys)["runs"]
    assert [(row["model.norm"], row["training.steps"]) for row in rows] == [
        ("pre", 2), ("pre", 3), ("post", 2), ("post", 3),
    ]  # fmt: skip
    assert all(row["loss"] > 0 for row in rows)
    assert len(list((tmp_path / "sweep").glob("*/checkpoints"))) == 4


def test_plan_reports_sizes_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    assert heed("train", recipe, "--plan", "--run", run, "--json") == 0
    plan = read_json(capsys)
    assert plan["tokens_per_epoch"] == sum(
        len(line.split("\t")[1].split()) + 1 for line in (tmp_path / "pairs.tsv").read_text().splitlines()
    )
    assert plan["parameters"] > 1000 and plan["training_seconds"] > 0 and plan["peak_memory_bytes"] > 0
    assert heed("train", recipe, "training.steps=1000000", "training.minutes=0.05", "--plan", "--run", run, "--json") == 0
    limited = read_json(capsys)
    assert limited["steps"] < 1_000_000 and 0 < limited["training_seconds"] <= 3.0
    assert not run.exists()


def test_config_show_reports_the_origin_of_each_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = write_recipe(tmp_path)
    assert heed("config", "show", recipe, "model.dim=32", "--json") == 0
    shown = read_json(capsys)
    assert shown["config"]["model"]["dim"] == 32
    assert shown["origins"]["model.dim"] == "command line"
    assert shown["origins"]["model.layers"] == "file recipe.toml:13"
    assert shown["origins"]["model.position"] == "default"


def test_config_diff_and_schema(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert heed("config", "diff", trained.parent / "recipe.toml", trained, "--json") == 0
    found = {one["key"]: (one["first"], one["second"]) for one in read_json(capsys)["differences"]}
    assert found["training.steps"] == (6, 40)
    assert heed("config", "schema") == 0
    assert "training" in read_json(capsys)["properties"]


def test_data_check_reports_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a.en", [*(f"one {number}" for number in range(39)), ""])
    write(tmp_path / "a.it", [*(f"uno {number}" for number in range(39)), "tre"])
    assert heed("data", "check", tmp_path / "a.en", tmp_path / "a.it", "--json") == 0
    (corpus,) = read_json(capsys)["corpora"]
    assert (corpus["lines"], corpus["kept"]) == (40, 39)
    assert corpus["problems"][0]["examples"][0]["place"] == f"{tmp_path / 'a.en'} line 40"


def test_data_list_recipes_and_doctor_print_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert heed("data", "list", "--json") == 0
    assert {"multi30k", "wikitext2"} <= {one["name"] for one in read_json(capsys)["corpora"]}
    assert heed("recipes", "--json") == 0
    assert {"demo", "multi30k-en-de"} <= {one["name"] for one in read_json(capsys)["recipes"]}
    assert heed("doctor", "--json") == 0
    assert read_json(capsys)["torch"]


def test_memory_is_shown_in_gib_or_mib(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert heed("doctor") == 0
    doctor = capsys.readouterr().out
    assert re.search(r"^memory +[\d,]+\.\d [GM]iB$", doctor, re.MULTILINE)
    assert re.search(r"^disk free +[\d,]+\.\d [GM]iB$", doctor, re.MULTILINE)
    assert heed("train", write_recipe(tmp_path), "--plan", "--run", tmp_path / "run") == 0
    plan = capsys.readouterr().out
    assert re.search(r"^peak memory +[\d,]+\.\d [GM]iB$", plan, re.MULTILINE)
    assert not re.search(r"\bbytes\b", doctor + plan)
    assert (format_bytes(25274793984), format_bytes(300 * 2**20)) == ("23.5 GiB", "300.0 MiB")


def test_an_unknown_command_and_an_unknown_run_name_the_nearest_one(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert heed("trian") == 2
    assert "Did you mean 'train'?" in capsys.readouterr().err
    assert heed("translate", trained.parent / "rum", "--json") == 4
    output = capsys.readouterr()
    assert output.err == f"error: run folder {trained.parent / 'rum'} does not exist\n\nhint: did you mean {trained}?\n"
    assert json.loads(output.out)["exit_code"] == 4


def test_an_unknown_search_option_names_the_nearest_one(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert heed("translate", trained, "-s", "beem=3") == 2
    assert capsys.readouterr().err == "error: command line: beem: unknown key\n\nhint: did you mean 'beam'?\n"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.31 GiB. GPU 0 has 2 MiB free."),
            "Tried to allocate 1.31 GiB",
        ),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "the machine's memory is full"),
        (MemoryError(), "the machine's memory is full"),
    ],
)
def test_full_memory_is_not_reported_as_a_bug(
    error: Exception, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("heedful.cli.invoke", fails)
    assert heed("train", "demo", "--json") == 6
    shown = capsys.readouterr()
    assert message in shown.err and "bug" not in shown.err and "Traceback" not in shown.err
    assert json.loads(shown.out)["exit_code"] == 6


@pytest.mark.parametrize("kind", [torch.AcceleratorError, RuntimeError])
def test_a_failing_gpu_is_not_reported_as_a_bug(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise kind("CUDA error: uncorrectable ECC error encountered\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1")

    monkeypatch.setattr("heedful.cli.invoke", fails)
    assert heed("train", "demo") == 75
    first, *_, hint = capsys.readouterr().err.splitlines()
    assert first == "stopped: the GPU failed: uncorrectable ECC error encountered"
    assert hint.startswith("hint: run the same command again: training continues from its last checkpoint")


def test_help_imports_neither_torch_nor_numpy() -> None:
    program = (
        "import sys, heedful.cli\n"
        "assert heedful.cli.run(['--help']) == 0 and heedful.cli.run(['train', '--help']) == 0\n"
        "loaded = {'torch', 'numpy', 'sacrebleu', 'tokenizers'} & set(sys.modules)\n"
        "assert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_another_search_method_drops_the_options_of_the_default_one(trained: Path, tmp_path: Path) -> None:
    import shutil

    from heedful.training.facts import replace_config

    run = tmp_path / "run"
    shutil.copytree(trained, run, symlinks=True)
    config = (run / "config.toml").read_text()
    assert "beam = 4" in config
    replace_config(run, config.replace("beam = 4", "beam = 7"))
    translator = Translator.load(run)
    assert translator.search_config(["n_best=7"]).beam == translator.search_config(['method="beam"']).beam == 7
    assert translator.search_config(["method=greedy"]).method == "greedy"
    assert translator.search_config(["method=sample", "seed=3"]).seed == 3
    assert translator.search_config(["temperature=0.5"]).method == "sample"  # an option of only one method implies that method
    assert translator.translate(["w1 w2"], method="greedy") == translator.translate(["w1 w2"], beam=1)
    with pytest.raises(ConfigError, match="did you mean 'beam'"):
        translator.translate(["w1"], baem=2)
    with pytest.raises(ConfigError, match="expected a list of texts"):
        translator.translate("w1 w2")


@pytest.mark.parametrize(("byte", "reason"), [(b"\xff", "byte 2 is not UTF-8"), (b"\0", "the text contains a NUL byte")])
def test_lines_before_an_invalid_one_are_translated(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], byte: bytes, reason: str
) -> None:
    (tmp_path / "in.txt").write_bytes(b"w1 w2\nw3\nw" + byte + b"4\nw5\n")
    capsys.readouterr()
    assert heed("translate", trained, tmp_path / "in.txt") == 3
    output = capsys.readouterr()
    assert len(output.out.splitlines()) == 2
    assert output.err.startswith(f"error: {tmp_path / 'in.txt'} line 3: {reason}")


def test_an_output_that_cannot_be_written_is_refused_before_the_work(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert heed("evaluate", trained, "--output", trained) == 4
    assert "cannot be written: Is a directory" in capsys.readouterr().err


def test_a_damaged_run_folder_is_a_checkpoint_error_with_a_hint(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import shutil

    run = tmp_path / "run"
    shutil.copytree(trained, run, symlinks=True)
    (run / "tokenizer.json").unlink()
    capsys.readouterr()
    assert heed("translate", run) == 4
    message = capsys.readouterr().err
    assert message.startswith(f"error: run folder {run} is damaged: ") and "tokenizer.json" in message
    assert message.endswith("hint: restore the file from a backup, or train the run again\n")


def test_every_listing_is_printed_as_text_too(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    for command in (
        ("data", "list"),
        ("recipes",),
        ("doctor",),
        ("config", "show", trained),
        ("config", "diff", "demo", trained),
    ):
        assert heed(*command) == 0
        assert len(capsys.readouterr().out.splitlines()) > 2, command


def test_a_baseline_for_other_languages_is_a_warning(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def data(*languages: str) -> SimpleNamespace:
        return SimpleNamespace(languages=languages or None)

    assert differing_languages(data("en", "de"), data("en", "de")) == []
    assert differing_languages(data("en", "de"), data()) == []
    (warning,) = differing_languages(data("en", "de"), data("de", "en"))
    assert "the baseline translates from de to en, not from en to de" in warning
    monkeypatch.setattr("heedful.tasks.translation.report.differing_languages", lambda *_: [warning])
    assert heed("evaluate", trained, "--against", trained, "--metrics", "bleu", "--json") == 0
    shown = capsys.readouterr()
    assert warning in shown.err and "warning" not in shown.out
