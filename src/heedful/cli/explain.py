"""heed explain: attention, loss, search and more, step by step, with the numbers of an example or of a trained model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli.inspect.present import Html
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

if TYPE_CHECKING:
    from heedful.errors import ConfigError
    from heedful.inspection.explaining.stages import Explanation
    from heedful.tasks.predictor import Predictor

TopicOrRun = Annotated[str | None, typer.Argument(help="A topic or a run folder; default: list the topics.")]
Texts = Annotated[list[str] | None, typer.Argument(help="For a run: the input text.")]


def explain(
    topic_or_run: TopicOrRun = None,
    texts: Texts = None,
    target: Annotated[
        list[str] | None, typer.Option(help="Its reference translation, or its label; default: the model's own output.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="Kind of attention: cross, encoder, decoder, reading, within, self.")] = None,
    layer: Annotated[int, typer.Option(min=0, max=MAX_SMALL, help="Layer, counted from 0.")] = 0,
    head: Annotated[int, typer.Option(min=0, max=MAX_SMALL, help="Head, counted from 0.")] = 0,
    token: Annotated[str | None, typer.Option(help="The query: a token, or its index from 0.")] = None,
    step: Annotated[bool, typer.Option("--step", help="Explain one training step on the text.")] = False,
    tree: Annotated[bool, typer.Option("--tree", help="Explain the search tree of its output.")] = False,
    batch: Annotated[bool, typer.Option("--batch", help="Explain how the texts become a batch.")] = False,
    search: Search = None,
    html: Html = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Explain attention, loss, search and more, step by step, with an example or with a trained model's own numbers."""
    from heedful import inspection
    from heedful.errors import ConfigError
    from heedful.inspection.explaining.trained import TOPICS

    if topic_or_run is None:
        topics = {name: about for name, (about, _) in TOPICS.items()}
        print_json({"topics": topics}) if json else print_text(table([("topic", "about"), *topics.items()]))
        return
    about = [name for name, enabled in (("step", step), ("tree", tree), ("batch", batch)) if enabled]
    if len(about) > 1:
        raise ConfigError(
            f"--{about[0]} and --{about[1]} were given; expected one of them", hint="run the command once for each"
        )
    options: dict[str, Any] = {"about": about[0] if about else "head", "target": target}
    options |= {"kind": kind, "layer": layer, "head": head, "token": token}
    if topic_or_run in TOPICS:
        if search:
            raise ConfigError(f"--search has no effect on the topic {topic_or_run!r}", hint="remove -s")
        print_explanation(inspection.explain(topic_or_run, texts, **options), html, json)
        return
    if not Path(topic_or_run).exists():
        raise unknown_topic_error(topic_or_run, TOPICS)
    if not texts:
        raise ConfigError(f"a text is missing; expected heed explain {topic_or_run} TEXT")
    from heedful.runs.load import load

    predictor = load(topic_or_run, checkpoint, device)
    config = predictor.search_config(search, origin=COMMAND_LINE) if search else None
    explanation = inspection.explain(predictor, texts, config=config, **options)
    warn_of_unknown_words(predictor, texts, target or [])
    print_explanation(explanation, html, json)


def warn_of_unknown_words(predictor: Predictor, texts: list[str], targets: list[str]) -> None:
    unknown = [word for text in texts for word in predictor.unknown_words(text)]
    if predictor.has_source:
        unknown += [word for text in targets for word in predictor.system.target_tokenizer.unknown_words(text)]
    warn_of_unknown(list(dict.fromkeys(unknown)))


def print_explanation(explanation: Explanation, html: Path | None, json: bool) -> None:
    """Print the explanation, or write it as a page."""
    if html is not None:
        explanation.save(html)
        print_message(f"wrote {html}")
    if json:
        print_json(explanation.to_dict())
    elif html is None:
        print_text(explanation.text())


def unknown_topic_error(given: str, topics: Mapping[str, Any]) -> ConfigError:
    """The error for an argument that is neither a topic nor a folder."""
    from heedful.errors import ConfigError, nearest

    close = nearest(given, topics)
    return ConfigError(
        f"{given!r} is neither a topic nor a run folder; the topics are: {', '.join(topics)}",
        hint=f"did you mean {close!r}?" if close else None,
    )
