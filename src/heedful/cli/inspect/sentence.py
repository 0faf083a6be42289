"""heed inspect: analyses of one text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from heedful.cli.inspect.present import Html, Picture, Run, present
from heedful.cli.output import COMMAND_LINE, Checkpoint, Device, Json, Search, print_message, require_suffix, warn_of_unknown
from heedful.config.bounds import MAX_SIZE, MAX_SMALL

if TYPE_CHECKING:
    from heedful.search import SearchConfig
    from heedful.tasks.predictor import Predictor

Text = Annotated[str, typer.Argument(help="The text to analyze.")]
Target = Annotated[str | None, typer.Option(help="Analyze this translation, or this label, instead of the model's own output.")]
KINDS = "encoder, decoder or cross; of a GPT: reading or within; of an encoder alone: self"


def attention(
    run: Run,
    text: Text,
    target: Target = None,
    search: Search = None,
    kind: Annotated[str | None, typer.Option(help=f"Kind of attention: {KINDS}.")] = None,
    layer: Annotated[int | None, typer.Option(min=0, max=MAX_SMALL, help="Layer of that kind, from 0.")] = None,
    head: Annotated[
        int | None, typer.Option(min=0, max=MAX_SMALL, help="Head of --layer, from 0: show its attention matrix.")
    ] = None,
    by: Annotated[
        Literal["weights", "norms", "rollout"],
        typer.Option(help="Attention weights, norms of the weighted values, or attention rollout."),
    ] = "weights",
    lines: Annotated[bool, typer.Option("--lines", help="Draw lines between tokens instead of a heatmap.")] = False,
    save: Annotated[
        Path | None,
        typer.Option(help="Write all weights and tokens to this .safetensors file.", callback=require_suffix(".safetensors")),
    ] = None,
    picture: Picture = None,
    html: Html = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Attention weights of every head, and the soft alignment of a translation."""
    from heedful import inspection
    from heedful.errors import ConfigError

    if lines and picture is None:
        raise ConfigError("--lines has no effect without --picture", hint="add --picture FILE")
    predictor = load(run, checkpoint, device)
    config = search_config(predictor, search)
    result = inspection.attention(predictor, text, target, config=config, kind=kind, layer=layer, head=head, by=by, lines=lines)
    if save is not None:
        result.save(save)
    present(result, json=json, picture=picture, html=html)
    if save is not None:
        print_message(f"wrote {save}")
    warn_of_unknown_words(predictor, text, target)


