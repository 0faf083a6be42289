"""Loading a run folder: every file is compared with its fingerprint, and an altered folder is an error."""

from __future__ import annotations

import json
import logging
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from workshop import heed, write_recipe

from heedful.errors import CheckpointError
from heedful.storage.writing import replace_text
from heedful.tasks.translation.predictor import Translator
from heedful.training import checkpoint, facts, retention
from heedful.training.facts import check_files, read_facts, replace_config

LINE = ["w1 w2 w3"]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that differ in their seed."""
    folder = tmp_path_factory.mktemp("loading")
    recipe = write_recipe(folder)
    for seed in (1, 2):
        options = (f"seed={seed}", "training.steps=4", "training.validate_every=4")
        assert heed("train", recipe, *options, "--run", folder / f"run{seed}") == 0
    return folder


@pytest.fixture
def run(workshop: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    return Path(shutil.copytree(workshop / "run1", tmp_path / "run", symlinks=True))


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def remove_checksums(run: Path) -> None:
    """Turn the folder into one of a version that stored no checksums."""
    known = read_facts(run)
    folders = list((run / "checkpoints").glob("step-*"))
    states = [checkpoint.load(folder) for folder in folders]
    (run / "run.json").write_text(json.dumps({"format": 1, "data": known["data"], "environment": known["environment"]}))
    for folder, (tensors, state) in zip(folders, states, strict=True):
        shutil.rmtree(folder)
        checkpoint.save(folder.parent, retention.number(folder), tensors, {k: v for k, v in state.items() if k != "run"})


def swap_words(run: Path) -> None:
    text = (run / "tokenizer.json").read_text()
    assert '"w1"' in text and '"w2"' in text
    (run / "tokenizer.json").write_text(text.replace('"w1"', '"w?"').replace('"w2"', '"w1"').replace('"w?"', '"w2"'))


def test_a_copied_folder_can_be_used(run: Path, workshop: Path) -> None:
    assert Translator.load(run).translate(LINE) == Translator.load(workshop / "run1").translate(LINE)
    assert heed("average", run, "--last", "2") == 0
    assert Translator.load(run, "average").translate(LINE)


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "other heads": (lambda run: change(run / "config.toml", "heads = 2", "heads = 4"), "config.toml differs"),
    "another beam": (lambda run: change(run / "config.toml", "beam = 4", "beam = 5"), "config.toml differs"),
    "another tokenizer of the same size": (swap_words, "tokenizer.json differs"),
    "an additional tokenizer": (lambda run: (run / "source.tokenizer.json").write_text("{}"), "source.tokenizer.json differs"),
    "no tokenizer": (lambda run: (run / "tokenizer.json").unlink(), "tokenizer.json is missing"),
    "no config": (lambda run: (run / "config.toml").unlink(), "config.toml is missing"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_altered_files_are_an_error_in_every_command(
    name: str, run: Path, workshop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage, sentence = CHANGES[name]
    damage(run)
    recipe: list[str | Path] = [workshop / "recipe.toml", "seed=1", "training.validate_every=4"]
    commands: list[list[str | Path]] = [
        ["translate", run, workshop / "pairs.tsv"],
        ["evaluate", run, "--bootstrap", "0"],
        ["average", run, "--last", "2"],
        ["prune", run, "--out", run.with_name("small"), "--keep", "encoder=1"],
        ["export", run, "--out", run.with_name("export")],
        ["train", *recipe, "training.steps=6", "--run", run],
    ]
    for command in commands:
        capsys.readouterr()
        assert heed(*command) == 4, command
        assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("name", ["config.toml", "tokenizer.json", "run.json"])
def test_every_altered_byte_is_detected(name: str, run: Path) -> None:
    path = run / name
    content = path.read_bytes()
    for position in range(0, len(content), 7 if name != "run.json" else 3):
        path.write_bytes(content[:position] + bytes([content[position] ^ (1 << position % 8)]) + content[position + 1 :])
        with pytest.raises(CheckpointError):
            check_files(run)
    path.write_bytes(content)
    check_files(run)


def test_a_checkpoint_of_another_run_is_reported_and_not_used(
    run: Path, workshop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign, own = (folder / "checkpoints" / "step-4" for folder in (workshop / "run2", run))
    shutil.rmtree(own)
    shutil.copytree(foreign, own)
    capsys.readouterr()
    commands: list[list[str | Path]] = [["translate", run, "--checkpoint", "step-4"], ["average", run, "--last", "2"]]
    for command in commands:
        assert heed(*command) == 4
        assert "step-4 belongs to another run" in capsys.readouterr().err
    folder, troubles = retention.newest(run / "checkpoints")
    assert folder == run / "checkpoints" / "step-2" and "belongs to another run" in troubles[0]
    recipe: list[str | Path] = [workshop / "recipe.toml", "seed=1", "training.validate_every=4", "training.steps=4"]
    assert heed("train", *recipe, "--run", run) == 0
    assert "continuing from step 2" in capsys.readouterr().err
    whole = workshop / "run1" / "checkpoints" / "step-4" / "model.safetensors"
    assert (own / "model.safetensors").read_bytes() == whole.read_bytes()


def test_a_run_without_checksums_is_loaded_with_a_warning(run: Path, workshop: Path, caplog: pytest.LogCaptureFixture) -> None:
    remove_checksums(run)
    with caplog.at_level(logging.WARNING):
        assert Translator.load(run, "last").translate(LINE) == Translator.load(workshop / "run1", "last").translate(LINE)
    assert "without checksums" in caplog.text
    recipe: list[str | Path] = [workshop / "recipe.toml", "seed=1", "training.validate_every=4", "training.steps=5"]
    assert heed("train", *recipe, "--run", run) == 0


def test_a_kill_while_the_config_is_replaced_leaves_a_valid_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (run / "config.toml").read_text().replace("steps = 4", "steps = 5")
    real = replace_text
    for writes in range(3):
        calls = iter(range(9))

        def dies(path: Path, content: str, calls: Any = calls, writes: int = writes) -> None:
            if next(calls) == writes:
                raise KeyboardInterrupt
            real(path, content)

        monkeypatch.setattr(facts, "replace_text", dies)
        with pytest.raises(KeyboardInterrupt):
            replace_config(run, text)
        check_files(run)
    monkeypatch.setattr(facts, "replace_text", real)
    replace_config(run, text)
    check_files(run)
    assert "next_config" not in read_facts(run) and (run / "config.toml").read_text() == text


@pytest.mark.parametrize("edit", [("dim = 16", "dim = 20000"), ("dim = 16", "dim = 1000000"), ("layers = 2", "layers = 1000")])
def test_a_model_is_compared_with_its_weights_before_memory_is_allocated(edit: tuple[str, str], run: Path) -> None:
    replace_config(run, (run / "config.toml").read_text().replace(*edit))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB
    with pytest.raises(CheckpointError, match=r"step-4 do not fit the model: they have [\d,]+ parameters in \d+ tensors"):
        Translator.load(run)
    if edit[0] == "dim = 16":
        assert heed("train", run, "training.steps=6") in (4, 6)  # 6: more than the machine has
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def with_dictionary(workshop: Path, folder: Path) -> list[str | Path]:
    dictionary = folder / "words.tsv"
    dictionary.write_text("w1\tuno\n")
    options = ["training.steps=2", "training.validate_every=2", "search.replace_unknown=true"]
    return [workshop / "recipe.toml", *options, f"search.dictionary={dictionary}", "--run", folder / "run"]


def test_a_dictionary_is_part_of_the_run_folder(
    workshop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = with_dictionary(workshop, tmp_path)
    assert heed("train", *command) == heed("train", *command) == 0
    assert heed("train", tmp_path / "run", "training.steps=3") == 0
    (tmp_path / "words.tsv").write_text("w1\tdue\n")
    capsys.readouterr()
    longer = ["training.steps=4" if word == "training.steps=2" else word for word in command]
    assert heed("train", *longer) == 3
    assert "words.tsv changed since" in capsys.readouterr().err
    (tmp_path / "words.tsv").unlink()
    monkeypatch.chdir(tmp_path)
    moved = (tmp_path / "run").rename(tmp_path / "moved")
    translator = Translator.load(moved)
    assert Path(str(translator.run.search.dictionary)) == moved / "dictionary.tsv"
    assert translator.translate(LINE)
    change(moved / "dictionary.tsv", "uno", "tre")
    with pytest.raises(CheckpointError, match=r"dictionary\.tsv differs"):
        Translator.load(moved)


def test_a_dictionary_outside_the_run_folder_is_not_read(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = tmp_path / "secret"
    secret.write_text("root:x:0:0\n")
    text = (run / "config.toml").read_text().replace("replace_unknown = false", "replace_unknown = true")
    replace_config(run, text.replace("[search]\n", f'[search]\ndictionary = "{secret}"\n'))
    capsys.readouterr()
    assert heed("translate", run, run / "config.toml") == 4
    message = capsys.readouterr().err
    assert "search.dictionary is" in message and "expected 'dictionary.tsv'" in message and "root:x" not in message
    assert heed("train", run, "training.steps=6") == 4
