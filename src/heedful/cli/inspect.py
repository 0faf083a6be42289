"""heed inspect: what a trained model looks at.

What each question needs and who answers it stands in two tables; an option that would have no effect is refused.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from heedful.bounds import MAX_COUNT, MAX_SIZE, MAX_SMALL
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

if TYPE_CHECKING:
    from heedful.inspection.report import Section
    from heedful.predictor import Predictor

NEEDS: dict[str, tuple[tuple[str, ...], ...]] = {  # option -> all of these, of each one or another
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
ENDINGS = {"html": (".html",), "save": (".safetensors",), "picture": (".svg", ".png")}


class Part(NamedTuple):
    """A question that another module answers by found(worker, …), as_text(found), and on a page as_blocks(found)."""

    module: str
    title: str
    takes: tuple[str, ...]  # of what is known, by name
    asked_by: tuple[str, ...]  # options, one of which asks for it


DRAWN = ("kind", "lens", "saliency", "patch_from")  # of a sentence, beside its alignment
INTERVENTIONS = ("alternatives", "saliency", "patch_from", "without")
PARTS: dict[str, Part] = {
    "heads": Part("heads", "What each head does", ("data", "conllu", "sentences", "json"), ("heads",)),
    "positions": Part("positions", "Positions", ("sentences",), ("positions",)),
    "experts": Part("experts", "Experts", ("sentences",), ("experts",)),
    "cost": Part("cost", "Cost", ("rows", "tokens"), ("cost",)),
    "lens": Part("lens", "What each layer would say", ("sentence", "target", "search"), ("lens",)),
    "interventions": Part("interventions", "Interventions", ("sentence", "asked", "target", "search"), INTERVENTIONS),
    "sentence": Part("sentence", "", ("seen", "where"), ("kind",)),  # also where a sentence is all that was given
    "model": Part("summary", "", (), ()),  # where nothing was
}


def inspect(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    sentence: Annotated[str | None, typer.Argument(help="What to look at; without it, the model is described.")] = None,
    target: Annotated[str | None, typer.Option(help="Look at this translation instead of the one that is found.")] = None,
    search: Search = None,
    kind: Annotated[str | None, typer.Option(help="encoder, decoder, cross; of a GPT: reading, within.")] = None,
    layer: Annotated[int | None, typer.Option(min=0, max=MAX_SMALL, help="Of that kind, from 0.")] = None,
    head: Annotated[int | None, typer.Option(min=0, max=MAX_SMALL, help="Of that layer, from 0: its map in full.")] = None,
    by: Annotated[
        Literal["weights", "norms", "rollout"] | None, typer.Option(help="What is shown; weights unless said.")
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="Draw to this .svg or .png; heads, positions: or .pdf.")] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Draw lines between tokens instead of a matrix.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the report, one file that needs nothing else.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write all maps and tokens to this .safetensors.")] = None,
    heads: Annotated[bool, typer.Option("--heads", help="What each head does, over a corpus.")] = False,
    positions: Annotated[bool, typer.Option("--positions", help="The position schemes.")] = False,
    experts: Annotated[bool, typer.Option("--experts", help="Who of a mixture does the work, over a corpus.")] = False,
    cost: Annotated[bool, typer.Option("--cost", help="Parameters, work and memory.")] = False,
    lens: Annotated[bool, typer.Option("--lens", help="What each layer would say next.")] = False,
    saliency: Annotated[bool, typer.Option("--saliency", help="Gradient x input beside attention.")] = False,
    alternatives: Annotated[
        int | None, typer.Option(min=0, max=MAX_SIZE, help="What else might be said at this target token.")
    ] = None,
    instead: Annotated[str | None, typer.Option(help="Say this token there and go on from it.")] = None,
    patch_from: Annotated[str | None, typer.Option(help="Another sentence whose inner states are put in.")] = None,
    without: Annotated[list[str] | None, typer.Option(help="Translate without a head: cross.0.2.")] = None,
    data: Annotated[Path | None, typer.Option(help="Sentences for --heads: source TAB target TAB alignment.")] = None,
    conllu: Annotated[Path | None, typer.Option(help="Trees for --heads.")] = None,
    sentences: Annotated[
        int | None, typer.Option(min=1, max=MAX_COUNT, help="How many for --heads, --positions, --experts.")
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=1, max=MAX_SIZE, help="Sentences at a time for --cost; 32 unless said.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(min=1, max=MAX_SIZE, help="Of each sentence for --cost; 32 unless said.")
    ] = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Look inside a model: attention, alignment, heads, positions, what if; as text, as pictures, or as a page."""
    given = {name: value for name, value in locals().items() if value is not None and value is not False and value != []}
    refuse_idle(given)
    from heedful.build import load

    worker = load(run, checkpoint, device)
    known = given | looked(worker, given) if sentence is not None else given
    answers = {name: answer(worker, PARTS[name], known) for name in asked(given)}
    found = {name: one for name, (one, _) in answers.items()}
    paths = written(worker, known, answers)
    if json:
        print_json(found | {"checkpoint": str(worker.checkpoint)})
    else:
        print_text("\n\n".join(text for _, text in answers.values()))
    for path in paths:
        print_message(f"written: {path}")
    warn_of_strangers(worker, given)


