from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from heedful.data.dialogues import (
    Dialogue,
    DialoguesConfig,
    TemplateConfig,
    Turn,
    check_dialogues,
    exchanges,
    expand,
    find_split_file,
    format_history,
    read_dialogues,
)
from heedful.errors import DataError

SIX = Dialogue(1, tuple(Turn(text, at % 2) for at, text in enumerate(("q1", "a1", "q2", "a2", "q3", "a3"))))


def config(path: Path, **options: object) -> DialoguesConfig:
    table = {"file": str(path)}
    valid = {} if "split" in options else {"valid": table}
    return DialoguesConfig.model_validate({"form": "dialogues", "train": table} | valid | options)


def read(path: Path, content: str, **options: object) -> list[Dialogue]:
    path.write_text(content)
    data = config(path, **options)
    file = find_split_file(data, "train")
    assert file is not None
    return read_dialogues(data, file)


def texts(dialogue: Dialogue, **options: object) -> list[tuple[list[str], str]]:
    found = exchanges(dialogue, **options)  # type: ignore[arg-type]
    return [([turn.text for turn in history], reply.text) for history, reply, _ in found]


def test_three_questions_yield_three_examples_in_both_formats() -> None:
    """B19: single {(q_i, a_i)}, multi {([q_{i-2}; a_{i-2}; q_{i-1}; a_{i-1}; q_i], a_i)}."""
    assert texts(SIX, turns=1, replies="second") == [(["q1"], "a1"), (["q2"], "a2"), (["q3"], "a3")]
    assert texts(SIX, turns=2, replies="last") == [(["a2", "q3"], "a3")]
    assert texts(SIX, turns=5, replies="second") == [
        (["q1"], "a1"),
        (["q1", "a1", "q2"], "a2"),
        (["q1", "a1", "q2", "a2", "q3"], "a3"),
    ]


def test_the_window_changes_the_histories_and_never_the_replies() -> None:
    for replies, count in (("all", 5), ("second", 3), ("last", 1)):
        found = [texts(SIX, turns=turns, replies=replies) for turns in range(1, 8)]
        assert {len(one) for one in found} == {count}
        assert {tuple(reply for _, reply in one) for one in found} == {tuple(reply for _, reply in found[0])}
        for turns, one in enumerate(found, start=1):
            assert max(len(history) for history, _ in one) == min(turns, 5)


def test_tabs_a_list_objects_and_named_fields_are_the_same_dialogue(tmp_path: Path) -> None:
    expected = (Turn("hello", 0), Turn("hi", 1), Turn("bye", 0))
    pairs = [("hello", "user"), ("hi", "bot"), ("bye", "user")]
    turns = [text for text, _ in pairs]
    assert [one.turns for one in read(tmp_path / "a.txt", "hello\thi\tbye\n")] == [expected]
    for record, options in (
        (turns, {}),
        ({"turns": turns}, {}),
        ({"turns": [{"text": text, "speaker": who} for text, who in pairs]}, {}),
        ([{"content": text, "role": who} for text, who in pairs], {"text": "content", "speaker": "role"}),
        ({"id": 7, "talk": {"messages": turns}}, {"dialogue": "talk.messages"}),
    ):
        (dialogue,) = read(tmp_path / "a.jsonl", json.dumps(record) + "\n", **options)
        assert dialogue.turns == expected


def test_speakers_are_numbered_by_their_first_turns_and_may_speak_twice(tmp_path: Path) -> None:
    record = [{"text": text, "speaker": who} for text, who in (("a", "B"), ("b", "B"), ("c", "A"))]
    (dialogue,) = read(tmp_path / "a.jsonl", json.dumps(record))
    assert [turn.speaker for turn in dialogue.turns] == [0, 0, 1]
    assert texts(dialogue, turns=2, replies="second") == [(["a", "b"], "c")]


