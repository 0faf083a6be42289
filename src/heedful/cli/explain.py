"""heed explain: attention and what stands around it, with real numbers; those of worked examples, or a trained model's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.bounds import MAX_SMALL
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
from heedful.storage.writing import output_file

if TYPE_CHECKING:
    from heedful.errors import ConfigError
    from heedful.inspection.explaining.stages import Explanation
    from heedful.search import SearchConfig
    from heedful.studies.explain import HeadChoice

What = Annotated[str | None, typer.Argument(help="A topic, or a run folder; without it the topics are listed.")]
Sentences = Annotated[list[str] | None, typer.Argument(help="For a run: the sentence to explain it by.")]


def explain(
    what: What = None,
    sentences: Sentences = None,
    target: Annotated[list[str] | None, typer.Option(help="Its translation; the model's own unless given.")] = None,
    kind: Annotated[str | None, typer.Option(help="Of attention: cross, encoder, decoder, reading, within.")] = None,
    layer: Annotated[int, typer.Option(min=0, max=MAX_SMALL, help="Counted from 0.")] = 0,
    head: Annotated[int, typer.Option(min=0, max=MAX_SMALL, help="Counted from 0.")] = 0,
    token: Annotated[str | None, typer.Option(help="Whose look to show: a token, or its number from 0.")] = None,
    step: Annotated[bool, typer.Option("--step", help="One training step on the sentence.")] = False,
    tree: Annotated[bool, typer.Option("--tree", help="The search tree of its translation.")] = False,
    batch: Annotated[bool, typer.Option("--batch", help="The sentences as a batch being prepared.")] = False,
    search: Search = None,
    html: Annotated[Path | None, typer.Option(help="Write it as one HTML page.")] = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Walk through attention, loss, search, …, with worked examples or with a trained model's own numbers."""
    from heedful.errors import ConfigError
    from heedful.studies.explain import TOPICS, HeadChoice

    if what is None:
        listed = {name: about for name, (about, _) in TOPICS.items()}
        print_json({"topics": listed}) if json else print_text(table([("topic", "about"), *listed.items()]))
        return
    ways = [name for name, wanted in (("step", step), ("tree", tree), ("batch", batch)) if wanted]
    if len(ways) > 1:
        raise ConfigError(f"--{ways[0]} and --{ways[1]} were given; expected one of them", hint="run the command once for each")
    if what in TOPICS:
        if sentences or ways or kind or layer or head or token or target or search:
            raise ConfigError(
                f"{what!r} is a topic and takes no sentence, layer or head", hint="for a model, name its run first"
            )
        show(TOPICS[what][1](), html, json)
        return
    if not Path(what).exists():
        raise unknown(what, TOPICS)
    if not sentences:
        raise ConfigError(f"a sentence is missing; expected heed explain {what} SENTENCE")
    if not all(sentence.strip() for sentence in sentences):
        raise ConfigError("an empty sentence was given; expected one that has words")
    if not all(one.strip() for one in target or []):
        raise ConfigError("an empty target was given; expected one that has words, or no --target for the model's own")
    way, choice = ways[0] if ways else "head", HeadChoice(kind, layer, head, token)
    refuse_idle(way, choice, target or [])
    if way != "batch" and len(sentences) > 1:
        raise ConfigError(f"{len(sentences)} sentences were given; expected one, in quotes", hint="only --batch takes several")
    from heedful.build import load

    worker = load(what, checkpoint, device)
    explanation = explained(worker, way, sentences, target, choice, worker.search_config(search or [], origin=COMMAND_LINE))
    read, write = worker.system.source_tokenizer, worker.system.target_tokenizer
    strange = [word for text in sentences for word in read.unknown_words(text)]
    strange += [word for text in target or [] for word in write.unknown_words(text)]
    warn_of_unknown(list(dict.fromkeys(strange)))
    show(explanation, html, json)


def refuse_idle(way: str, choice: HeadChoice, targets: list[str]) -> None:
    """What is said of a head says nothing of a step, a search or a batch."""
    from heedful.errors import ConfigError

    idle = [f"--{name}" for name, value in choice._asdict().items() if value] if way != "head" else []
    idle += ["--target"] if way == "tree" and targets else []
    if idle:
        raise ConfigError(f"{idle[0]} was given, which has no effect with --{way}", hint="leave one of them out")
    if len(targets) > 1 and way != "batch":
        raise ConfigError(f"{len(targets)} targets were given; expected one", hint="only --batch takes several")


def explained(
    worker: Any, way: str, sentences: list[str], targets: list[str] | None, choice: HeadChoice, config: SearchConfig
) -> Explanation:
    """What a trained model does with a sentence."""
    from heedful.errors import ConfigError
    from heedful.studies import explain
    from heedful.studies.explain_step import explain_step, smoothing_of

    system, task, target = worker.system, worker.run.task, targets[0] if targets else None
    if task.name == "language" and way == "head" and targets is None:
        return explain.explain_head_alone(system, sentences[0], choice)
    if task.name != "translation":
        raise ConfigError(
            f"this is a run of task {task.name!r}; expected one of 'translation'",
            hint="of a language model a head can be explained, without --target" if task.name == "language" else None,
        )
    if way == "step":
        return explain_step(system, sentences[0], smoothing_of(task), config, target)
    if way == "tree":
        return explain.explain_search(system, sentences[0], config)
    if way == "batch":
        return explain.explain_batch(system, sentences, config, targets)
    return explain.explain_head(system, sentences[0], choice, config, target)


def show(explanation: Explanation, html: Path | None, json: bool) -> None:
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


def unknown(what: str, topics: Mapping[str, Any]) -> ConfigError:
    """Neither a topic nor a folder."""
    from heedful.errors import ConfigError, nearest

    close = nearest(what, topics)
    return ConfigError(
        f"{what!r} is neither a topic nor a run folder; the topics are: {', '.join(topics)}",
        hint=f"did you mean {close!r}?" if close else None,
    )