def warn_of_strangers(worker: Predictor, given: dict[str, Any]) -> None:
    """As `heed translate` does, of words that the model does not know."""
    system, speaks = worker.system, worker.run.task.name == "language"
    source = system.target_tokenizer if speaks else system.source_tokenizer
    texts = {"sentence": source, "patch_from": source, "target": system.target_tokenizer}
    told = [(name, word) for name, one in texts.items() if name in given for word in one.unknown_words(given[name])]
    warn_of_unknown([word if name == "sentence" else f"{word} ({flag(name)})" for name, word in told])


def refuse_idle(given: dict[str, Any]) -> None:
    """One sentence for the first option that would do nothing."""
    from heedful.errors import ConfigError

    def spelled(names: tuple[str, ...]) -> str:
        return " or ".join("a sentence" if name == "sentence" else flag(name) for name in names)

    for name, needs in NEEDS.items():
        for names in needs if name in given else ():
            if not any(other in given for other in names):
                raise ConfigError(f"{flag(name)} has no effect without {spelled(names)}", hint="heed inspect --help")
    for name in ("sentence", "target", "patch_from"):
        if name in given and not given[name].strip():
            option = "" if name == "sentence" else f"{flag(name)}: "
            raise ConfigError(f"{option}an empty sentence was given; expected one that has words")
    corpus = [flag(name) for name in ("heads", "positions", "experts", "cost") if name in given]
    about_it = ("html", "save", "picture", "kind", "lens", *INTERVENTIONS)
    if "sentence" in given and corpus and not any(name in given for name in about_it):
        raise ConfigError(f"a sentence has no effect on {corpus[0]}", hint="with --html both come into one page")
    rolled = given.get("by") == "rollout"
    if rolled and "head" in given:
        raise ConfigError("--by rollout follows all heads of a layer together; leave --head out")
    if "lines" in given and not rolled and "head" not in given:
        raise ConfigError("--lines draws one map; say which --head", hint="heed inspect --help")
    for option, suffixes in ENDINGS.items():
        bound = option != "picture" or "sentence" in given  # pictures of other things may have other formats
        if option in given and bound and given[option].suffix not in suffixes:
            raise ConfigError(f"{flag(option)}: given {str(given[option])!r}, expected a name in {' or '.join(suffixes)}")
    if "picture" in given and sum(name in given for name in ("sentence", "heads", "positions")) > 1:
        raise ConfigError("--picture draws one thing; give one of: a sentence, --heads, --positions")
    drawable = [flag(name) for name in DRAWN if name in given]
    if "picture" in given and len(drawable) > 1:
        raise ConfigError(f"--picture draws one thing; {' and '.join(drawable)} were given")
    undrawn = [flag(name) for name in INTERVENTIONS if name in given and name not in DRAWN]
    if "picture" in given and undrawn and not drawable:
        raise ConfigError(f"{undrawn[0]} has no picture; leave --picture out, or draw one of: {', '.join(map(flag, DRAWN))}")


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def asked(given: dict[str, Any]) -> list[str]:
    """The parts that were asked for; without any, the sentence, or else the model."""
    named = [name for name, part in PARTS.items() if any(option in given for option in part.asked_by)]
    return named or ["sentence" if "sentence" in given else "model"]


