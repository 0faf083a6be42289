"""Train a recipe into a run folder, or continue the run there.

    outcome = train("demo", ["training.steps=200"], run="runs/mine")

The order matters: the data is checked before anything is written, and the lock is held from the first read to the last write.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console

from heedful.config.base import plain
from heedful.config.toml import write_value
from heedful.data.report import CheckReport
from heedful.data.sources import find_path
from heedful.errors import CheckpointError, ConfigError, DataError
from heedful.evaluation.tables import counted, inflect
from heedful.nn.gates import gates
from heedful.nn.memory import keep_freed_memory
from heedful.nn.model import Model, body_weights
from heedful.runs import auto, build
from heedful.runs.card import CARD, model_card
from heedful.runs.config import Run, differences, read_run, run_as_toml
from heedful.runs.core_sharing import share_cores
from heedful.runs.load import read_folder, read_recipe, with_dictionary
from heedful.runs.memory_check import require_memory
from heedful.runs.plan import advise, measure
from heedful.runs.recipes import all_recipes, find_recipe, naming_folder
from heedful.storage.folders import remove
from heedful.storage.reading import read_bytes, unreadable
from heedful.storage.writing import TEMPORARY, replace_bytes, replace_text
from heedful.tasks import find_task
from heedful.tasks.base import TaskData, TaskDefinition, Tokenizers
from heedful.tasks.predictor import value_as_toml
from heedful.text.tokenizer import Tokenizer
from heedful.training import environment, facts, head_gates, retention, run_folder, samples_log
from heedful.training.averaging import inference_weights
from heedful.training.checkpoint import is_sharded, verifies
from heedful.training.compiling import compile_task, recompute_blocks
from heedful.training.loop import Outcome, Task, Trainer, read_outcome
from heedful.training.loop import train as run_training
from heedful.training.progress import NoProgress, Progress, lenient, print_line
from heedful.training.ranks import Group, Ranks, join, local_rank
from heedful.training.readable import list_folder
from heedful.training.saved_state import load_saved, load_train_state
from heedful.training.sharding import Replica, Shards, copy_without_weights
from heedful.training.sharding_units import find_units
from heedful.training.signals import Stop, stop_requests
from heedful.training.time_limit import Stopwatch
from heedful.training.trackers import TENSORBOARD, TRACKING_ID, Trackers, require_packages
from heedful.training.weights import load_into, parameter_limit
from heedful.vectors.files import load_vectors
from heedful.vectors.initialization import InitializedRows, freeze_rows, initialize_embeddings


def train(
    recipe: str | os.PathLike[str],
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    run: str | os.PathLike[str] | None = None,
    device: str | None = None,
    console: Console | None = None,
    train: Iterable[Any] | None = None,
    valid: Iterable[Any] | None = None,
    test: Iterable[Any] | None = None,
    **parts: Any,
) -> Outcome:
    """Train a recipe (a file, or a name listed by `heed recipes`) into a run folder, or continue the run there.

    overrides: options to change, ["training.steps=200"] or {"training.steps": 200}. parts: the same by keyword,
    model={"dim": 128}, seed=2. train, valid, test: the data as Python objects instead of the recipe's: (source, target) pairs,
    texts, or (label, text) tuples, depending on the task; they are stored in the run folder.

    >>> pairs = [(f"w{i} w{i + 1}", f"w{i + 1} w{i}") for i in range(20)]
    >>> small = {"dim": 16, "layers": 1, "heads": 2, "feed_forward": 32}
    >>> outcome = heedful.train("demo", run="new", train=pairs, valid=pairs, model=small, training={"steps": 2})
    >>> outcome.step
    2
    """
    watch = Stopwatch()
    path = find_recipe(os.fspath(recipe))
    changes = override_strings(overrides, parts)
    splits = {"train": train, "valid": valid, "test": test}
    objects = {split: list(examples) for split, examples in splits.items() if examples is not None}
    config = read_recipe(path, changes).config
    folder = Path(run) if run is not None else default_folder(config, path)
    if objects:
        require_run_folder(folder)
        entries = store_examples(find_task(config.task.name), objects, folder)
        config = read_recipe(
            path, [*changes, *(f"data.{option}={write_value(entry)}" for option, entry in entries.items())]
        ).config
    return train_config(config, folder, recipe=path, device=device, console=console, watch=watch)


def override_strings(overrides: Sequence[str] | Mapping[str, Any], parts: Mapping[str, Any]) -> list[str]:
    """Overrides in the syntax of the command line."""
    given = {} if not isinstance(overrides, Mapping) else dict(overrides)
    changes = [] if isinstance(overrides, Mapping) else list(overrides)
    for name, value in (given | dict(parts)).items():
        leaves = {f"{name}.{key}": one for key, one in value.items()} if isinstance(value, Mapping) else {name: value}
        changes += [f"{path}={value_as_toml(path, leaf)}" for path, leaf in leaves.items()]
    return changes


def store_examples(task: TaskDefinition, objects: Mapping[str, list[Any]], folder: Path) -> dict[str, Any]:
    """Write examples to the run folder and return the options of [data] that name them; other examples than those that a run
    was started with are an error."""
    missing = [split for split in ("train", "valid") if split not in objects]
    if missing:
        raise ConfigError(f"{missing[0]} is missing; expected train and valid, two lists of examples")
    entries: dict[str, Any] = {}
    for split, examples in objects.items():
        formatted = task.format_examples(examples)
        file = folder / "data" / f"{split}{formatted.suffix}"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            replace_text(file, formatted.text)
        elif read_bytes(file) != formatted.text.encode():
            raise DataError(
                f"{split} differs from the examples that {folder} was started with",
                hint="pass the same examples to continue the run, or choose another folder with run=",
            )
        entries |= {split: formatted.entry(str(file)), **formatted.data}
    return entries


def default_folder(config: Run, recipe: Path) -> Path:
    """The folder of a recipe's run; the config of a run folder belongs to that folder."""
    if recipe.name == facts.CONFIG:
        return recipe.parent
    return Path("runs") / f"{config.task.name}-{recipe.stem}"


