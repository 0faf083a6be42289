"""Recorded episodes in files: what is read, and one clear sentence for what cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from workshop import heed

from heedful.config.toml import write_toml
from heedful.data.trajectories import TrajectoriesConfig, Trajectory, find_source, read_episodes
from heedful.errors import ConfigError

HEADER = "episode,step,x,room,action,reward"
ROWS = ["1,0,0.5,hall,up,1", "1,1,1.5,attic,down,-2", "b,7,2,hall,up,0.25"]
GOOD = [{"episode": 1, "step": 1, "state": [1, 2], "action": "up", "reward": 0}]


def config_of(file: Path, **options: Any) -> TrajectoriesConfig:
    given: dict[str, Any] = {"form": "trajectories", "train": {"file": str(file)}, "valid": {"file": str(file)}}
    columns = {"states": ["state"]} if file.suffix == ".jsonl" else {"states": ["x", "room"], "categorical": ["room"]}
    return TrajectoriesConfig.model_validate(
        {k: value for k, value in (given | columns | options).items() if value is not None}
    )


def read(file: Path, part: str = "train", **options: Any) -> list[Trajectory]:
    data = config_of(file, **options)
    source = find_source(data, part)
    assert source is not None
    return read_episodes(data, source).episodes


def test_rows_of_every_format_become_the_same_episodes(tmp_path: Path) -> None:
    expected = [
        Trajectory("1", [{"x": 0.5, "room": "hall"}, {"x": 1.5, "room": "attic"}], ["up", "down"], [1.0, -2.0]),
        Trajectory("b", [{"x": 2.0, "room": "hall"}], ["up"], [0.25]),
    ]
    cells = [row.split(",") for row in (HEADER, *ROWS)]
    objects = [dict(zip(cells[0], row, strict=True)) for row in cells[1:]]
    (tmp_path / "a.csv").write_text("\n".join((HEADER, *ROWS)))
    (tmp_path / "a.tsv").write_text("\n".join("\t".join(row) for row in cells))
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, objects)))
    columns: dict[str, Any] = {"states": ["x", "room"], "categorical": ["room"]}
    assert [read(tmp_path / f"a.{suffix}", **columns) for suffix in ("csv", "tsv", "jsonl")] == [expected] * 3


def test_a_state_may_be_a_list_of_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(GOOD[0]))
    assert read(tmp_path / "a.jsonl")[0].states == [{"state.1": 1.0, "state.2": 2.0}]


def test_a_split_is_by_episode_and_complete(tmp_path: Path) -> None:
    rows = [f"{episode},{step},0,hall,up,0" for episode in range(60) for step in range(2)]
    (tmp_path / "a.csv").write_text("\n".join((HEADER, *rows)))
    data = {"split": [0.5, 0.25, 0.25], "valid": None}
    parts = [read(tmp_path / "a.csv", part, **data) for part in ("train", "valid", "test")]
    assert all(len(part) > 5 for part in parts) and all(len(one.actions) == 2 for part in parts for one in part)
    assert sorted(int(one.name) for part in parts for one in part) == list(range(60))


def test_episodes_with_unusable_rows_are_left_out_where_that_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\n".join((HEADER, *ROWS, "c,1,zero,hall,up,1", "c,2,1,hall,up,1", "d,1,1,hall,up,1")))
    assert [one.name for one in read(tmp_path / "a.csv", max_unusable=0.25)] == ["1", "b", "d"]


BROKEN = {
    "missing action": (f"{HEADER}\n1,0,1,hall,,1\n", "a.csv line 2: column 'action' is empty; expected an action"),
    "reward is text": (f"{HEADER}\n1,0,1,hall,up,much\n", "line 2: column 'reward' is \"much\"; expected a finite number"),
    "infinite reward": (f"{HEADER}\n1,0,1,hall,up,inf\n", "line 2: column 'reward' is \"inf\"; expected a finite number"),
    "state is text": (f"{HEADER}\n1,0,low,hall,up,1\n", "line 2: column 'x' is \"low\"; expected a finite number"),
    "empty name": (f"{HEADER}\n1,0,1,,up,1\n", "line 2: column 'room' is \"\"; expected a name"),
    "missing cell": (f"{HEADER}\n1,0,1,up,1\n", "a.csv line 2 has 5 cells; expected 6, as many as the header"),
    "missing column": ("episode,step,x,action,reward\n1,0,1,up,1\n", "has no column 'room'; its columns are: episode, step"),
    "steps in disorder": ("\n".join((HEADER, ROWS[1], ROWS[0])), "line 3: step 0 follows step 1 of episode '1'; expected 2"),
    "a step twice": ("\n".join((HEADER, ROWS[0], ROWS[0])), "line 3: step 0 follows step 0 of episode '1'; expected 1"),
    "a step is missing": ("\n".join((HEADER, ROWS[0], "1,5,1,hall,up,1")), "line 3: step 5 follows step 0 of episode '1'"),
    "half a step": (f"{HEADER}\n1,0.5,1,hall,up,1\n", "line 2: column 'step' is \"0.5\"; expected a whole number"),
    "episode in two places": (
        "\n".join((HEADER, ROWS[0], ROWS[2], ROWS[1])),
        "line 4: episode '1' continues after another one",
    ),
    "no episode": (f"{HEADER}\n,0,1,hall,up,1\n", "line 2: column 'episode' is empty; expected the id of an episode"),
    "empty file": ("", "a.csv is empty"),
    "only a header": (f"{HEADER}\n", "a.csv has a header, but no rows; expected at least one row after line 1"),
    "not UTF-8": (f"{HEADER}\n1,0,1,caf\udce9,up,1\n", "a.csv line 2: byte 10 is not UTF-8"),
    "one action": (f"{HEADER}\n1,0,1,hall,up,1\n", "the training data has the action 'up' only; expected two or more"),
    "states of two lengths": (
        "\n".join(json.dumps(GOOD[0] | more) for more in ({}, {"step": 2, "state": [1, 2, 3]})),
        "a.jsonl line 2: the state has 3 values; expected 2, as in the first row",
    ),
    "not JSON": ('{"episode": 1,', "a.jsonl line 1 is not JSON"),
    "missing field": ('{"episode": 1, "step": 1, "state": [1], "reward": 0}', "a.jsonl line 1 has no field 'action'"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_is_one_sentence_with_its_place_and_exit_code_3(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, message = BROKEN[case]
    file = tmp_path / ("a.jsonl" if "a.jsonl" in message else "a.csv")
    file.write_bytes(content.encode("utf-8", "surrogateescape"))
    data = config_of(file).model_dump(exclude_unset=True, mode="json")
    model = {"family": "gpt", "inputs": "vectors", "dim": 16, "layers": 1, "heads": 2}
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(write_toml({"data": data, "task": {"name": "decisions"}, "model": model}))
    assert heed("train", recipe, "training.steps=1", "--run", tmp_path / "run") == 3
    told = capsys.readouterr().err.strip()
    assert told.startswith("error: ") and message in told and "Traceback" not in told
    assert len(told.split("\n\nhint: ")[0].splitlines()) == 1
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"categorical": ["y"]}, "given 'y', which is not in states: x, room"),
        ({"states": ["x", "action"], "categorical": []}, "two columns are named 'action'"),
        ({"world": 1}, "given without states = ['cell']"),
        ({"counts": {"train": 5}}, "data.builtin is not set"),
        ({"builtin": "gridworld"}, "given with data.train, expected one of them"),
        ({"split": [0.5, 0.2, 0.2]}, "whose sum is 0.9"),
    ],
    ids=str,
)
def test_options_that_do_not_fit_together_are_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises((ConfigError, ValueError), match=message.replace("[", r"\[")):
        config_of(tmp_path / "a.csv", **options)