def looked(worker: Predictor, given: dict[str, Any]) -> dict[str, Any]:
    """What several parts need of a sentence: what of it is meant, what if, and the inspection where maps are asked for."""
    from heedful.cli.inspecting.interventions import Asked
    from heedful.cli.inspecting.sentence import Where
    from heedful.errors import ConfigError
    from heedful.studies.report import inspect

    task = worker.run.task.name
    if task not in ("translation", "language"):
        raise ConfigError(f"given a sentence and a run of task {task!r}; sentences are looked at in: translation, language")
    alone = [flag(name) for name in ("target", "search") if name in given and task == "language"]
    if alone:
        raise ConfigError(f"{alone[0]} has no effect in a run of task 'language', where nothing is translated")
    where = Where(**{name: given[name] for name in Where._fields if name in given})
    known = {"where": where, "asked": Asked(**{name: given[name] for name in Asked._fields if name in given})}
    if "sentence" not in asked(given) and (not any(option in given for option in ENDINGS) or sections_alone(worker, given)):
        return known
    config = worker.search_config(given.get("search", []), origin=COMMAND_LINE) if task == "translation" else None
    return known | {"seen": inspect(worker.system, given["sentence"], config, given.get("target"), facts_of(worker))}


def sections_alone(worker: Predictor, given: dict[str, Any]) -> bool:
    """Whether only a page is asked for, and there are no maps to be drawn on it."""
    from torch import nn

    from heedful.inspection.attention_maps import attentions

    model = worker.model
    assert isinstance(model, nn.Module), "models are modules"
    return not attentions(model) and not any(option in given for option in ("save", "picture"))


def facts_of(worker: Predictor) -> list[str]:
    return [worker.run.model.family, worker.checkpoint.parent.parent.name]


def answer(worker: Predictor, part: Part, known: dict[str, Any]) -> tuple[dict[str, Any], str]:
    module = import_module(f"heedful.cli.inspecting.{part.module}")
    found = module.found(worker, **{name: known[name] for name in part.takes if name in known})
    return found, module.as_text(found)


def written(worker: Predictor, known: dict[str, Any], answers: dict[str, tuple[dict[str, Any], str]]) -> list[Path]:
    """The files that were asked for."""
    from heedful.studies.report import Page

    if "html" in known:
        sections = tuple(section(PARTS[name], one) for name, (one, _) in answers.items() if PARTS[name].title)
        alone = Page(facts_of(worker)[1], facts_of(worker)[:1], sections)
        page = known["seen"]._replace(sections=sections) if "seen" in known else alone
        page.save(known["html"])
    if "save" in known:
        known["seen"].save(known["save"])
    if "picture" in known:
        drawn(known, {name: one for name, (one, _) in answers.items()})
    return [known[option] for option in ("html", "save", "picture") if option in known]


def section(part: Part, found: dict[str, Any]) -> Section:
    from heedful.inspection.report import Section

    return Section(part.title, import_module(f"heedful.cli.inspecting.{part.module}").as_blocks(found), found)


def drawn(known: dict[str, Any], found: dict[str, Any]) -> None:
    if "seen" in known:
        from heedful.cli.inspecting.figures import draw

        draw(known["seen"], known["where"], known["picture"], lines="lines" in known, found=found)
        return
    name = next(name for name in ("heads", "positions") if name in known)
    import_module(f"heedful.cli.inspecting.{name}").draw(found[name], known["picture"])