def train_config(
    config: Run,
    folder: Path,
    *,
    recipe: Path | None = None,
    device: str | None = None,
    console: Console | None = None,
    watch: Stopwatch | None = None,
) -> Outcome:
    """`train` for a config that was already read, from this recipe; watch: started with the command, for training.minutes."""
    console = lenient(console or Console(stderr=True, highlight=False))
    where = build.choose_device(device)
    if str(where) == "cuda":  # without a number
        torch.cuda.set_device(local_rank() % torch.cuda.device_count())
    require_memory(config, where)
    if config.training.threads:
        torch.set_num_threads(config.training.threads)
    share_cores()
    watch = watch or Stopwatch()
    training = config.training
    with naming_folder(recipe), stop_requests() as stop, join(training.distributed, where, training.rank_timeout) as ranks:
        if not ranks.first:
            return train_with_first(folder, where, watch, stop, ranks)
        require_run_folder(folder)
        with run_folder.lock(folder):
            return train_locked(config, folder, where, console, watch, stop, recipe=recipe, ranks=ranks)


class Prepared(NamedTuple):
    """What rank 0 has prepared for the others; done: the run is finished already."""

    config: Run
    report: CheckReport | None
    done: Outcome | None


def train_locked(
    config: Run,
    folder: Path,
    device: torch.device,
    console: Console,
    watch: Stopwatch,
    stop: Stop,
    *,
    recipe: Path | None,
    ranks: Ranks,
) -> Outcome:
    """Prepare and train in a folder whose lock is held."""
    resumes = bool(retention.steps(folder / "checkpoints"))
    if resumes:
        stored, _ = read_folder(folder)
        config, choices = auto.resolve_as_stored(config, stored), ""
        refuse_changes(stored, with_dictionary(config, str(folder / facts.DICTIONARY)), folder)
        done = outcome_if_finished(config, folder)
        if done is not None:
            why = ""
            if done.step < config.training.steps:
                over = f"training.minutes={config.training.minutes:g} have passed" if config.training.minutes else ""
                why = f"; {over or f'no improvement in training.patience={config.training.patience} validations'}"
            print_line(console, f"{folder} is finished: {done.step} steps{why}")
            ranks.from_first(lambda: Prepared(config, None, done))
            return done
    else:
        require_initial_weights(config)
        given, config = config, auto.resolve(config, device)
        choices = auto.describe_choices(given, config)
    refuse_sharding(config, ranks)
    progress = make_progress(config, folder, console, watch)
    progress.print(describe_run(config, folder, device, ranks))
    if choices:
        progress.print(choices)
    data = build.data_of(config)
    report = build.check(config, data, progress.print)
    if resumes:
        refuse_changed_data(config, folder)
    else:
        record_data(config, folder)
    text = run_as_toml(with_dictionary(config, facts.DICTIONARY))
    facts.replace_config(folder, text) if resumes else replace_text(folder / facts.CONFIG, text)
    config = with_dictionary(config, str(folder / facts.DICTIONARY))
    tokenizers, corpora = prepare_data(config, folder, data, report)
    ranks.from_first(lambda: Prepared(config, report, None))
    trainer = make_trainer(config, folder, tokenizers, corpora, device, progress, ranks)
    if not resumes:
        facts.record_files(folder)
        trainer.advice = advise(config, device, recipe)
    with closing(progress.trackers):
        done = run_training(trainer, progress, stop)
    trainer.folder.check()
    find_task(config.task.name).finish(config, folder)
    replace_text(folder / CARD, model_card(config, folder, trainer, trainer.task.describe()))
    return done


