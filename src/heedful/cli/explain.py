"""heed explain: attention, loss, search and more, step by step, with the numbers of an example or of a trained model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli.output import (
    COMMAND_LINE,
    Checkpoint,
    Device,
    Json,
    Search,
    print_json,
    print_message,
    print_text,
    table,
    warn_of_unknown,
)
from heedful.config.bounds import MAX_SMALL
from heedful.storage.writing import output_file

if TYPE_CHECKING:
    from heedful.errors import ConfigError
    from heedful.inspection.explaining.stages import Explanation
    from heedful.inspection.explaining.trained import HeadChoice
    from heedful.search import SearchConfig

TopicOrRun = Annotated[str | None, typer.Argument(help="A topic or a run folder; default: list the topics.")]
Sentences = Annotated[list[str] | None, typer.Argument(help="For a run: the input sentence.")]


def explain(
    topic_or_run: TopicOrRun = None,
    sentences: Sentences = None,
    target: Annotated[
        list[str] | None, typer.Option(help="Its reference translation; default: the model's own translation.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="Kind of attention: cross, encoder, decoder, reading, within.")] = None,
    layer: Annotated[int, typer.Option(min=0, max=MAX_SMALL, help="Layer, counted from 0.")] = 0,
    head: Annotated[int, typer.Option(min=0, max=MAX_SMALL, help="Head, counted from 0.")] = 0,
    token: Annotated[str | None, typer.Option(help="The query: a token, or its index from 0.")] = None,
    step: Annotated[bool, typer.Option("--step", help="Explain one training step on the sentence.")] = False,
    tree: Annotated[bool, typer.Option("--tree", help="Explain the search tree of its translation.")] = False,
    batch: Annotated[bool, typer.Option("--batch", help="Explain how the sentences become a batch.")] = False,
    search: Search = None,
    html: Annotated[Path | None, typer.Option(help="Write the explanation as one HTML page.")] = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Explain attention, loss, search and more, step by step, with an example or with a trained model's own numbers."""
    from heedful.errors import ConfigError
    from heedful.inspection.explaining.trained import TOPICS, HeadChoice

    if topic_or_run is None:
        topics = {name: about for name, (about, _) in TOPICS.items()}
        print_json({"topics": topics}) if json else print_text(table([("topic", "about"), *topics.items()]))
        return
    modes = [name for name, enabled in (("step", step), ("tree", tree), ("batch", batch)) if enabled]
    if len(modes) > 1:
        raise ConfigError(
            f"--{modes[0]} and --{modes[1]} were given; expected one of them", hint="run the command once for each"
        )
    if topic_or_run in TOPICS:
        if sentences or modes or kind or layer or head or token or target or search:
            raise ConfigError(
                f"{topic_or_run!r} is a topic and takes no sentence, layer or head", hint="give a run folder to explain a model"
            )
        print_explanation(TOPICS[topic_or_run][1](), html, json)
        return
    if not Path(topic_or_run).exists():
        raise unknown_topic_error(topic_or_run, TOPICS)
    if not sentences:
        raise ConfigError(f"a sentence is missing; expected heed explain {topic_or_run} SENTENCE")
    if not all(sentence.strip() for sentence in sentences):
        raise ConfigError("an empty sentence was given; expected at least one word")
    if not all(text.strip() for text in target or []):
        raise ConfigError(
            "an empty target was given; expected at least one word", hint="omit --target to use the model's own translation"
        )
    mode, choice = modes[0] if modes else "head", HeadChoice(kind, layer, head, token)
    reject_unused_options(mode, choice, target or [])
    if mode != "batch" and len(sentences) > 1:
        raise ConfigError(
            f"{len(sentences)} sentences were given; expected one, in quotes", hint="use --batch for several sentences"
        )
    from heedful.runs.load import load

    worker = load(topic_or_run, checkpoint, device)
    explanation = explain_run(worker, mode, sentences, target, choice, worker.search_config(search or [], origin=COMMAND_LINE))
    source_tokenizer, target_tokenizer = worker.system.source_tokenizer, worker.system.target_tokenizer
    unknown = [word for text in sentences for word in source_tokenizer.unknown_words(text)]
    unknown += [word for text in target or [] for word in target_tokenizer.unknown_words(text)]
    warn_of_unknown(list(dict.fromkeys(unknown)))
    print_explanation(explanation, html, json)


def reject_unused_options(mode: str, choice: HeadChoice, targets: list[str]) -> None:
    """Raise an error for options that have no effect in this mode."""
    from heedful.errors import ConfigError

    unused = [f"--{name}" for name, value in choice._asdict().items() if value] if mode != "head" else []
    unused += ["--target"] if mode == "tree" and targets else []
    if unused:
        raise ConfigError(f"{unused[0]} was given, which has no effect with --{mode}", hint="remove one of them")
    if len(targets) > 1 and mode != "batch":
        raise ConfigError(f"{len(targets)} targets were given; expected one", hint="use --batch for several sentences")


def explain_run(
    worker: Any, mode: str, sentences: list[str], targets: list[str] | None, choice: HeadChoice, config: SearchConfig
) -> Explanation:
    """Explain a trained model on one sentence, or on several with --batch."""
    from heedful.errors import ConfigError
    from heedful.inspection.explaining import trained as explain
    from heedful.inspection.explaining.training_step import explain_step, smoothing_config

    system, task, target = worker.system, worker.run.task, targets[0] if targets else None
    if task.name == "language" and mode == "head" and targets is None:
        return explain.explain_head_alone(system, sentences[0], choice)
    if task.name != "translation":
        raise ConfigError(
            f"this is a run of task {task.name!r}; expected task 'translation'",
            hint="explain a head of a language model by one sentence, without --target" if task.name == "language" else None,
        )
    if mode == "step":
        return explain_step(system, sentences[0], smoothing_config(task), config, target)
    if mode == "tree":
        return explain.explain_search(system, sentences[0], config)
    if mode == "batch":
        return explain.explain_batch(system, sentences, config, targets)
    return explain.explain_head(system, sentences[0], choice, config, target)


def print_explanation(explanation: Explanation, html: Path | None, json: bool) -> None:
    from heedful.inspection.explaining import stages, text
    from heedful.inspection.explaining.html import render

    if html is not None:
        with output_file(html) as file:
            file.write(render(explanation))
        print_message(f"written to {html}")
    if json:
        print_json(stages.as_json(explanation))
    elif html is None:
        print_text(text.render(explanation))


def unknown_topic_error(given: str, topics: Mapping[str, Any]) -> ConfigError:
    """The error for an argument that is neither a topic nor a folder."""
    from heedful.errors import ConfigError, nearest

    close = nearest(given, topics)
    return ConfigError(
        f"{given!r} is neither a topic nor a run folder; the topics are: {', '.join(topics)}",
        hint=f"did you mean {close!r}?" if close else None,
    )
