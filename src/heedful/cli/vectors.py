"""heed vectors, neighbors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from heedful.bounds import MAX_COUNT, MAX_INTEGER, MAX_NUMBER, MAX_SIZE, MAX_SMALL, MAX_VOCAB
from heedful.cli.output import Checkpoint, Json, finite, print_json, print_message, print_text, table

if TYPE_CHECKING:
    from heedful.text.tokenizer import Tokenizer
    from heedful.vectors.table import Vectors

HERE = Path("vectors.vec")  # what both verbs mean unless told
Side = Annotated[Literal["source", "target"], typer.Option(help="Of a run: whose tokens.")]


def vectors(
    texts: Annotated[list[Path], typer.Argument(help="Text files, plain or .gz.")],
    output: Annotated[
        Path, typer.Option(help="The file to write: .txt or .vec for text, .safetensors for exact numbers.")
    ] = HERE,
    dim: Annotated[int, typer.Option(min=1, max=MAX_SIZE, help="Numbers to a vector.")] = 100,
    window: Annotated[int, typer.Option(min=1, max=MAX_SIZE, help="How far a word's neighbors may be.")] = 5,
    negatives: Annotated[int, typer.Option(min=1, max=MAX_SMALL, help="Noise words to a pair.")] = 5,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_COUNT, help="How often the text is read; unless given, the oftener the shorter it is."),
    ] = None,
    min_count: Annotated[int, typer.Option(min=1, max=MAX_COUNT, help="Words that occur less often are left out.")] = 5,
    subsample: Annotated[
        float, typer.Option(min=0.0, max=1.0, callback=finite, help="Subsample more frequent words; 0: none.")
    ] = 1e-4,
    learning_rate: Annotated[
        float,
        typer.Option(min=1e-6, max=MAX_NUMBER, callback=finite, help="Initial learning rate; it decays to zero."),
    ] = 0.05,
    seed: Annotated[int, typer.Option(min=0, max=MAX_INTEGER, help="Of everything random.")] = 1,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Read the text without case.")] = False,
    tokenizer: Annotated[Path | None, typer.Option(help="A run whose tokens get vectors, instead of the text's words.")] = None,
    side: Side = "source",
    json: Json = False,
) -> None:
    """Learn word vectors from text: skip-gram with negative sampling."""
    import time

    from heedful.errors import ConfigError
    from heedful.vectors.files import check_output, save_vectors
    from heedful.vectors.progress import VectorsProgress
    from heedful.vectors.tokens import encode_text
    from heedful.vectors.training import VectorsConfig, default_epochs, train_vectors

    check_output(output)
    if tokenizer is None and side != "source":
        raise ConfigError("--side has no effect without --tokenizer: words of a text have no side")
    config = VectorsConfig(
        dim=dim,
        window=window,
        negatives=negatives,
        epochs=epochs,
        min_count=min_count,
        subsample=subsample,
        learning_rate=learning_rate,
        seed=seed,
    )
    cutting = tokenizer_of(tokenizer, side, lowercase) if tokenizer else words_of(texts, min_count, lowercase)
    tokens = encode_text(lines_of(texts), cutting)
    times = epochs or default_epochs(tokens.total)
    print_message(f"{tokens.total:,} tokens in {cutting.description}, read {times} times")
    begun = time.monotonic()
    progress = VectorsProgress(tokens.total, times)
    try:
        made = train_vectors(tokens, cutting, config, progress.report)
    finally:
        progress.close()
    seconds = time.monotonic() - begun
    save_vectors(made, output)
    print_message(f"{output}: {len(made.words):,} vectors of {made.dim} numbers, {seconds:.1f} s")
    if json:
        figures = {"output": str(output), "words": len(made.words), "dim": made.dim, "tokens": tokens.total}
        speed = tokens.total * times / seconds
        print_json(figures | {"loss": progress.loss, "seconds": round(seconds, 3), "words_per_second": round(speed)})


def lines_of(texts: list[Path]) -> Iterator[str]:
    from heedful.data.input_lines import read_texts

    return (line for path in texts for line in read_texts(path))


def words_of(texts: list[Path], min_count: int, lowercase: bool) -> Tokenizer:
    """The words of the texts, signs apart, as a tokenizer of kind "words" has them."""
    from heedful.data.sources import find_path, refuse_streams
    from heedful.errors import DataError
    from heedful.text import TokenizerConfig, train_tokenizer

    refuse_streams(find_path(str(path)) for path in texts)  # they are read once more to be encoded
    options = TokenizerConfig(kind="words", vocab=MAX_VOCAB, min_frequency=min_count, lowercase=lowercase)
    try:
        return train_tokenizer(options, lines_of(texts))
    except DataError as error:
        if "min_frequency" not in str(error):
            raise
        raise DataError(f"no word of the text occurs {min_count} times", hint="lower --min-count, or give more text") from error


def tokenizer_of(run: Path, side: Literal["source", "target"], lowercase: bool) -> Tokenizer:
    from heedful.build import read_folder
    from heedful.errors import ConfigError

    if lowercase:
        raise ConfigError("--lowercase has no effect with --tokenizer: the run's tokenizer says how text is read")
    return read_folder(run)[1][side == "target"]


def neighbors(
    words: Annotated[list[str], typer.Argument(help="Words, or sums of them: king - man + woman.")],
    vectors: Annotated[Path, typer.Option(help="A file of vectors, or a run whose embedding is looked at.")] = HERE,
    count: Annotated[int, typer.Option(min=1, max=MAX_SIZE, help="How many neighbors.")] = 10,
    side: Side = "source",
    checkpoint: Checkpoint = None,
    json: Json = False,
) -> None:
    """Which words have the nearest vectors, by cosine."""
    from heedful.errors import DataError
    from heedful.vectors.table import format_query, parse_queries
    from heedful.vectors.table import neighbors as nearest_words

    queries = parse_queries(words)
    known = vectors_of(vectors, side, checkpoint)
    found, unknown = [], list[DataError]()
    for query in queries:
        try:
            found.append((format_query(query), nearest_words(known, query, count)))
        except DataError as error:
            unknown.append(error)
    if unknown and not found:
        raise unknown[0]
    for missing in unknown:
        print_message(str(missing))
    if json:
        print_json({"queries": [{"query": query, "neighbors": [near._asdict() for near in nears]} for query, nears in found]})
    else:
        tables = [table([(query, "cosine"), *((n.word, f"{n.cosine:.3f}") for n in nears)]) for query, nears in found]
        print_text("\n\n".join(tables))


def vectors_of(path: Path, side: Literal["source", "target"], checkpoint: str | None) -> Vectors:
    """Of a file, or of a trained model's embedding."""
    from heedful.errors import ConfigError
    from heedful.vectors.files import load_vectors

    if path == HERE and not path.exists():
        hint = "`heed vectors TEXT` writes it; --vectors names another file, or a run"
        raise ConfigError(f"there is no {HERE} here, expected a file of vectors", hint=hint)
    if not path.is_dir():
        if side != "source" or checkpoint is not None:
            raise ConfigError(f"--side and --checkpoint have no effect on a file of vectors; {path} is no run folder")
        return load_vectors(path)
    from heedful.build import load
    from heedful.vectors.initialization import embedding_of
    from heedful.vectors.table import Vectors
    from heedful.vectors.tokens import token_names

    loaded = load(path, checkpoint, device="cpu")
    tokenizer = loaded.system.source_tokenizer if side == "source" else loaded.system.target_tokenizer
    return Vectors(token_names(tokenizer), embedding_of(loaded.model, side).weight.detach().float())