def train_with_first(folder: Path, device: torch.device, watch: Stopwatch, stop: Stop, ranks: Ranks) -> Outcome:
    """Train on a rank other than 0, which writes nothing and reads what rank 0 has prepared."""

    def prepare() -> Prepared:
        raise AssertionError("rank 0 prepares")

    config, report, done = ranks.from_first(prepare)
    if done is not None:
        return done
    assert report is not None
    progress = NoProgress(folder / "metrics.jsonl", report_every=config.training.report_every, watch=watch)
    tokenizers, corpora = prepare_data(config, folder, build.data_of(config), report)
    return run_training(make_trainer(config, folder, tokenizers, corpora, device, progress, ranks), progress, stop)


def without_graphs(config: Run, ranks: Ranks, progress: Progress) -> Run:
    """The config without CUDA graphs and compilation if processes exchange data inside the loss."""
    training = config.training
    if not (config.task.compares_rows and ranks.size > 1 and (training.compile or training.cuda_graphs is True)):
        return config
    progress.print(
        "training.cuda_graphs and training.compile are off: examples are compared with those of other processes, and an "
        "exchange inside the loss cannot be captured"
    )
    return config.model_copy(update={"training": training.model_copy(update={"cuda_graphs": False, "compile": False})})


def refuse_sharding(config: Run, ranks: Ranks) -> None:
    """Raise an error if the weights cannot be sharded: all ranks must call the layers equally often in an update."""
    if ranks.sharded and config.task.searches_in_updates:
        raise ConfigError(
            "training.distributed: given 'fsdp', but task.sequence searches in every update, which needs all weights",
            hint="use training.distributed=ddp",
        )


def describe_run(config: Run, folder: Path, device: torch.device, ranks: Ranks) -> str:
    """One line on the length, device, processes, precision and folder of the run."""
    training = config.training
    length = counted(training.steps, "steps")
    if training.minutes:
        length = f"{training.minutes:g} {inflect('minutes', training.minutes)}, preparation included, or {length}"
    processes = f"{ranks.size} processes ({'fsdp' if ranks.sharded else 'ddp'}), " if ranks.exchanges else ""
    return f"training {length} on {device}, {processes}{training.precision}, into {folder}"


def require_initial_weights(config: Run) -> None:
    """Raise an error if training.init is not a run with a checkpoint, before any data is read."""
    if not config.training.init:
        return
    folder = Path(config.training.init)
    try:
        retention.resolve(folder)
    except CheckpointError as error:
        recipes = [name for name, path in all_recipes().items() if folder == default_folder(read_run(path).config, path)]
        hint = f"train it with `heed train {recipes[-1]}`" if recipes else error.hint
        raise CheckpointError(f"training.init: {error.args[0]}", hint=hint) from error


def require_run_folder(folder: Path) -> None:
    """Raise an error if the folder has files but is not a run folder, or if files of the run cannot be read; run.json is the
    first file of a run, apart from examples given as Python objects."""
    if folder.is_file():
        raise CheckpointError(f"{folder} is a file; expected a run folder", hint="choose another folder with --run")
    names = {path.name for path in list_folder(folder)}
    if facts.NAME in names:
        facts.require_readable_files(folder)
        list_folder(folder / facts.CHECKPOINTS)
    elif any(name not in (".lock", "data") and not name.startswith(TEMPORARY) for name in names):
        raise CheckpointError(
            f"{folder} exists and is not a run folder: it has no run.json",
            hint="choose another folder with --run",
        )