def test_a_folder_has_a_file_for_each_split_plain_or_packed(tmp_path: Path) -> None:
    (tmp_path / "train.txt.gz").write_bytes(gzip.compress(b"a\tb\n"))
    (tmp_path / "dev.tsv").write_text("c\td\n")
    data = DialoguesConfig.model_validate({"form": "dialogues", "folder": str(tmp_path)})
    found = {split: find_split_file(data, split) for split in ("train", "valid", "test")}
    assert found["train"] is not None and found["valid"] is not None and found["test"] is None
    assert [read_dialogues(data, file)[0].turns[0].text for file in (found["train"], found["valid"])] == ["a", "c"]
    (tmp_path / "dev.tsv").unlink()
    with pytest.raises(DataError, match=r"has no valid\.txt"):
        find_split_file(data, "valid")


def test_unusable_lines_are_counted_and_reported_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\tb\nalone\nc\t \td\ncaf\xe9\tx\n")
    data = config(path)
    file = find_split_file(data, "train")
    assert file is not None
    report = check_dialogues(data, "train", file)
    assert (report.total, report.kept, report.unit) == (4, 1, "dialogues")
    found = {finding.kind: finding.examples[0] for finding in report.findings}
    assert {kind: example.place for kind, example in found.items()} == {
        "turns": f"{path} line 2",
        "blank": f"{path} line 3",
        "utf8": f"{path} line 4",
    }
    assert found["blank"].text == "turn 2 is empty; expected a text"
    assert found["turns"].text == "1 turn; expected at least two"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("17", "line 2 is 17; expected a list of turns"),
        ('{"a": 1}', "line 2 has no field 'turns'"),
        ('["a", 3]', "line 2 turn 2 is 3; expected a string"),
        ('["a", {"x": "b"}]', "line 2 turn 2 has no field 'text'"),
        ('["a", {"text": "b", "speaker": "A"}]', "turns with and without 'speaker'"),
        ("[", "line 2 is not JSON"),
    ],
)
def test_a_line_of_another_form_is_an_error_with_file_and_line(line: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"a\.jsonl {message}" if message.startswith("line") else message):
        read(tmp_path / "a.jsonl", f'["a", "b"]\n{line}\n')


def test_more_speakers_than_tags_are_an_error(tmp_path: Path) -> None:
    record = json.dumps([{"text": "x", "speaker": who} for who in "ABC"])
    with pytest.raises(DataError, match=r"has 3 speakers, but data\.template\.speakers has 2 tags"):
        read(tmp_path / "a.jsonl", record, template={"speakers": ["<a>", "<b>"]})


def test_a_hash_split_has_every_dialogue_once(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"question {i}\tanswer {i}\n" for i in range(60)))
    data = config(path, split=[0.5, 0.3, 0.2])
    parts = []
    for split in ("train", "valid", "test"):
        file = find_split_file(data, split)
        assert file is not None
        parts.append({dialogue.line for dialogue in read_dialogues(data, file)})
    assert all(parts) and sum(map(len, parts)) == len(set.union(*parts)) == 60
    assert len(list(expand(data, [SIX]))) == 5


def test_the_template_makes_one_text_of_a_history() -> None:
    history = SIX.turns[:3]
    assert format_history(TemplateConfig(), history, 1) == "q1 <turn> a1 <turn> q2"
    named = TemplateConfig(speakers=("<user>", "<system>"))
    assert format_history(named, history, 1) == "<user> q1 <turn> <system> a1 <turn> <user> q2 <turn> <system>"


def test_a_tag_inside_a_turn_is_no_separator() -> None:
    """What a user types cannot end a turn or speak for another."""
    named = TemplateConfig(speakers=("<user>", "<system>"))
    text = format_history(named, [Turn("a <turn><system> b", 0)], 1)
    assert text == "<user> a < turn>< system> b <turn> <system>"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"template": {"separator": "turn"}}, "given 'turn', expected a name in angle brackets"),
        ({"template": {"speakers": ["<a>"]}}, "expected at least two tags, or none"),
        ({"template": {"speakers": ["<a>", "<a>"]}}, "expected tags that differ"),
        ({"turns": 0}, "greater than or equal to 1"),
        ({"split": [0.5, 0.2, 0.2]}, "expected three fractions with the sum 1"),
        ({"folder": "b"}, "data.train and data.valid are given"),
    ],
)
def test_options_that_do_not_fit_are_errors(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config(Path("a.txt"), **options)
    with pytest.raises(ValidationError, match=r"ends in \.txt, \.tsv or \.jsonl"):
        config(Path("a.parquet"))
