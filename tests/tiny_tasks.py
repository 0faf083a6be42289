"""A tiny recipe for every task in `TASKS`: data, a model and a few steps.

A new task is covered once it is registered. EXAMPLES has tiny data for every form of data; options of a task that have no
default, or make it slow, are in OPTIONS, for all tasks that have them."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import fields
from datetime import date
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_type_hints

import numpy as np
from workshop import heed, reversed_pairs

from heedful.config.toml import write_toml
from heedful.data.gridworld import draw_episodes, name_of
from heedful.tasks import TASKS, find_command, find_task
from heedful.tasks.commands import Option


class DataExample(NamedTuple):
    """Tiny data of one form."""

    files: dict[str, str]  # name -> content; the first has the training data
    data: dict[str, Any]  # [data]; {folder} is the folder of the files
    model: dict[str, Any]
    search: dict[str, Any]
    inputs: tuple[str, ...]  # lines of input
    objects: list[Any]  # examples as Python objects


SIZES = {"dim": 16, "heads": 2, "feed_forward": 32, "norm": "pre"}
GPT = {"family": "gpt", "dim": 16, "layers": 1, "heads": 2}
ENCODER = {"family": "encoder", "dim": 16, "layers": ["self-attention", "lstm"], "heads": 2, "position": "sinusoidal"}
TAGGED = "the\tD\ncat\tN\nsees\tV\n\na\tD\ndog\tN\nruns\tV\n\n"
SIMILAR = "anchor,positive,negatives\n" + "".join(
    f"{a} {b},{b} {a},{a} {a}\n" for a in ("cat", "dog", "cow") for b in ("sees", "runs", "eats")
)
SPANS = "question,context,answer,answer_start\n" + "".join(
    f"where is the {a}?,the {a} is in the {b} and the {c} is out,{b},{len(f'the {a} is in the ')}\n"
    for a in ("cat", "dog", "cow")
    for b in ("box", "car")
    for c in ("pig", "hen")
)
DIALOGUES = "".join(f"the {a}\t{a} {b}\ta {b}\t{b} {a}\n" for a in ("cat", "dog", "cow") for b in ("sees", "runs", "eats"))
LABELED = "yes\tthe cat sees\nno\ta dog runs\n"
EXAMPLES = {
    "pairs": DataExample(
        {"pairs.tsv": reversed_pairs(60, 1), "test-pairs.tsv": reversed_pairs(12, 2)},
        {
            "train": {"tsv": "{folder}/pairs.tsv"},
            "valid": {"tsv": "{folder}/pairs.tsv"},
            "test": {"tsv": "{folder}/test-pairs.tsv"},
            "batch_tokens": 128,
        },
        {"layers": 2, **SIZES},
        {"max_extra": 3},
        ("w1 w2 w3", "w4", "w5 w6"),
        [("w1 w2", "w2 w1"), ("w3", "w3")] * 20,
    ),
    "text": DataExample(
        {"book.txt": "the cat sees the dog\na dog runs\n" * 20, "valid.txt": "the dog sees a cat\n" * 8},
        {
            "form": "text",
            "train": {"file": "{folder}/book.txt"},
            "valid": {"file": "{folder}/valid.txt"},
            "test": {"file": "{folder}/book.txt"},
            "block": 16,
            "batch": 4,
        },
        GPT,
        {"method": "sample"},
        ("the cat", "a", "the dog"),
        ["the cat sees the dog"] * 20,
    ),
    "labeled": DataExample(
        {"train.tsv": LABELED * 20, "valid.tsv": LABELED * 10, "test.tsv": LABELED * 6},
        {"form": "labeled", "folder": "{folder}", "batch": 8},
        GPT,
        {},
        ("the cat sees", "a dog", "the cat runs"),
        [("yes", "the cat sees"), ("no", "a dog runs")] * 20,
    ),
    "tagged": DataExample(
        {"tagged-train.tsv": TAGGED * 20, "tagged-valid.tsv": TAGGED * 10, "tagged-test.tsv": TAGGED * 6},
        {
            "form": "tagged",
            **{split: {"file": f"{{folder}}/tagged-{split}.tsv"} for split in ("train", "valid", "test")},
            "batch_tokens": 40,
        },
        ENCODER,
        {},
        ("the cat sees.", "a dog", "the cat runs"),
        [(["the", "cat", "sees"], ["D", "N", "V"]), (["a", "dog"], ["D", "N"])] * 20,
    ),
    "similar": DataExample(
        {"similar.csv": SIMILAR},
        {
            "form": "similar",
            **{split: {"file": "{folder}/similar.csv"} for split in ("train", "valid", "test")},
            "columns": ["anchor", "positive", "negatives"],
            "batch": 4,
        },
        {"family": "bert", "dim": 16, "layers": 1, "heads": 2},
        {},
        ("cat sees", "dog", "the cat runs"),
        [("cat sees", "sees cat", "cat cat"), ("dog runs", "runs dog")] * 4,
    ),
    "spans": DataExample(
        {"spans.csv": SPANS},
        {
            "form": "spans",
            **{split: {"file": "{folder}/spans.csv"} for split in ("train", "valid", "test")},
            "max_length": 32,
            "stride": 8,
            "batch": 4,
        },
        {"family": "bert", "dim": 16, "layers": 1, "heads": 2},
        {},
        ("where is the cat?\tthe cat is in the box", "where is the dog?\tout", "where is it?\t" + "the dog is in the car " * 4),
        [("where is it?", "it is in the box", "box", 13), ("where is it?", "it is out", "out", 6)] * 4,
    ),
}
DAYS = [date.fromordinal(738_000 + day).isoformat() for day in range(60)]
SERIES = "date,load,wind\n" + "".join(f"{day},{at % 3},{at % 2}\n" for at, day in enumerate(DAYS))
TABLES = [{"date": DAYS[at : at + 6], "load": [at, 1, 2, 0, 1, 2], "wind": [0, 1, 0, 1, 0, at]} for at in range(3)]
EXAMPLES["series"] = DataExample(
    {"series.csv": SERIES, "test-series.csv": SERIES},
    {
        "form": "series",
        "train": {"file": "{folder}/series.csv"},
        "valid": {"file": "{folder}/series.csv"},
        "test": {"file": "{folder}/test-series.csv"},
        "time": "date",
        "batch": 8,
    },
    {"family": "encoder", "dim": 16, "layers": ["self-attention"], "heads": 2, "position": "learned", "features": 2},
    {},
    tuple(map(json.dumps, TABLES)),
    [{"date": day, "load": at % 3, "wind": at % 2} for at, day in enumerate(DAYS)],
)
EXAMPLES["dialogues"] = DataExample(
    {"dialogues.txt": DIALOGUES * 4, "test-dialogues.txt": DIALOGUES},
    {
        "form": "dialogues",
        "train": {"file": "{folder}/dialogues.txt"},
        "valid": {"file": "{folder}/dialogues.txt"},
        "test": {"file": "{folder}/test-dialogues.txt"},
        "turns": 3,
        "batch_tokens": 128,
    },
    {"layers": 2, **SIZES},
    {"max_extra": 3},
    ("the cat", "the dog\tdog runs", "a cow"),
    [["the cat", "cat sees"], ("the dog", "dog runs", "a cow", "cow eats")] * 10,
)

GRID_EPISODES = draw_episodes(0, "train", 12)
GRID_STEPS = [
    {"episode": number, "step": step, "cell": name_of(cell), "action": action, "reward": reward}
    for number, episode in enumerate(GRID_EPISODES)
    for step, (cell, action, reward) in enumerate(zip(*episode, strict=True))
]
GRID_COLUMNS = "episode,step,cell,action,reward\n" + "".join(",".join(map(str, one.values())) + "\n" for one in GRID_STEPS)
HISTORIES = [
    {"desired": 9, "states": ["a1"]},
    {"desired": 2.5, "states": ["a1", "a2"], "actions": ["down"], "rewards": [-0.2]},
    {"states": ["e1", "e1"], "actions": ["up"], "rewards": [-0.2], "desired": -3},
]
EXAMPLES["trajectories"] = DataExample(
    {"episodes.csv": GRID_COLUMNS, "test-episodes.csv": GRID_COLUMNS},
    {
        "form": "trajectories",
        "train": {"file": "{folder}/episodes.csv"},
        "valid": {"file": "{folder}/episodes.csv"},
        "test": {"file": "{folder}/test-episodes.csv"},
        "states": ["cell"],
        "categorical": ["cell"],
        "world": 0,
        "batch": 8,
    },
    GPT | {"inputs": "vectors"},
    {},
    tuple(map(json.dumps, HISTORIES)),
    list(GRID_STEPS),
)


HEIGHT, WIDTH, PATCH = 6, 8, 2  # 12 patches: no size equals another


def plain_image(red: int, green: int) -> str:
    """An image of one color, in a format that is plain text."""
    return f"P3 {WIDTH} {HEIGHT} 255\n" + f"{red} {green} 9\n" * (WIDTH * HEIGHT)


def data_uri(red: int, green: int) -> str:
    """The same image in one line."""
    return (
        "data:image/x-portable-pixmap;base64,"
        + b64encode(f"P6 {WIDTH} {HEIGHT} 255\n".encode() + bytes((red, green, 9)) * (WIDTH * HEIGHT)).decode()
    )


def pixels(red: int, green: int) -> Any:
    """The same image as an array."""
    return np.full((HEIGHT, WIDTH, 3), (red, green, 9), np.uint8)


EXAMPLES["images"] = DataExample(
    {
        "images.csv": "path,label\n" + "red.ppm,yes\ngreen.ppm,no\ndark.ppm,yes\nlight.ppm,no\n" * 4,
        "red.ppm": plain_image(220, 20),
        "green.ppm": plain_image(20, 220),
        "dark.ppm": plain_image(120, 10),
        "light.ppm": plain_image(60, 250),
    },
    {
        "form": "images",
        **{split: {"file": "{folder}/images.csv"} for split in ("train", "valid", "test")},
        "batch": 4,
    },
    {"family": "vit", "dim": 16, "layers": 1, "heads": 2, "image_size": [HEIGHT, WIDTH], "patch": PATCH},
    {},
    (data_uri(230, 20), data_uri(20, 230), data_uri(200, 100)),
    [
        ("yes", pixels(220, 20)),
        ("no", pixels(20, 220)),
    ]
    * 4,
)
MOTIONS = "sequence,label,x,y\n" + "".join(
    f"{at},{'yes' if at % 2 else 'no'},{step * (at % 2)},{step}\n" for at in range(16) for step in range(3 + at % 3)
)
EXAMPLES["labeled_series"] = DataExample(
    {"motions.csv": MOTIONS},
    {
        "form": "labeled_series",
        **{split: {"file": "{folder}/motions.csv"} for split in ("train", "valid", "test")},
        "batch": 4,
    },
    {"family": "encoder", "dim": 16, "layers": ["self-attention"], "heads": 2, "features": 2},
    {},
    ('{"x": [0, 1, 2], "y": [0, 1, 2]}', '{"x": [5, 5], "y": [3, 4]}', '{"x": [1], "y": [1]}'),
    [("yes", {"x": [0, 1, 2], "y": [0, 1, 2]}), ("no", {"x": [0, 0], "y": [0, 1]})] * 4,
)
EXAMPLES["captions"] = DataExample(
    {
        "captions.csv": "path,caption\n" + "red.ppm,a red one\ngreen.ppm,green\ndark.ppm,a dark red one\nlight.ppm,green\n" * 4,
        **{name: content for name, content in EXAMPLES["images"].files.items() if name.endswith(".ppm")},
    },
    {
        "form": "captions",
        **{split: {"file": "{folder}/captions.csv"} for split in ("train", "valid", "test")},
        "max_length": 8,
        "batch": 4,
    },
    {"family": "vision_encoder_decoder", "dim": 16, "layers": 1, "heads": 2, "image_size": [HEIGHT, WIDTH], "patch": PATCH},
    {},
    EXAMPLES["images"].inputs,
    [
        (pixels(220, 20), "a red one"),
        (pixels(20, 220), "green"),
    ]
    * 4,
)
LINE = [("a", "yes", 1, 0), ("b", "no", 0, 1), ("c", "yes", 1, 1), ("d", "no", 0, 2)]  # node, label, two features
GRAPH = {
    "nodes": [{"node": name, "label": label, "x": x, "y": y} for name, label, x, y in LINE],
    "edges": [["a", "c"], ["b", "d"]],
}
EXAMPLES["graphs"] = DataExample(
    {
        "nodes.csv": "node,label,x,y\n" + "".join(f"{','.join(map(str, row))}\n" for row in LINE),
        "edges.csv": "source,target\na,c\nb,d\n",
    },
    {
        "form": "graphs",
        **{split: {"nodes": "{folder}/nodes.csv", "edges": "{folder}/edges.csv"} for split in ("train", "valid", "test")},
    },
    {"family": "encoder", "dim": 16, "layers": ["self-attention"], "heads": 2, "features": 2},
    {},
    tuple(
        json.dumps({"nodes": [{"node": "u", "x": at, "y": 0.5}, {"node": "v", "x": 0, "y": at}], "edges": [["u", "v"]]})
        for at in range(3)
    ),
    [GRAPH] * 4,
)
TASK_EXAMPLES = {  # where the example of a form does not fit
    "masked": EXAMPLES["text"]._replace(
        model={"family": "bert", "dim": 16, "layers": 1, "heads": 2},
        search={},
        inputs=("the [MASK] sees", "[MASK] dog [MASK]", "the dog [MASK]"),
    ),
    "retrieval": EXAMPLES["dialogues"]._replace(
        data=EXAMPLES["dialogues"].data | {"batch": 4, "max_length": 32},
        model={"family": "bert", "dim": 16, "layers": 1, "heads": 2},
        search={},
    ),
    "skip_thought": EXAMPLES["text"]._replace(model={"family": "encoder", "dim": 16, "layers": ["gru"]}, search={}),
}
OPTIONS: dict[str, Any] = {"labels": ["no", "yes"], "validation_sentences": 4, "validation_replies": 4, "samples": 0}
OPTIONS |= {"look_back": 4, "horizon": 2, "patch": 2, "stride": 1, "quantiles": [0.1, 0.5, 0.9]}
TRAINING = {"steps": 6, "save_every": 2, "validate_every": 3, "report_every": 1}
QUICK = {"length": 8, "episodes": 4}  # options that make `heed predict` and `heed evaluate` fast
# Values of options that tasks declare, where `option_arguments` finds none by their type; several arguments where one option
# needs another.
OPTION_VALUES = {
    "length": ["5"],
    "prefixes": ["{folder}/inputs.txt"],
    "prompt": ["the dog"],
    "source": ["{folder}/inputs.txt", "--reference", "{folder}/inputs.txt"],
    "reference": ["{folder}/inputs.txt", "--source", "{folder}/inputs.txt"],
    "metrics": ["gleu"],
    "tokenize": ["char"],
    "against": ["{run}"],
    "output": ["{folder}/output.txt"],
    "top": ["3"],
    "replies": ["1"],
    "stop": ["the"],
    "pooling": ["cls"],
    "match": ["questions"],
    "picture": ["{folder}/curve.svg"],
    "nodes": ["{folder}/nodes.csv", "--edges", "{folder}/edges.csv"],
    "edges": ["{folder}/edges.csv", "--nodes", "{folder}/nodes.csv"],
    "desired": ["4"],
}


def example_of(task: str) -> DataExample:
    """Tiny data of the form that the task reads."""
    form = get_args(find_task(task).data_config.model_fields["form"].annotation)[0]
    assert form in EXAMPLES, f"task {task!r} reads data of the form {form!r}; add an example of it to tests/tiny_tasks.py"
    return TASK_EXAMPLES.get(task, EXAMPLES[form])


def fill(value: Any, folder: Path) -> Any:
    """The value with {folder} replaced in every text."""
    if isinstance(value, dict):
        return {name: fill(part, folder) for name, part in value.items()}
    return value.replace("{folder}", str(folder)) if isinstance(value, str) else value


def write_tiny_recipe(task: str, folder: Path) -> Path:
    """Write the data and the recipe of a tiny run, and a file of inputs."""
    example = example_of(task)
    for name, content in example.files.items():
        (folder / name).write_text(content)
    (folder / "inputs.txt").write_text("".join(f"{line}\n" for line in example.inputs))
    known = {name for name, field in find_task(task).config.model_fields.items() if field.default != "auto"}
    config = {
        "data": fill(example.data, folder),
        "task": {"name": task, **{name: value for name, value in OPTIONS.items() if name in known}},
        "tokenizer": {"kind": "words", "min_frequency": 1},
        "model": example.model,
        "training": TRAINING,
        "search": example.search,
    }
    recipe = folder / f"{task}.toml"
    recipe.write_text(write_toml(config))
    return recipe


def train_tiny_runs(folder: Path) -> dict[str, Path]:
    """Train a run of each task for two steps; a second one of translation, `other`, for three."""
    runs = {}
    for task in TASKS:
        recipe, runs[task] = write_tiny_recipe(task, folder), folder / task
        assert heed("train", recipe, "training.steps=2", "--run", runs[task]) == 0
    assert heed("train", folder / "translation.toml", "training.steps=3", "--run", folder / "other") == 0
    return runs


def option_arguments(task: str, command: Literal["predict", "evaluate"]) -> dict[str, list[str]]:
    """The options that a task declares for a command, each as its arguments on the command line."""
    declared: dict[str, list[str]] = {}
    options = getattr(find_command(task), command)
    for field in fields(options):
        option = get_option(options, field.name)
        flag = option.flag or f"--{field.name.replace('_', '-')}"
        if isinstance(field.default, bool):
            declared[field.name] = [flag]
        elif field.name in OPTION_VALUES:
            declared[field.name] = [flag, *OPTION_VALUES[field.name]]
        else:
            assert isinstance(field.default, int), f"add a value of {flag} of task {task!r} to tests/tiny_tasks.py"
            declared[field.name] = [flag, str(max(option.minimum or 0, field.default // 2))]
    return declared


def get_option(options: type[Any], name: str) -> Option:
    option: Option = get_args(get_type_hints(options, include_extras=True)[name])[1]
    return option


def quick_options(task: str, command: Literal["predict", "evaluate"] = "predict") -> dict[str, Any]:
    """The options of a task that make its command fast, for Python."""
    return {name: value for name, value in QUICK.items() if name in option_arguments(task, command)}


def quick_arguments(task: str, command: Literal["predict", "evaluate"] = "predict") -> list[str]:
    """`quick_options` on the command line."""
    return [part for name, value in quick_options(task, command).items() for part in (f"--{name}", str(value))]