def refuse_changes(stored: Run, config: Run, folder: Path) -> None:
    """Raise an error if the run cannot be continued with this config."""
    different = differences(stored, config)
    if different:
        listed = "".join(f"\n  {line}" for line in different)
        raise ConfigError(
            f"{folder} is a run with another config:{listed}",
            hint=f"continue with its own config, `heed train {folder}`, or choose another folder with --run",
        )


def outcome_if_finished(config: Run, folder: Path) -> Outcome | None:
    """The outcome of a run that is finished; None if there is more to do. At the end, the parts of sharded checkpoints are
    joined, and the model card is written."""
    newest, _ = retention.newest(folder / "checkpoints")
    if newest is None:
        return None
    train_state, training = load_train_state(newest), config.training
    if not train_state.is_over(training.steps, 60 * training.minutes) and not 0 < training.patience <= train_state.stale:
        return None
    average = folder / "checkpoints" / "average"
    if config.training.average in ("last", "best") and (not verifies(average) or load_saved(average).step != train_state.step):
        return None
    if not (folder / CARD).exists() or is_sharded(newest) or is_sharded(retention.resolve(folder)):
        return None
    return read_outcome(folder, already_done=True)


def record_data(config: Run, folder: Path) -> None:
    """Record the data and environment of a new run, and remove the files of an attempt that left no checkpoint."""
    for name in (*facts.TOKENIZERS, "metrics.jsonl", samples_log.NAME, "splits.jsonl", TRACKING_ID, TENSORBOARD):
        if (folder / name).exists():
            remove(folder / name)
    facts.write_facts(folder, {"data": build.data_hashes(config), "environment": environment.describe()})
    store_dictionary(config, folder)


def store_dictionary(config: Run, folder: Path) -> None:
    """Copy search.dictionary into the run folder, so that the folder is self-contained."""
    given, own = config.search.dictionary, folder / facts.DICTIONARY
    if given is None:
        own.unlink(missing_ok=True)
    elif given != facts.DICTIONARY or not own.exists():
        replace_bytes(own, read_dictionary_file(given))


def read_dictionary_file(name: str) -> bytes:
    try:
        return read_bytes(Path(name))
    except OSError as error:
        raise unreadable(Path(name), error) from error


def refuse_changed_data(config: Run, folder: Path) -> None:
    """Raise an error if the data has changed since the run was started."""
    before = facts.read_facts(folder)["data"]
    changed = [name for name, digest in build.data_hashes(config).items() if before.get(name, digest) != digest]
    given, own = config.search.dictionary, folder / facts.DICTIONARY
    if given not in (None, facts.DICTIONARY) and read_dictionary_file(str(given)) != read_bytes(own):
        changed.append(str(given))
    if changed:
        raise DataError(
            f"{', '.join(changed)} changed since the run {folder} was started, so it cannot be continued",
            hint="restore the data, or train in another folder with --run",
        )


def describe_vocabularies(tokenizers: Sequence[Tokenizer]) -> str:
    """A description of both vocabularies, or of the shared one."""
    names = dict.fromkeys(tokenizer.description for tokenizer in tokenizers)
    return " -> ".join(names)


def make_progress(config: Run, folder: Path, console: Console, watch: Stopwatch) -> Progress:
    require_packages(config.training.trackers)
    return Progress(
        folder / "metrics.jsonl",
        report_every=config.training.report_every,
        unit=config.task.unit,
        perplexity="perplexity" in config.task.metrics,
        console=console,
        trackers=Trackers(config.training.trackers, folder, plain(config)),
        watch=watch,
    )


def prepare_data(config: Run, folder: Path, data: TaskData, report: CheckReport) -> tuple[Tokenizers, Any]:
    """The tokenizers of the run, and the data encoded with them."""
    tokenizers = build.make_tokenizers(config, folder, data)
    return tokenizers, data.prepare(tokenizers, report)


def first_batch(task: Task, folder: Path, ranks: Ranks) -> Any:
    """The share of the first rank of the batch that is trained on first, in a new or in a continued run."""
    epoch, cursor = 0, 0
    newest = retention.newest_shapes(folder / "checkpoints")
    with suppress(CheckpointError):  # a damaged state: an older checkpoint will be used
        if newest is not None:
            epoch, cursor = (state := load_train_state(newest[0])).epoch, state.cursor
    with closing(task.stream(epoch, cursor)) as stream:
        return task.split(next(stream).batch, ranks.size)[0]


