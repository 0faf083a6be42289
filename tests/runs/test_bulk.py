"""Bulk prediction: killed at any instant and started again, every input is predicted once, with the same bytes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from workshop import heed, reversed_pairs, start_heed, write_recipe

import heedful
from heedful.storage import parts, writing
from heedful.text.tokenizer import Tokenizer

LINES = 100
MOMENTS = {"before": 1, "torn": 0, "written": 1, "after": 0}  # where a process is killed, and commits before that


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, inputs and the output of `heed predict` for them, undisturbed."""
    folder = tmp_path_factory.mktemp("bulk")
    assert heed("train", write_recipe(folder), "training.steps=2", "--run", folder / "run") == 0
    lines = [line.split("\t")[0] for line in reversed_pairs(LINES, 5).splitlines()]
    lines[17] = ""  # an empty line has an output too
    (folder / "inputs.txt").write_text("".join(f"{line}\n" for line in lines))
    return folder


def plain_output(folder: Path, capfd: pytest.CaptureFixture[str], *options: str) -> bytes:
    capfd.readouterr()
    assert heed("predict", folder / "run", folder / "inputs.txt", *options) == 0
    return capfd.readouterr().out.encode()


def kill_at(commit: int, moment: str) -> Callable[[], None]:
    """Make a process kill itself at a commit: before it, after the temporary file is written, or after it is renamed."""

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def prepare() -> None:
        calls = iter(range(commit + 1))

        def replace_bytes(path: Path, content: bytes) -> None:
            last = next(calls) == commit
            if last and moment == "before":
                die()
            if last and moment == "written":
                writing.write_bytes(writing.temporary_beside(path), content)
                die()
            if last and moment == "torn":
                writing.write_bytes(writing.temporary_beside(path), content[: len(content) // 2])
                die()
            writing.replace_bytes(path, content)
            if last:
                die()

        vars(parts)["replace_bytes"] = replace_bytes

    return prepare


@pytest.mark.parametrize("options", [(), ("--json", "-s", "method=sample")], ids=["beam", "sampling"])
def test_shards_killed_at_every_moment_of_a_commit_give_the_bytes_of_an_undisturbed_run(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    def command(name: str, *more: str) -> list[str | Path]:
        output = ("--output", tmp_path / name, "--commit-every", "8")
        return ["predict", folder / "run", folder / "inputs.txt", *output, *options, *more]

    assert heed(*command("whole")) == 0
    for number in (2, 3, 1):
        for moment in MOMENTS if number == 2 else ("torn",):
            process = start_heed(*command("out", "--shard", f"{number}/3"), before=kill_at(MOMENTS[moment], moment))
            assert process.wait() == -signal.SIGKILL
            assert heed("join", tmp_path / "out") == 3
        assert heed(*command("out", "--shard", f"{number}/3")) == 0
    assert heed("join", tmp_path / "out") == 0
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()
    assert not list((tmp_path / "out.parts").glob(f"{writing.TEMPORARY}*"))
    if not options:  # as texts, also those of other chunks; log-probabilities differ in their last digits
        assert (tmp_path / "out").read_bytes() == plain_output(folder, capfd)


def test_ten_thousand_sentences_in_eight_shards_and_five_kills_are_translated_once_each(folder: Path, tmp_path: Path) -> None:
    inputs, killed = tmp_path / "inputs.txt", {2: ("torn",), 5: ("before", "after"), 7: ("written", "torn")}
    inputs.write_text("".join(f"w{number % 20} w{number // 20 % 20} w{number // 400}\n" for number in range(10_000)))

    def command(name: str, *more: str) -> list[str | Path]:
        return [
            "predict",
            folder / "run",
            inputs,
            "--output",
            tmp_path / name,
            "-s",
            "max_extra=2",
            "--json",
            "--commit-every",
            "250",
            *more,
        ]

    assert heed(*command("whole")) == 0
    for number in range(1, 9):
        for moment in killed.get(number, ()):
            process = start_heed(*command("out", "--shard", f"{number}/8"), before=kill_at(MOMENTS[moment], moment))
            assert process.wait() == -signal.SIGKILL
        assert heed(*command("out", "--shard", f"{number}/8")) == 0
    assert heed("join", tmp_path / "out") == 0
    output = (tmp_path / "out").read_bytes()
    assert output == (tmp_path / "whole").read_bytes()
    assert [json.loads(line)["source"] for line in output.splitlines()] == inputs.read_text().splitlines()


def test_without_a_shard_all_is_predicted_and_joined_and_what_is_done_is_not_done_again(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    expected = plain_output(folder, capfd)
    command: list[str | Path] = ["translate", folder / "run", folder / "inputs.txt", "--output", tmp_path / "out"]
    assert heed(*command, "--shard", "2/2", "--commit-every", "64") == 0
    assert heed(*command, "--commit-every", "64") == 0  # another number of shards does the rest
    assert capfd.readouterr().err.splitlines()[-2] == "64 of 100 inputs predicted, 36 were done before"
    assert (tmp_path / "out").read_bytes() == expected


def test_prefixes_belong_to_their_lines_in_every_shard(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    prefixes = tmp_path / "prefixes.txt"
    prefixes.write_text("".join(f"w{number % 20}\n" for number in range(LINES)))
    options = ("--prefixes", str(prefixes))
    expected = plain_output(folder, capfd, *options)
    command: list[str | Path] = [
        "predict",
        folder / "run",
        folder / "inputs.txt",
        *options,
        "--output",
        tmp_path / "out",
        "--commit-every",
        "100",
    ]
    assert [heed(*command, "--shard", f"{number}/3") for number in (3, 1, 2)] == [0, 0, 0]
    assert heed("join", tmp_path / "out") == 0
    assert (tmp_path / "out").read_bytes() == expected


def test_changed_inputs_options_and_runs_are_refused(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    inputs = tmp_path / "inputs.txt"
    inputs.write_text("w1 w2\nw3\n")
    command: list[str | Path] = ["predict", folder / "run", inputs, "--output", tmp_path / "out"]
    assert heed(*command) == 0
    for extra, change in (
        (("-s", "beam=2"), "--search has"),
        (("--json",), "the format of the output (was 'text', given 'json') has"),
        (("--commit-every", "1"), "--commit-every (was 1024, given 1) has"),
    ):
        capfd.readouterr()
        assert heed(*command, *extra) == 2
        assert f"error: {change} changed since {tmp_path}/out.parts was begun;" in capfd.readouterr().err
    inputs.write_text("w1 w2\nw3\nw4\n")
    assert heed(*command) == 2
    assert f"error: {inputs} has changed since" in capfd.readouterr().err


@pytest.mark.parametrize("command", ["predict", "backtranslate"])
@pytest.mark.parametrize("name", ["inputs.txt", "folder/../inputs.txt", "link", "hardlink"])
def test_an_input_is_not_overwritten_by_its_output(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], command: str, name: str
) -> None:
    inputs = tmp_path / "inputs.txt"
    inputs.write_text("w1 w2\nw3\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(inputs)
    (tmp_path / "hardlink").hardlink_to(inputs)
    before = sorted(tmp_path.iterdir())
    assert heed(command, folder / "run", inputs, "--output", tmp_path / name) == 2
    assert "which is an input; expected another file" in capfd.readouterr().err
    assert (inputs.read_text(), sorted(tmp_path.iterdir())) == ("w1 w2\nw3\n", before)


def test_only_a_result_of_the_same_command_is_written_again(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    command: list[str | Path] = ["predict", folder / "run", folder / "inputs.txt", "--output", output]
    output.write_text("notes\n")
    assert heed(*command) == 2
    assert "out exists already" in capfd.readouterr().err
    assert ([path.name for path in tmp_path.iterdir()], output.read_text()) == (["out"], "notes\n")
    output.unlink()
    assert [heed(*command), heed(*command), heed("join", output)] == [0, 0, 0]
    for content in (output.read_text() + "more\n", output.read_text()[:-1], "notes\n"):
        output.write_text(content)
        assert [heed(*command), heed("join", output), output.read_text()] == [2, 2, content]


def test_an_output_that_cannot_be_written_is_refused_before_the_first_input(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    is_folder = "is a folder; expected the name of a file"
    for name, message in (("folder", is_folder), (".", is_folder), ("/", is_folder), ("missing/out", "cannot be written")):
        assert heed("predict", folder / "run", folder / "inputs.txt", "--output", name) == 4
        error = capfd.readouterr().err
        assert message in error and "hint: choose a" in error
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_the_message_of_an_interruption_names_what_is_kept_and_how_to_continue(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(path: Path, content: bytes) -> None:
        raise KeyboardInterrupt

    command: list[str | Path] = ["predict", folder / "run", folder / "inputs.txt", "--output", tmp_path / "out"]
    with monkeypatch.context() as patch:
        patch.setattr(parts, "replace_bytes", interrupt)
        assert heed(*command) == 75
    assert capfd.readouterr().err == (
        f"stopped: interrupted; the parts that are done are kept in {tmp_path}/out.parts\n\n"
        "hint: run the same command again to continue\n"
    )
    assert heed(*command) == 0


@pytest.mark.parametrize("shard", ["0/4", "5/4", "1", "a/b", "1/0", "-1/2", "1/2/3"])
def test_a_shard_that_does_not_exist_is_refused(folder: Path, tmp_path: Path, shard: str) -> None:
    command: list[str | Path] = ["predict", folder / "run", folder / "inputs.txt", f"--shard={shard}"]
    assert heed(*command, "--output", tmp_path / "out") == 2
    assert not list(tmp_path.iterdir())


def test_bulk_work_needs_files(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert heed("predict", folder / "run", "--output", tmp_path / "out") == 2
    assert "given standard input, which cannot be read again" in capfd.readouterr().err
    assert heed("predict", folder / "run", folder / "inputs.txt", "--shard", "1/2") == 2
    assert "--shard is given without --output" in capfd.readouterr().err


def test_back_translated_pairs_are_training_data_with_a_tag(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mono, output = tmp_path / "mono.txt", tmp_path / "pairs.jsonl"
    mono.write_text("w1 w2\n\nw3\tw4 w5\n")
    command: list[str | Path] = [
        "backtranslate",
        folder / "run",
        mono,
        "--output",
        output,
        "-s",
        "beam=2",
        "--commit-every",
        "1",
    ]
    assert start_heed(*command, before=kill_at(2, "written")).wait() == -signal.SIGKILL
    capfd.readouterr()
    assert heed(*command) == 0
    printed = capfd.readouterr()
    assert printed.out == f'[[data.train]]\njsonl = "{output}"\ntag = "<bt>"\n'
    assert printed.err.endswith("\n2 pairs; 1 with an empty side left out\n") and "shard" not in printed.err
    pairs = [json.loads(line) for line in output.read_text().splitlines()]
    translations = heedful.Translator.load(folder / "run", precision="fp32").translate(["w1 w2", "", "w3\tw4 w5"], beam=2)
    assert pairs == [
        {"source": source, "target": target}
        for source, target in zip(translations, ["w1 w2", "", "w3\tw4 w5"], strict=True)
        if source and target
    ]
    changes = f'data.train=[{{tsv="{folder / "pairs.tsv"}"}}, {{jsonl="{output}", tag="<bt>", weight=2}}]'
    assert heed("train", folder / "recipe.toml", changes, "training.steps=1", "--run", tmp_path / "run") == 0
    tokenizer = Tokenizer.load(tmp_path / "run" / "tokenizer.json")
    first, second = tokenizer.encode("<bt> w1"), tokenizer.encode("w1")
    assert first[1:] == second and first[0] != tokenizer.specials.unk
