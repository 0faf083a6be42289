"""heed inspect: analyze a trained model.

REQUIRES lists what each option depends on, VIEWS which module computes each view; an option without effect is an error.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

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
    warn_of_unknown,
)
from heedful.config.bounds import MAX_COUNT, MAX_SIZE, MAX_SMALL

if TYPE_CHECKING:
    from heedful.inspection.report import Section
    from heedful.tasks.predictor import Predictor

REQUIRES: dict[str, tuple[tuple[str, ...], ...]] = {  # option -> at least one name of each tuple must be given
    **dict.fromkeys(("target", "search", "kind", "save", "lens", "alternatives"), (("sentence",),)),
    **dict.fromkeys(("saliency", "patch_from", "without"), (("sentence",),)),
    "html": (("sentence", "heads", "positions", "experts", "cost"),),
    "layer": (("kind",),),
    "head": (("layer",),),
    "by": (("kind",),),
    "lines": (("picture",), ("layer",)),
    "picture": (("sentence", "heads", "positions"),),
    "instead": (("alternatives",),),
    "data": (("heads",),),
    "conllu": (("heads",),),
    "sentences": (("heads", "positions", "experts"),),
    **dict.fromkeys(("rows", "tokens"), (("cost",),)),
}
SUFFIXES = {"html": (".html",), "save": (".safetensors",), "picture": (".svg", ".png")}


class View(NamedTuple):
    """A module with compute(worker, …), format_text(result) and, for the report, format_blocks(result)."""

    module: str
    title: str  # of its section in the report; "": it has none
    arguments: tuple[str, ...]  # passed to compute where they are given
    options: tuple[str, ...]  # any of these requests the view


DRAWABLE = ("kind", "lens", "saliency", "patch_from")  # pictures of a sentence besides its alignment
INTERVENTIONS = ("alternatives", "saliency", "patch_from", "without")
VIEWS: dict[str, View] = {
    "heads": View("heads", "Roles of the heads", ("data", "conllu", "sentences", "json"), ("heads",)),
    "positions": View("positions", "Positional encodings", ("sentences",), ("positions",)),
    "experts": View("experts", "Expert utilization", ("sentences",), ("experts",)),
    "cost": View("cost", "Cost", ("rows", "tokens"), ("cost",)),
    "lens": View("lens", "Logit lens", ("sentence", "target", "search"), ("lens",)),
    "interventions": View("interventions", "Interventions", ("sentence", "requested", "target", "search"), INTERVENTIONS),
    "sentence": View("sentence", "", ("inspection", "selection"), ("kind",)),  # the default for a sentence
    "model": View("summary", "", (), ()),  # the default without a sentence
}


def inspect(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    sentence: Annotated[str | None, typer.Argument(help="The sentence to analyze. Default: summarize the model.")] = None,
    target: Annotated[str | None, typer.Option(help="Analyze this translation instead of the model's own.")] = None,
    search: Search = None,
    kind: Annotated[
        str | None, typer.Option(help="Kind of attention: encoder, decoder or cross; of a GPT: reading or within.")
    ] = None,
    layer: Annotated[int | None, typer.Option(min=0, max=MAX_SMALL, help="Layer of that kind, from 0.")] = None,
    head: Annotated[
        int | None,
        typer.Option(min=0, max=MAX_SMALL, help="Head of --layer, from 0: show its full attention matrix."),
    ] = None,
    by: Annotated[
        Literal["weights", "norms", "rollout"] | None,
        typer.Option(help="Attention weights, norms of the weighted values, or attention rollout. Default: weights."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Draw to this .svg or .png file; --heads and --positions also .pdf.")
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Draw lines between tokens instead of a heatmap.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the report as one self-contained HTML file.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write all attention weights and tokens to this .safetensors file.")] = None,
    heads: Annotated[bool, typer.Option("--heads", help="Role and importance of each head, over a corpus.")] = False,
    positions: Annotated[bool, typer.Option("--positions", help="Positional encodings, and loss by length.")] = False,
    experts: Annotated[bool, typer.Option("--experts", help="Expert utilization, over a corpus.")] = False,
    cost: Annotated[bool, typer.Option("--cost", help="Parameters, FLOP and memory of every part.")] = False,
    lens: Annotated[bool, typer.Option("--lens", help="Logit lens: next-token predictions of each layer.")] = False,
    saliency: Annotated[bool, typer.Option("--saliency", help="Gradient x input, compared with attention.")] = False,
    alternatives: Annotated[
        int | None, typer.Option(min=0, max=MAX_SIZE, help="Alternative tokens at this target position, from 0.")
    ] = None,
    instead: Annotated[str | None, typer.Option(help="With --alternatives: force this token and continue decoding.")] = None,
    patch_from: Annotated[str | None, typer.Option(help="Activation patching: another source sentence to patch from.")] = None,
    without: Annotated[list[str] | None, typer.Option(help="Translate without a head: cross.0.2.")] = None,
    data: Annotated[Path | None, typer.Option(help="Sentences for --heads: source TAB target TAB alignment.")] = None,
    conllu: Annotated[Path | None, typer.Option(help="Dependency trees for --heads, as CoNLL-U.")] = None,
    sentences: Annotated[
        int | None, typer.Option(min=1, max=MAX_COUNT, help="Sentences for --heads, --positions, --experts. Default: 200.")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, max=MAX_SIZE, help="Batch size for --cost. Default: 32.")] = None,
    tokens: Annotated[
        int | None, typer.Option(min=1, max=MAX_SIZE, help="Tokens per sentence for --cost. Default: 32.")
    ] = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Analyze a model: attention, alignment, heads, positions, interventions.

    Prints text; --picture draws a figure, --html writes a report. `heed inspect RUN` lists the views of a run."""
    given = {name: value for name, value in locals().items() if value is not None and value is not False and value != []}
    check_options(given)
    from heedful.runs.load import load

    worker = load(run, checkpoint, device)
    arguments = given | inspect_sentence(worker, given) if sentence is not None else given
    outcomes = {name: compute_view(worker, VIEWS[name], arguments) for name in select_views(given)}
    results = {name: result for name, (result, _) in outcomes.items()}
    paths = write_files(worker, arguments, results)
    if json:
        print_json(results | {"checkpoint": str(worker.checkpoint)})
    else:
        print_text("\n\n".join(text for _, text in outcomes.values()))
    for path in paths:
        print_message(f"wrote {path}")
    warn_of_unknown_words(worker, given)