def make_trainer(
    config: Run,
    folder: Path,
    tokenizers: Tokenizers,
    corpora: Any,
    device: torch.device,
    progress: Progress,
    ranks: Ranks | None = None,
) -> Trainer:
    """Build everything that training needs, from the model to the optimizer."""
    if ranks is not None:
        config = without_graphs(config, ranks, progress)
    if config.training.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    if device.type == "cpu":
        keep_freed_memory()
    require_memory(config, device, source_vocab=len(tokenizers[0]), target_vocab=len(tokenizers[1]))
    saved = retention.newest_shapes(folder / "checkpoints")
    with nullcontext() if saved is None else parameter_limit(saved[1], saved[0]):
        model = build.make_model(config, len(tokenizers[0]), len(tokenizers[1]))
    if config.training.init:
        warm_start(model, Path(config.training.init))
    build.fill_structures(config, model)
    placed = place_vectors(config, model, tokenizers, progress)
    model = model.to(device)
    task = build.make_task(config, model, tokenizers, corpora, ranks)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    progress.print(f"{parameters:,} parameters, {describe_vocabularies(tokenizers)}, {task.describe()}")
    if config.training.gates.penalty:
        head_gates.prepare(task, model, config.training.gates)
    shards = None
    if isinstance(ranks, Group) and ranks.sharded:
        system = build.make_system(config, [copy_without_weights(model)], tokenizers, device, ranks)
        validation = find_task(config.task.name).task(config, corpora, system)
        batch = first_batch(task, folder, ranks)
        units = find_units(model, model.blocks(), lambda: task.loss(model, batch))
        shards = Shards(model, units, ranks, Replica(system.models[0], validation, forget=system.engines.clear))
    if config.training.recompute:
        recompute_blocks(model.blocks())
    if config.training.compile:
        compile_task(task, device, progress.print)
    if config.training.cuda_graphs is True and device.type != "cuda":
        progress.print("training.cuda_graphs has no effect without a GPU")
    trainer = Trainer(
        model,
        task,
        config.training,
        folder,
        seed=config.seed,
        dim=config.model.dim,
        watch=progress.watch,
        ranks=ranks,
        shards=shards,
    )
    if config.training.gates.penalty:
        head_gates.add_gate_group(trainer.optimizer, model, config.training.gates.speed)
    if config.training.freeze_vectors:
        for table in placed:
            freeze_rows(table, trainer.optimizer)
    return trainer


def place_vectors(
    config: Run, model: Model, tokenizers: tuple[Tokenizer, Tokenizer], progress: Progress
) -> list[InitializedRows]:
    """Initialize the embeddings with the word vectors of training.vectors, if given."""
    if config.training.vectors is None:
        return []
    vectors = load_vectors(find_path(config.training.vectors))
    placed = initialize_embeddings(model, tokenizers, vectors, config.training.vectors_side)
    for side in placed:
        found, total = len(side.rows), side.table.num_embeddings
        progress.print(f"{found:,} of {total:,} embeddings initialized from {config.training.vectors}")
    return placed


def warm_start(model: Model, run: Path) -> None:
    """Load the weights of another run without the head of its task; a head or gates that it does not have keep their initial
    values."""
    chosen, body = retention.resolve(run), model.base_model
    initial = {f"{name}.out.log_a": log_a.detach() for name, log_a in gates(body).items()}
    load_into(body, initial | body_weights(inference_weights(chosen)), chosen)


def plan_run(config: Run, *, device: str | None = None, console: Console | None = None, updates: int = 6) -> dict[str, Any]:
    """Parameters, memory, tokens per epoch and the estimated duration of a run, from a few timed updates."""
    share_cores()
    console, where = console or Console(stderr=True, highlight=False), build.choose_device(device)
    config = auto.resolve(config, where)
    require_memory(config, where)
    require_initial_weights(config)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        progress = Progress(folder / "metrics.jsonl", report_every=10**9, console=console)
        data = build.data_of(config)
        report = build.check(config, data, progress.print)
        trainer = make_trainer(config, folder, *prepare_data(config, folder, data, report), where, progress)
        return measure(trainer, updates)