def lens(
    run: Run,
    text: Text,
    target: Target = None,
    search: Search = None,
    picture: Picture = None,
    html: Html = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Logit lens: the prediction of each layer."""
    from heedful import inspection

    predictor = load(run, checkpoint, device)
    result = inspection.lens(predictor, text, target, config=search_config(predictor, search))
    present(result, json=json, picture=picture, html=html)
    warn_of_unknown_words(predictor, text, target)


def alternatives(
    run: Run,
    text: Text,
    position: Annotated[int, typer.Option(min=0, max=MAX_SIZE, help="Target position, from 0.")] = 0,
    instead: Annotated[str | None, typer.Option(help="Force this token there and continue decoding.")] = None,
    target: Target = None,
    search: Search = None,
    html: Html = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Alternative tokens at a target position, with probabilities."""
    from heedful import inspection

    predictor = load(run, checkpoint, device)
    config = search_config(predictor, search)
    result = inspection.alternatives(predictor, text, position, instead=instead, target=target, config=config)
    present(result, json=json, html=html)
    warn_of_unknown_words(predictor, text, target)


def ablate(
    run: Run,
    text: Text,
    heads: Annotated[list[str], typer.Option("--head", help="A head to remove, as kind.layer.head: cross.0.2.")],
    target: Target = None,
    search: Search = None,
    html: Html = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """The output of the model without some heads."""
    from heedful import inspection

    predictor = load(run, checkpoint, device)
    result = inspection.ablate(predictor, text, heads, target=target, config=search_config(predictor, search))
    present(result, json=json, html=html)
    warn_of_unknown_words(predictor, text, target)


def patch(
    run: Run,
    text: Text,
    other: Annotated[str, typer.Option("--from", help="The text to patch into; best of the same length.")],
    target: Target = None,
    search: Search = None,
    picture: Picture = None,
    html: Html = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Activation patching between two texts."""
    from heedful import inspection

    predictor = load(run, checkpoint, device)
    result = inspection.patch(predictor, text, other, target=target, config=search_config(predictor, search))
    present(result, json=json, picture=picture, html=html)
    warn_of_unknown_words(predictor, text, target, other)


def saliency(
    run: Run,
    text: Text,
    target: Target = None,
    steps: Annotated[int, typer.Option(min=1, max=MAX_SMALL, help="Steps of integrated gradients; 1: gradient x input.")] = 1,
    search: Search = None,
    picture: Picture = None,
    html: Html = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Saliency of input tokens: gradient x input, compared with attention."""
    from heedful import inspection

    predictor = load(run, checkpoint, device)
    result = inspection.saliency(predictor, text, target, steps=steps, config=search_config(predictor, search))
    present(result, json=json, picture=picture, html=html)
    warn_of_unknown_words(predictor, text, target)


def report(
    run: Run,
    text: Annotated[str | None, typer.Argument(help="The text to analyze. Default: analyze the model alone.")] = None,
    include: Annotated[
        list[str] | None,
        typer.Option(
            help="An analysis: attention, lens, saliency, alternatives; of the model: summary, heads, positions, experts, "
            "cost. Default: all that apply to a text, or to the model."
        ),
    ] = None,
    target: Target = None,
    search: Search = None,
    html: Html = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Several analyses in one page."""
    from heedful import inspection

    predictor = load(run, checkpoint, device)
    result = inspection.report(predictor, text, include or (), target=target, config=search_config(predictor, search))
    present(result, json=json, html=html)
    if text is not None:
        warn_of_unknown_words(predictor, text, target)


def summary(run: Run, html: Html = None, checkpoint: Checkpoint = None, device: Device = None, json: Json = False) -> None:
    """Parts, parameters and attention layers of a model, and the analyses that apply to it."""
    from heedful import inspection

    present(inspection.summary(load(run, checkpoint, device)), json=json, html=html)


def load(run: Path, checkpoint: str | None, device: str | None) -> Predictor:
    from heedful.runs.load import load

    return load(run, checkpoint, device)


def document(
    run: Run,
    text: Annotated[str | None, typer.Argument(help="The text; or give --file.")] = None,
    file: Annotated[Path | None, typer.Option(help="Read the text from this file.")] = None,
    target: Annotated[str | None, typer.Option(help="The correct label, to be shown beside the predicted one.")] = None,
    picture: Picture = None,
    html: Html = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """A text with words and sentences shaded by the weights of attention pooling."""
    from heedful import inspection
    from heedful.data.input_lines import read_texts
    from heedful.errors import ConfigError

    if (text is None) == (file is None):
        given = "neither a text nor --file" if text is None else "both a text and --file"
        raise ConfigError(f"given {given}, expected one of them")
    content = text if file is None else "\n".join(read_texts(file))
    assert content is not None, "a text or a file was given"
    predictor = load(run, checkpoint, device)
    result = inspection.document(predictor, content, target)
    present(result, json=json, picture=picture, html=html)
    warn_of_unknown_words(predictor, content)


def image(
    run: Run,
    picture_file: Annotated[str, typer.Argument(metavar="IMAGE", help="The path of an image, or an image as a data URI.")],
    target: Annotated[str | None, typer.Option(help="Analyze this caption, or this label, instead of the model's own.")] = None,
    layer: Annotated[
        int | None, typer.Option(min=0, max=MAX_SMALL, help="Layer of the attention, from 0. Default: all.")
    ] = None,
    head: Annotated[int | None, typer.Option(min=0, max=MAX_SMALL, help="Head of --layer, from 0. Default: all.")] = None,
    search: Search = None,
    picture: Picture = None,
    html: Html = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """An image with its patches by the attention of each word of its caption, or of its label."""
    from heedful import inspection

    predictor = load(run, checkpoint, device)
    config = search_config(predictor, search)
    result = inspection.image(predictor, picture_file, target, layer=layer, head=head, config=config)
    present(result, json=json, picture=picture, html=html)
    warn_of_unknown_words(predictor, picture_file, target)


def graph(
    run: Run,
    text: Annotated[str | None, typer.Argument(help="The graph as JSON; or give --file or --nodes.", metavar="GRAPH")] = None,
    file: Annotated[Path | None, typer.Option(help="Read the graph from the first line of this file.")] = None,
    nodes: Annotated[Path | None, typer.Option(help="Table of nodes, instead of a graph as JSON.")] = None,
    edges: Annotated[Path | None, typer.Option(help="Table of edges, with --nodes. Default: there are none.")] = None,
    target: Annotated[str | None, typer.Option(help="Labels of the nodes. Default: the predicted ones.")] = None,
    layer: Annotated[int | None, typer.Option(help="Layer, from 0. Default: the mean of all.", min=0, max=MAX_SMALL)] = None,
    head: Annotated[int | None, typer.Option(help="Head, from 0. Default: the mean of all.", min=0, max=MAX_SMALL)] = None,
    picture: Picture = None,
    html: Html = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """A graph with the attention along its edges."""
    from itertools import islice

    from heedful import inspection
    from heedful.data.input_lines import read_texts
    from heedful.errors import ConfigError
    from heedful.tasks.node_classification.predictor import NodeClassifier

    given = [name for name, one in (("a graph", text), ("--file", file), ("--nodes", nodes)) if one is not None]
    if len(given) != 1:
        raise ConfigError(f"given {' and '.join(given) or 'no graph'}, expected one of: a graph, --file, --nodes")
    if edges is not None and nodes is None:
        raise ConfigError("--edges is given without --nodes; expected the table of nodes as well")
    predictor = load(run, checkpoint, device)
    if nodes is not None:
        content = NodeClassifier.of(predictor).table_text(nodes, edges)
    else:
        content = "".join(islice(read_texts(file), 1)) if file is not None else text or ""
    result = inspection.graph(predictor, content, target, layer=layer, head=head)
    present(result, json=json, picture=picture, html=html)


def search_config(predictor: Predictor, search: list[str] | None) -> SearchConfig | None:
    """The run's search options changed as given; None: nothing was given."""
    return predictor.search_config(search, origin=COMMAND_LINE) if search else None


def warn_of_unknown_words(predictor: Predictor, text: str, target: str | None = None, other: str | None = None) -> None:
    """Warn of words outside the vocabulary, as `heed translate` does."""
    unknown = predictor.unknown_words(text)
    if other is not None:
        unknown += [f"{word} (--from)" for word in predictor.unknown_words(other)]
    if target is not None and predictor.has_source:
        unknown += [f"{word} (--target)" for word in predictor.system.target_tokenizer.unknown_words(target)]
    warn_of_unknown(unknown)


def mount(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (summary, attention, lens, alternatives, ablate, patch, saliency, document, image, graph, report):
        app.command()(command)