def warn_of_unknown_words(worker: Predictor, given: dict[str, Any]) -> None:
    """Warn of words outside the vocabulary, as `heed translate` does."""
    system, is_language_model = worker.system, worker.run.task.name == "language"
    source = system.target_tokenizer if is_language_model else system.source_tokenizer
    tokenizers = {"sentence": source, "patch_from": source, "target": system.target_tokenizer}
    unknown = [(name, word) for name, one in tokenizers.items() if name in given for word in one.unknown_words(given[name])]
    warn_of_unknown([word if name == "sentence" else f"{word} ({flag(name)})" for name, word in unknown])


def check_options(given: dict[str, Any]) -> None:
    """Raise an error for the first option that would have no effect."""
    from heedful.errors import ConfigError

    def spelled(names: tuple[str, ...]) -> str:
        return " or ".join("a sentence" if name == "sentence" else flag(name) for name in names)

    for name, requirements in REQUIRES.items():
        for names in requirements if name in given else ():
            if not any(other in given for other in names):
                raise ConfigError(f"{flag(name)} has no effect without {spelled(names)}", hint="see heed inspect --help")
    for name in ("sentence", "target", "patch_from"):
        if name in given and not given[name].strip():
            option = "" if name == "sentence" else f"{flag(name)}: "
            raise ConfigError(f"{option}given an empty sentence, expected at least one word")
    corpus = [flag(name) for name in ("heads", "positions", "experts", "cost") if name in given]
    of_sentence = ("html", "save", "picture", "kind", "lens", *INTERVENTIONS)
    if "sentence" in given and corpus and not any(name in given for name in of_sentence):
        raise ConfigError(f"a sentence has no effect on {corpus[0]}", hint="add --html to write both into one report")
    is_rollout = given.get("by") == "rollout"
    if is_rollout and "head" in given:
        raise ConfigError("--by rollout merges all heads of a layer and has no effect with --head", hint="remove --head")
    if "lines" in given and not is_rollout and "head" not in given:
        raise ConfigError("--lines draws one head, but --head is missing", hint="add --head N")
    for option, suffixes in SUFFIXES.items():
        is_checked = option != "picture" or "sentence" in given  # --heads and --positions can write other formats
        if option in given and is_checked and given[option].suffix not in suffixes:
            raise ConfigError(f"{flag(option)}: given {str(given[option])!r}, expected a file name in {' or '.join(suffixes)}")
    if "picture" in given and sum(name in given for name in ("sentence", "heads", "positions")) > 1:
        raise ConfigError("--picture draws one view; expected only one of: a sentence, --heads, --positions")
    drawable = [flag(name) for name in DRAWABLE if name in given]
    if "picture" in given and len(drawable) > 1:
        raise ConfigError(f"--picture draws one view; given {' and '.join(drawable)}")
    not_drawable = [flag(name) for name in INTERVENTIONS if name in given and name not in DRAWABLE]
    if "picture" in given and not_drawable and not drawable:
        expected = f"expected one of: {', '.join(map(flag, DRAWABLE))}"
        raise ConfigError(f"{not_drawable[0]} has no picture; {expected}", hint="remove --picture")


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def select_views(given: dict[str, Any]) -> list[str]:
    """The requested views; default: the sentence, or without one the model."""
    requested = [name for name, view in VIEWS.items() if any(option in given for option in view.options)]
    return requested or ["sentence" if "sentence" in given else "model"]


