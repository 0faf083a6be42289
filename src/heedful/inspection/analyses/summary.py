"""A model's parts and parameters, its attention layers, and the analyses that apply to it.

part     parameters        kind     layers  heads
encoder     265,728        encoder  2       4 4
decoder     398,848        cross    2       4 4
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from heedful.evaluation.tables import table
from heedful.inspection.measures.positions import schemes
from heedful.inspection.page.blocks import Block, Heading, Table, Words
from heedful.inspection.result import Result
from heedful.nn.experts import Experts
from heedful.nn.model import AttentionLayer
from heedful.tasks.predictor import Predictor
from heedful.text.tokenizer import Tokenizer

# (arguments of `heed inspect`, what they show, what the run must have: see `conditions`)
ANALYSES = (
    ('attention RUN "a text"', "translation, word alignment, attention of every head", "attention to a source"),
    ('attention RUN "a text"', "attention of every head", "attention, but none to a source"),
    ('attention RUN "a text" --kind {kind} --layer {layer} --head {head}', "all attention weights of one head", "attention"),
    ('attention RUN "a text" --html attention.html', "interactive page of all heads", "attention"),
    ('attention RUN "a text" --picture alignment.svg', "picture of the word alignment", "attention to a source"),
    ('attention RUN "a text" --kind {kind} --picture heads.svg', "picture of a grid of heads", "attention"),
    ('lens RUN "a text"', "logit lens: predictions of each layer", "layers, and probabilities"),
    ('saliency RUN "a text"', "gradient x input, compared with attention", "attention to a source"),
    ('saliency RUN "a text"', "gradient x input of the source tokens", "a source, but no attention to it"),
    ('saliency RUN "a text"', "gradient x input of the input tokens", "no source"),
    ('alternatives RUN "a text" --position 0', "alternative outputs at a target position", "probabilities"),
    ('ablate RUN "a text" --head {kind}.{layer}.{head}', "output without a head", "attention, and probabilities"),
    ('patch RUN "a text" --from "another text"', "activation patching between two inputs", "outputs besides the input"),
    ('document RUN "a text"', "words and sentences by the weights of attention pooling", "attention pooling"),
    ("image RUN picture.png", "patches of the image by the attention of each word, or of the label", "attention to an image"),
    ("graph RUN GRAPH --picture graph.svg", "attention along the edges of a graph", "graphs"),
    ('report RUN "a text" --html report.html', "several analyses in one page", "any"),
    ("heads RUN", "role and importance of each head", "attention, and batches with known outputs"),
    ("positions RUN", "positional encodings, and loss beyond the training lengths", "positions"),
    ("experts RUN", "expert utilization", "experts"),
    ("cost RUN", "parameters, FLOP and memory of every part", "any"),
)


FILES = {  # inputs of analyses that are files, and others
    "image": ("picture.png", "another.png"),
    "series": ("series.csv", "another.csv"),
    "table": ("table.csv", "another.csv"),
}


@dataclass(frozen=True)
class SummaryResult(Result):
    """What a run consists of.

    >>> result = heedful.inspection.summary(translator)
    >>> result.parameters == sum(result.parts.values())
    True
    """

    family: str
    task: str
    checkpoint: str
    parameters: int
    parts: dict[str, int]  # parameters of each part; those shared with an earlier part are counted there
    attention: dict[str, list[int]]  # kind -> number of heads in each layer
    vocabulary: dict[str, Any]  # sizes of source and target, and a description of the tokenizers
    analyses: dict[str, str]  # arguments of `heed inspect` -> what they show

    @property
    def title(self) -> str:
        return "Model"

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def text(self) -> str:
        parts = table([("part", f"{'parameters':>12}"), *((name, f"{count:>12,}") for name, count in self.parts.items())])
        attention = table(self.attention_rows()) if self.attention else "no attention over a sequence"
        analyses = table([(f"  {arguments}", shows) for arguments, shows in self.analyses.items()])
        return f"{self.describe()}\n\n{parts}\n\n{attention}\n\nanalyses, as arguments of heed inspect:\n{analyses}"

    def blocks(self) -> list[Block]:
        parts = [("part", "parameters"), *((name, f"{count:,}") for name, count in self.parts.items())]
        blocks: list[Block] = [*map(Words, self.describe().splitlines()), Heading("Parts"), Table(parts, "parts")]
        return [*blocks, Heading("Attention"), Table(self.attention_rows(), "attention")] if self.attention else blocks

    def describe(self) -> str:
        model = f"{self.family} for {self.task}, {self.parameters:,} parameters, {self.checkpoint}"
        return f"{model}\nvocabulary: {self.vocabulary['tokenizer']}"

    def attention_rows(self) -> list[tuple[str, ...]]:
        rows = [(kind, str(len(heads)), " ".join(map(str, heads))) for kind, heads in self.attention.items()]
        return [("attention", "layers", "heads per layer"), *rows]


def summary(predictor: Predictor) -> SummaryResult:
    """Parts, parameters and attention layers of a model, and the analyses that apply to it.

    >>> heedful.inspection.summary(translator).attention
    {'encoder': [2, 2], 'decoder': [2, 2], 'cross': [2, 2]}
    """
    model = predictor.model
    counted: set[int] = set()

    def count_new(part: nn.Module) -> int:
        """Parameters of a part without those shared with an earlier part."""
        new = {id(one): one.numel() for one in part.parameters() if id(one) not in counted}
        counted.update(new)
        return sum(new.values())

    parts = {name: count_new(part) for name, part in model.named_children()}
    source, target = predictor.system.source_tokenizer, predictor.system.target_tokenizer
    attention: dict[str, list[int]] = {}
    for one in attentions_of(predictor):
        attention.setdefault(one.kind.name, []).append(one.heads)
    return SummaryResult(
        predictor.run.model.family,
        predictor.run.task.name,
        str(predictor.checkpoint),
        sum(one.numel() for one in model.parameters()),
        {name: count for name, count in parts.items() if count},
        attention,
        {"source": len(source), "target": len(target), "tokenizer": describe_tokenizers(source, target)},
        list_analyses(predictor),
    )


def describe_tokenizers(source: Tokenizer, target: Tokenizer) -> str:
    if source.fingerprint == target.fingerprint:
        return f"{target.description}, for both sides"
    return f"{source.description} (source); {target.description} (target)"


def attentions_of(predictor: Predictor) -> list[AttentionLayer]:
    """The attention layers of the pass over an example: without a source, none is computed over it; that of a task's own head
    is not part of it."""
    return [one for one in predictor.model.base_model.attentions() if one.kind.queries != "source" or predictor.has_source]


def conditions(predictor: Predictor) -> dict[str, bool]:
    """What a run has, by the names of the last column of ANALYSES."""
    attentions, has_source, has_probabilities = attentions_of(predictor), predictor.has_source, predictor.has_probabilities
    to_source = has_source and any(one.kind.queries == "target" and one.kind.keys != "target" for one in attentions)
    has_batches = type(predictor).forced_batches is not Predictor.forced_batches
    return {
        "any": True,
        "attention": bool(attentions),
        "probabilities": has_probabilities,
        "attention, and probabilities": bool(attentions) and has_probabilities,
        "attention, and batches with known outputs": bool(attentions) and has_batches,
        "attention to a source": to_source,
        "attention, but none to a source": bool(attentions) and not to_source,
        "a source, but no attention to it": has_source and not to_source,
        "no source": not has_source,
        "outputs besides the input": type(predictor).replace_input is not Predictor.replace_input,
        "attention to an image": bool(attentions) and predictor.run.model.image_shape is not None,
        "attention pooling": bool(predictor.model.poolings()),
        "graphs": "graph" in predictor.input_names,
        "layers, and probabilities": has_probabilities
        and any(output.side == "target" for output in predictor.model.layer_outputs()),
        "positions": bool(schemes(predictor.model)),
        "experts": any(isinstance(part, Experts) for part in predictor.model.modules()),
    }


def write_input(arguments: str, predictor: Predictor) -> str:
    """The arguments with what the task reads in place of a text: a file, or JSON."""
    name = "text" if predictor.reads_text else predictor.input_names[0]
    given, other = FILES.get(name, (f'"a {name}"', f'"another {name}"'))
    return arguments.replace('"a text"', given).replace('"another text"', other)


def list_analyses(predictor: Predictor) -> dict[str, str]:
    """The analyses of a run: arguments of `heed inspect` -> what they show."""
    has, attentions = conditions(predictor), attentions_of(predictor)
    reads_texts = type(predictor).encode_example is not Predictor.encode_example
    possible = [one for one in ANALYSES if reads_texts or '"a text"' not in one[0]]
    listed = {write_input(arguments, predictor): shows for arguments, shows, condition in possible if has[condition]}
    if not attentions:
        return listed
    one = next(one for one in attentions if one.kind.name == attentions[-1].kind.name)  # the first layer of the last kind
    example = {"kind": one.kind.name, "layer": one.layer, "head": min(1, one.heads - 1)}
    return {arguments.format(**example): shows for arguments, shows in listed.items()}
