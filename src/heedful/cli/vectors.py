"""heed vectors, neighbors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from heedful.cli.output import Checkpoint, Json, check_finite, print_json, print_message, print_text, table
from heedful.config.bounds import MAX_COUNT, MAX_INTEGER, MAX_NUMBER, MAX_SIZE, MAX_SMALL, MAX_VOCAB

if TYPE_CHECKING:
    from heedful.text.tokenizer import Tokenizer
    from heedful.vectors.table import Vectors

DEFAULT_FILE = Path("vectors.vec")  # default of both commands
Side = Annotated[Literal["source", "target"], typer.Option(help="For a run: source or target tokens.")]


def vectors(
    texts: Annotated[list[Path], typer.Argument(help="Text files, plain or .gz.")],
    output: Annotated[
        Path, typer.Option(help="Output file: .txt or .vec for text, .safetensors for exact numbers.")
    ] = DEFAULT_FILE,
    dim: Annotated[int, typer.Option(min=1, max=MAX_SIZE, help="Vector size.")] = 100,
    window: Annotated[
        int, typer.Option(min=1, max=MAX_SIZE, help="Maximum distance between a word and its context words.")
    ] = 5,
    negatives: Annotated[int, typer.Option(min=1, max=MAX_SMALL, help="Negative samples per pair.")] = 5,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_COUNT, help="Passes over the text. Default: more for shorter texts."),
    ] = None,
    min_count: Annotated[int, typer.Option(min=1, max=MAX_COUNT, help="Minimum frequency of a word.")] = 5,
    subsample: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, callback=check_finite, help="Frequency above which words are subsampled; 0: none."),
    ] = 1e-4,
    learning_rate: Annotated[
        float,
        typer.Option(min=1e-6, max=MAX_NUMBER, callback=check_finite, help="Initial learning rate; it decays to zero."),
    ] = 0.05,
    seed: Annotated[int, typer.Option(min=0, max=MAX_INTEGER, help="Random seed.")] = 1,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Lowercase the text.")] = False,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Run whose tokenizer splits the text. Default: split into words.")
    ] = None,
    side: Side = "source",
    json: Json = False,
) -> None:
    """Train word vectors: skip-gram with negative sampling."""
    import time

    from heedful.errors import ConfigError
    from heedful.vectors.files import check_output, save_vectors
    from heedful.vectors.progress import VectorsProgress
    from heedful.vectors.tokens import encode_text
    from heedful.vectors.training import VectorsConfig, default_epochs, train_vectors

    check_output(output)
    if tokenizer is None and side != "source":
        raise ConfigError("--side has no effect without --tokenizer")
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
    splitter = load_tokenizer(tokenizer, side, lowercase) if tokenizer else train_word_tokenizer(texts, min_count, lowercase)
    tokens = encode_text(read_lines(texts), splitter)
    passes = epochs or default_epochs(tokens.total)
    print_message(f"{tokens.total:,} tokens, {splitter.description}, {passes} epochs")
    start = time.monotonic()
    progress = VectorsProgress(tokens.total, passes)
    try:
        trained = train_vectors(tokens, splitter, config, progress.report)
    finally:
        progress.close()
    seconds = time.monotonic() - start
    save_vectors(trained, output)
    print_message(f"{output}: {len(trained.words):,} vectors of size {trained.dim}, {seconds:.1f} s")
    if json:
        figures = {"output": str(output), "words": len(trained.words), "dim": trained.dim, "tokens": tokens.total}
        speed = tokens.total * passes / seconds
        print_json(figures | {"loss": progress.loss, "seconds": round(seconds, 3), "words_per_second": round(speed)})


def read_lines(texts: list[Path]) -> Iterator[str]:
    from heedful.data.input_lines import read_texts

    return (line for path in texts for line in read_texts(path))


def train_word_tokenizer(texts: list[Path], min_count: int, lowercase: bool) -> Tokenizer:
    """Train a tokenizer of kind "words" on the texts."""
    from heedful.data.sources import find_path, refuse_streams
    from heedful.errors import DataError
    from heedful.text import TokenizerConfig, train_tokenizer

    refuse_streams(find_path(str(path)) for path in texts)  # the text is read a second time to encode it
    options = TokenizerConfig(kind="words", vocab=MAX_VOCAB, min_frequency=min_count, lowercase=lowercase)
    try:
        return train_tokenizer(options, read_lines(texts))
    except DataError as error:
        if "min_frequency" not in str(error):
            raise
        raise DataError(f"no word of the text occurs {min_count} times", hint="lower --min-count, or use more text") from error


def load_tokenizer(run: Path, side: Literal["source", "target"], lowercase: bool) -> Tokenizer:
    from heedful.errors import ConfigError
    from heedful.runs.load import read_folder

    if lowercase:
        raise ConfigError(
            "--lowercase has no effect with --tokenizer, which defines the case itself", hint="remove --lowercase"
        )
    return read_folder(run)[1][side == "target"]


def neighbors(
    words: Annotated[list[str], typer.Argument(help="Words, or sums of words: king - man + woman.")],
    vectors: Annotated[Path, typer.Option(help="File of vectors, or run whose embeddings are used.")] = DEFAULT_FILE,
    count: Annotated[int, typer.Option(min=1, max=MAX_SIZE, help="Number of neighbors.")] = 10,
    side: Side = "source",
    checkpoint: Checkpoint = None,
    json: Json = False,
) -> None:
    """List the nearest words by cosine similarity of their vectors."""
    from heedful.errors import DataError
    from heedful.vectors.table import format_query, parse_queries
    from heedful.vectors.table import neighbors as nearest_words

    queries = parse_queries(words)
    table_of_vectors = read_vectors(vectors, side, checkpoint)
    answers, unknown = [], list[DataError]()
    for query in queries:
        try:
            answers.append((format_query(query), nearest_words(table_of_vectors, query, count)))
        except DataError as error:
            unknown.append(error)
    if unknown and not answers:
        raise unknown[0]
    for missing in unknown:
        print_message(str(missing))
    if json:
        print_json({"queries": [{"query": query, "neighbors": [near._asdict() for near in nears]} for query, nears in answers]})
    else:
        tables = [table([(query, "cosine"), *((n.word, f"{n.cosine:.3f}") for n in nears)]) for query, nears in answers]
        print_text("\n\n".join(tables))


def read_vectors(path: Path, side: Literal["source", "target"], checkpoint: str | None) -> Vectors:
    """Read vectors from a file, or from the embedding of a run."""
    from heedful.errors import ConfigError
    from heedful.vectors.files import load_vectors

    if path == DEFAULT_FILE and not path.exists():
        hint = "create it with `heed vectors TEXT`, or set --vectors to another file or a run"
        raise ConfigError(f"{DEFAULT_FILE} does not exist, expected a file of vectors", hint=hint)
    if not path.is_dir():
        if side != "source" or checkpoint is not None:
            raise ConfigError(f"--side and --checkpoint apply to run folders only; {path} is a file of vectors")
        return load_vectors(path)
    from heedful.runs.load import load
    from heedful.vectors.table import Vectors
    from heedful.vectors.tokens import token_names

    loaded = load(path, checkpoint, device="cpu")
    tokenizer = loaded.system.source_tokenizer if side == "source" else loaded.system.target_tokenizer
    return Vectors(token_names(tokenizer), loaded.model.embeddings()[side].weight.detach().float())