def inspect_sentence(worker: Predictor, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments that several views share: selected maps, requested interventions and, where needed, the inspection."""
    from heedful.errors import ConfigError
    from heedful.inspection.analyses.attention import inspect
    from heedful.inspection.analyses.interventions import Interventions
    from heedful.inspection.analyses.sentence_text import Selection

    task = worker.run.task.name
    if task not in ("translation", "language"):
        raise ConfigError(f"given a sentence and a run of task {task!r}, expected a run of: translation, language")
    without_effect = [flag(name) for name in ("target", "search") if name in given and task == "language"]
    if without_effect:
        raise ConfigError(f"{without_effect[0]} has no effect in a run of task 'language', which does not translate")
    selection = Selection(**{name: given[name] for name in Selection._fields if name in given})
    requested = Interventions(**{name: given[name] for name in Interventions._fields if name in given})
    arguments = {"selection": selection, "requested": requested}
    writes_maps = any(option in given for option in SUFFIXES) and not is_report_without_maps(worker, given)
    if "sentence" not in select_views(given) and not writes_maps:
        return arguments
    config = worker.search_config(given.get("search", []), origin=COMMAND_LINE) if task == "translation" else None
    inspection = inspect(worker.system, given["sentence"], config, given.get("target"), describe_run(worker))
    return arguments | {"inspection": inspection}


def is_report_without_maps(worker: Predictor, given: dict[str, Any]) -> bool:
    """Whether the only file is the report and the model has no attention to show in it."""
    return not worker.model.attentions() and not any(option in given for option in ("save", "picture"))


def describe_run(worker: Predictor) -> list[str]:
    return [worker.run.model.family, worker.checkpoint.parent.parent.name]


def compute_view(worker: Predictor, view: View, arguments: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The result of a view, and its text."""
    module = import_module(f"heedful.cli.inspecting.{view.module}")
    result = module.compute(worker, **{name: arguments[name] for name in view.arguments if name in arguments})
    return result, module.format_text(result)


def write_files(worker: Predictor, arguments: dict[str, Any], results: dict[str, dict[str, Any]]) -> list[Path]:
    """Write the requested files and return their paths."""
    from heedful.inspection.analyses.attention import Page

    if "html" in arguments:
        sections = tuple(report_section(VIEWS[name], result) for name, result in results.items() if VIEWS[name].title)
        family, name = describe_run(worker)
        page = (
            arguments["inspection"]._replace(sections=sections) if "inspection" in arguments else Page(name, [family], sections)
        )
        page.save(arguments["html"])
    if "save" in arguments:
        arguments["inspection"].save(arguments["save"])
    if "picture" in arguments:
        draw_picture(arguments, results)
    return [arguments[option] for option in ("html", "save", "picture") if option in arguments]


def report_section(view: View, result: dict[str, Any]) -> Section:
    from heedful.inspection.report import Section

    return Section(view.title, import_module(f"heedful.cli.inspecting.{view.module}").format_blocks(result), result)


def draw_picture(arguments: dict[str, Any], results: dict[str, dict[str, Any]]) -> None:
    if "inspection" in arguments:
        from heedful.inspection.analyses.sentence_figures import draw

        path, lines = arguments["picture"], "lines" in arguments
        draw(arguments["inspection"], arguments["selection"], path, lines=lines, results=results)
        return
    name = next(name for name in ("heads", "positions") if name in arguments)
    import_module(f"heedful.cli.inspecting.{name}").draw(results[name], arguments["picture"])
