"""How well the starter recipes of `heed new` do as they stand, on about 10,000 rows of real data.

    HEED_DATA=/where/corpora/are python benchmarks/starters.py                       all tasks -> results/starters.json
    HEED_DATA=/where/corpora/are python benchmarks/starters.py tagging language --rows 2000

For each task: `heed new` writes the starter into an empty folder, its example files are replaced by rows of a corpus, and
`heed train` and `heed evaluate` run as printed, from another folder. The recipes stop after three minutes by themselves. Beside
the figure are baselines on the same test data: simple models that need no training, or only counts.

    classification   phrases of SST-2, positive or negative              the most frequent label, linear models of words
    tagging          UD English EWT, universal part of speech            the most frequent label of each word
    masked           WikiText-2                                          the most frequent token
    language         WikiText-2                                          counts of tokens, and of pairs of tokens
    translation      Multi30k, English to German                         the source itself, the nearest source's translation
    embedding        dialogues: a turn and its reply                     word vectors weighted by rarity (tf-idf)
    span             generated questions about where things are          the place that is mentioned first
    chat             dialogues: the replies of the second speaker        counts of tokens, and of pairs of tokens
    retrieval        dialogues: the reply among a hundred                BM25
    skip_thought     sentences of WikiText-2                             counts of tokens, and of pairs of tokens
    forecasting      ETTh1, 7 variables, every hour                      persistence, seasonal naive, ridge
    node_classification  generated groups of nodes                       linear model of the features, label propagation
    image_classification generated shapes                                the label of the nearest training image
    captioning           generated scenes of shapes                      the caption of the nearest training image
    series_classification  generated gaits                               the label with the nearest mean deviations
    decisions            episodes in a generated grid world              the most frequent action
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from peers.machine import machine_info

import heedful
from heedful.data.corpus_text import passages
from heedful.data.gaits import COLUMNS, draw_gait
from heedful.data.graph_toys import communities
from heedful.data.gridworld import draw_episodes, name_of
from heedful.data.image_files import ImageFormat, encode_png
from heedful.data.input_lines import read_texts
from heedful.data.shape_scenes import draw_scenes
from heedful.data.shapes import SHAPES, draw_shape
from heedful.data.sources import find_path
from heedful.data.splits import splits_of
from heedful.data.text_store import open_text
from heedful.evaluation.tables import table
from heedful.tasks.image_classification.predictor import ImageClassifier
from heedful.tasks.series_classification.predictor import SeriesClassifier
from heedful.tasks.skip_thought.data import NONE, SkipThoughtData
from heedful.tasks.skip_thought.predictor import SkipThought
from heedful.tasks.translation.data import examples_of

ROWS, SEED = 10_000, 5
FEWEST_ROWS = 200  # of a series
MOST_NODES = 2000  # of a graph
MOST_SERIES = 1000  # of the training data
FRAMES = 24  # steps of a series
STEPS = 12  # of an episode, about
BIGRAM = 0.7  # weight of pairs of tokens, in the mean with single tokens
THINGS, KINDS = 400, 100  # invented words
CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"
STATEMENTS = ("the {} is ", "you find the {} ", "somebody put the {} ", "her {} lies ")
PLACES = ("in the {} box", "in the {} drawer", "on the {} table", "on the {} shelf", "under the {} chair", "behind the {} door")
QUESTIONS = ("where is the {}?", "where can I find the {}?", "in which place is the {}?")
Heed = Callable[..., str]  # arguments of the command -> its standard output


def read_corpus(name: str) -> Iterator[str]:
    """The lines of a file of a corpus, plain or .gz."""
    path = find_path(name)
    return read_texts(path if path.exists() else find_path(f"{name}.gz"))


def write_classification(folder: Path, rows: int) -> None:
    """A sample: the corpus is sorted by alphabet."""
    lines = list(read_corpus("sst2/train.tsv"))
    chosen = random.Random(SEED).sample(lines, min(rows, len(lines)))
    with (folder / "examples.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for label, text in (line.split("\t", 1) for line in chosen):
            writer.writerow([text, "positive" if label == "1" else "negative"])


def write_tagging(folder: Path, rows: int) -> None:
    for split, count in counts(rows):
        blocks = "\n".join(read_corpus(f"ud-en-ewt/{split}.conllu")).split("\n\n")
        sentences = []
        for block in blocks[:count]:
            cells = [line.split("\t") for line in block.split("\n") if line and not line.startswith("#")]
            sentences.append("".join(f"{cell[1]}\t{cell[3]}\n" for cell in cells if cell[0].isdigit()))
        (folder / f"{split}.tsv").write_text("\n".join(sentences))


def write_text(folder: Path, rows: int) -> None:
    for split, count in counts(rows):
        lines = islice((line for line in read_corpus(f"wikitext2/{split}.txt") if line.strip()), count)
        (folder / f"{split}.txt").write_text("".join(f"{line}\n" for line in lines))


def write_translation(folder: Path, rows: int) -> None:
    names = {"train": "train", "valid": "valid", "test": "test2016"}
    for split, count in counts(rows):
        pairs = zip(*(read_corpus(f"multi30k/{names[split]}.{language}") for language in ("en", "de")), strict=True)
        (folder / f"{split}.tsv").write_text("".join("\t".join(pair) + "\n" for pair in islice(pairs, count)))


def write_embedding(folder: Path, rows: int) -> None:
    dialogues = (line.split("\t") for line in read_corpus("dialogue-sgd/train.txt"))
    turns = (pair for turns in dialogues for pair in zip(turns[::2], turns[1::2], strict=False))  # a question and its reply
    with (folder / "examples.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "similar"), *islice(dict.fromkeys(turns), rows)])


def write_dialogues(name: str, folder: Path, rows: int) -> None:
    """name: of the example file, with a dialogue per line."""
    lines = islice(read_corpus("dialogue-sgd/train.txt"), rows)
    (folder / name).write_text("".join(f"{line}\n" for line in lines))


def write_sentences(folder: Path, rows: int) -> None:
    """Paragraphs as documents, without headings; a sentence ends with a period."""
    for split, count in counts(rows):
        texts = (line.strip() for line in read_corpus(f"wikitext2/{split}.txt"))
        documents = (text.replace(" . ", " .\n") for text in texts if text and not text.startswith("="))
        lines = (line for text in documents for line in (*text.split("\n"), ""))
        (folder / f"{split}.txt").write_text("".join(f"{line}\n" for line in islice(lines, count)))


def make_words(count: int, draw: random.Random) -> list[str]:
    """Invented words of two or three syllables."""
    made: dict[str, None] = {}
    while len(made) < count:
        made["".join(draw.choice(CONSONANTS) + draw.choice(VOWELS) for _ in range(draw.choice((2, 3))))] = None
    return list(made)


def question(things: Sequence[str], kinds: Sequence[str], draw: random.Random) -> tuple[str, str, str, int]:
    """A question, a text of three sentences about where things are, the answer, and its first character."""
    asked, context, starts, places = draw.sample(things, 3), "", [], []
    for thing in asked:
        places.append(draw.choice(PLACES).format(draw.choice(kinds)))
        context += draw.choice(STATEMENTS).format(thing)
        starts.append(len(context))
        context += f"{places[-1]}. "
    at = draw.randrange(len(asked))
    return draw.choice(QUESTIONS).format(asked[at]), context.strip(), places[at], starts[at]


def write_span(folder: Path, rows: int) -> None:
    """Many invented words: with few, all texts are near-duplicates of each other, which `data.split` keeps in one part."""
    draw = random.Random(SEED)
    words = make_words(THINGS + KINDS, draw)
    made = dict.fromkeys(question(words[:THINGS], words[THINGS:], draw) for _ in range(rows))
    names = ("question", "context", "answer", "answer_start")
    lines = (json.dumps(dict(zip(names, one, strict=True))) for one in made)
    (folder / "examples.jsonl").write_text("".join(f"{line}\n" for line in lines))


def counts(rows: int) -> list[tuple[str, int]]:
    """The rows of each file of a starter with three files."""
    return [("train", rows), ("valid", max(rows // 10, 1)), ("test", max(rows // 10, 1))]


def reported_baselines(metric: str, run: Path, report: Mapping[str, Any]) -> dict[str, float]:
    """The baselines of `heed evaluate --baselines`; those of forecasts are always reported."""
    found = report["baselines"]
    return {name: value[metric] if isinstance(value, dict) else value for name, value in found.items()}


def most_frequent_token(run: Path, report: Mapping[str, Any]) -> dict[str, float]:
    return {"the most frequent token": report["figures"]["unigram_accuracy"]}


def counted_text(run: Path, report: Mapping[str, Any]) -> dict[str, float]:
    generator = heedful.TextGenerator.load(run, device="cpu")
    data, tokenizer = generator.run.data, generator.system.target_tokenizer
    train, test = ([open_text(passages(data, split), tokenizer).ids.tolist()] for split in ("train", "test"))
    return counted_tokens(train, test, len(tokenizer))


def counted_replies(run: Path, report: Mapping[str, Any]) -> dict[str, float]:
    bot = heedful.ChatBot.load(run, device="cpu")
    tokenizer = bot.system.target_tokenizer
    start, end = tokenizer.specials.start, tokenizer.specials.end
    train, test = (
        [[start, *ids, end] for ids in tokenizer.encode_many(bot.examples(split).references)] for split in ("train", "test")
    )
    return counted_tokens(train, test, len(tokenizer))


def counted_neighbors(run: Path, report: Mapping[str, Any]) -> dict[str, float]:
    """Of the sentences before and after each sentence."""
    embedder = SkipThought.load(run, device="cpu")
    data, tokenizer = SkipThoughtData(embedder.run), embedder.system.target_tokenizer

    def neighbors(split: str) -> list[list[int]]:
        sentences = embedder.sentences(split)
        numbers = (number for number in sentences.rows[:, 1:].flatten().tolist() if number != NONE)
        return [data.text(sentences, number, tokenizer.specials) for number in numbers]

    return counted_tokens(neighbors("train"), neighbors("test"), len(tokenizer))


def counted_tokens(train: Sequence[list[int]], test: Sequence[list[int]], vocab: int) -> dict[str, float]:
    """Perplexity of all tokens but the first of each sequence, by counts of tokens plus one, and by their mean with the shares
    of the tokens that follow each token."""
    known, asked = ([pair for ids in several for pair in pairwise(ids)] for several in (train, test))
    single = np.bincount([after for _, after in known], minlength=vocab) + 1.0
    single /= single.sum()
    following, before = Counter(known), Counter(first for first, _ in known)
    unigram = single[[after for _, after in asked]]
    shares = [following[pair] / max(before[pair[0]], 1) for pair in asked]
    bigram = BIGRAM * np.array(shares) + (1 - BIGRAM) * unigram
    return {name: float(np.exp(-np.log(p).mean())) for name, p in (("single tokens", unigram), ("pairs of tokens", bigram))}


def ranked_by_bm25(run: Path, report: Mapping[str, Any]) -> dict[str, float]:
    return {"BM25": report["bm25"]["figures"]["mrr"]}


def copied_and_nearest(run: Path, report: Mapping[str, Any]) -> dict[str, float]:
    """BLEU of the source itself, and of the translation of the training source with the most similar words."""
    translator = heedful.Translator.load(run, device="cpu")
    data = translator.run.data
    train, test = (examples_of(getattr(splits_of(data), split), data.max_ratio) for split in ("train", "test"))
    nearest = word_similarities(test.sources, train.sources).argmax(1)
    guesses = {"the source itself": test.sources, "the nearest source": [train.references[at] for at in nearest.tolist()]}
    return {name: heedful.bleu(guess, test.references).value for name, guess in guesses.items()}


def rarity_of_words(run: Path, report: Mapping[str, Any]) -> dict[str, float]:
    """The mean reciprocal rank of each reply among all replies of the test data."""
    embedder = heedful.Embedder.load(run, device="cpu")
    pairs = embedder.similar.examples("test") or []
    replies = list(dict.fromkeys(pair.positive for pair in pairs))
    scores = word_similarities([pair.anchor for pair in pairs], replies)
    own = np.array([replies.index(pair.positive) for pair in pairs])
    ranks = (scores >= scores[np.arange(len(pairs)), own][:, None]).sum(1)  # ties are ranked before it
    return {"tf-idf": float((1 / ranks).mean())}


def first_place(run: Path, report: Mapping[str, Any]) -> dict[str, float]:
    """The share of questions whose answer is the place of the first sentence."""
    extractor = heedful.SpanExtractor.load(run, device="cpu")
    questions = extractor.questions("test")
    first = [one.context.split(".")[0].endswith(one.answers[0].text) for one in questions]
    return {"first place": sum(first) / len(first)}


def word_similarities(texts: Sequence[str], others: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The cosine similarity of each text with each of the others, by words weighted with ln(others / others with the word)."""
    tokens = [[text.lower().split() for text in several] for several in (texts, others)]
    index = {word: at for at, word in enumerate(dict.fromkeys(word for words in tokens[1] for word in words))}
    found = Counter(word for words in tokens[1] for word in set(words))
    weights = np.array([math.log(1 + len(others) / found[word]) for word in index])
    rows = []
    for several in tokens:
        matrix = np.zeros((len(several), len(index)), np.float32)
        for at, words in enumerate(several):
            for word in words:
                if word in index:
                    matrix[at, index[word]] += weights[index[word]]
        rows.append(matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-9))
    return cast("np.ndarray[Any, np.dtype[np.float64]]", rows[0] @ rows[1].T)


class Trial(NamedTuple):
    """The data of a starter, and what is compared."""

    corpus: str
    write: Callable[[Path, int], None]  # writes the example files; the number is that of rows
    metric: str
    baselines: Callable[[Path, Mapping[str, Any]], dict[str, float]]  # run, report of `heed evaluate` -> figures
    options: tuple[str, ...] = ()  # of `heed evaluate`


def write_series(folder: Path, rows: int) -> None:
    """The first rows of ETTh1; at least as many as every part needs for one window."""
    lines = islice(read_texts(Path("etth1/ETTh1.csv.gz")), 1 + max(rows, FEWEST_ROWS))
    (folder / "series.csv").write_text("".join(f"{line}\n" for line in lines))


def write_graph(folder: Path, rows: int) -> None:
    """The generated communities, with two of their features, as the starter has."""
    count = max(min(rows, MOST_NODES) // 5, 4)
    (graph,) = communities("train", (3 * count, count, count))
    nodes = [(node.name, node.label, *list(node.features.values())[:2], node.part) for node in graph.nodes]
    edges = [(graph.nodes[first].name, graph.nodes[second].name) for first, second in graph.edges]
    for name, table_rows in (
        ("nodes.csv", [("node", "label", "x", "y", "split"), *nodes]),
        ("edges.csv", [("source", "target"), *edges]),
    ):
        with (folder / name).open("w", newline="") as file:
            csv.writer(file).writerows(table_rows)


def write_images(folder: Path, rows: int) -> None:
    """Shapes of any color, size and place, a folder for each."""
    shutil.rmtree(folder / "images")
    form = ImageFormat(16, 16, 3)
    for at, name in enumerate(SHAPES):
        (folder / "images" / name).mkdir(parents=True)
        for number in range(rows // len(SHAPES)):
            pixels = draw_shape(name, form, np.random.Generator(np.random.Philox(key=[SEED + at, number])))
            (folder / "images" / name / f"{number}.png").write_bytes(encode_png(pixels))


def write_scenes(folder: Path, rows: int) -> None:
    shutil.rmtree(folder / "images")
    (folder / "images").mkdir()
    lines = ["path,caption\n"]
    for number, drawn in enumerate(draw_scenes("train", rows, ImageFormat(24, 24, 3))):
        (folder / "images" / f"{number}.png").write_bytes(encode_png(drawn.pixels))
        lines.append(f"images/{number}.png,{drawn.scene.caption}\n")
    (folder / "captions.csv").write_text("".join(lines))


def write_gaits(folder: Path, rows: int) -> None:
    """Walking and running, from any place."""
    for at, (split, count) in enumerate(counts(min(rows, MOST_SERIES))):
        with (folder / f"{split}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["sequence", "label", *COLUMNS])
            for number in range(count):
                label = ("walking", "running")[number % 2]
                draw = np.random.Generator(np.random.Philox(key=[SEED + at, number]))
                writer.writerows([number, label, *frame] for frame in draw_gait(label, draw, FRAMES).round(3).tolist())


def write_episodes(folder: Path, rows: int) -> None:
    """Episodes with about as many steps as rows, in the grid world of the starter."""
    with (folder / "episodes.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["episode", "step", "cell", "action", "reward"])
        for number, episode in enumerate(draw_episodes(0, "train", max(rows // STEPS, 20))):
            for step, (cell, action, reward) in enumerate(zip(*episode, strict=True)):
                writer.writerow([number, step, name_of(cell), action, f"{reward:g}"])


def nearest(known: np.ndarray[Any, Any], asked: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The index of the known vector with the smallest Euclidean distance, for each vector asked for."""
    known, asked = (np.asarray(several, np.float64).reshape(len(several), -1) for several in (known, asked))
    distances = np.square(known).sum(1) - 2 * asked @ known.T
    return cast("np.ndarray[Any, Any]", distances.argmin(1))


def nearest_image(run: Path, report: Mapping[str, Any]) -> dict[str, float]:
    classifier = ImageClassifier.load(run, device="cpu")
    train, test = (classifier.split_images(split) for split in ("train", "test"))
    guesses = train.labels[nearest(train.pixels[train.rows], test.pixels[test.rows])]
    return {"nearest image": float((guesses == test.labels).mean())}


def caption_of_nearest_image(run: Path, report: Mapping[str, Any]) -> dict[str, float]:
    captioner = heedful.Captioner.load(run, device="cpu")
    train, test = (captioner.split_images(split) for split in ("train", "test"))
    found = nearest(train.pixels[train.rows], test.pixels[test.rows])
    return {"nearest image": heedful.bleu([train.captions[at] for at in found.tolist()], test.captions).value}


def nearest_deviations(run: Path, report: Mapping[str, Any]) -> dict[str, float]:
    """The label whose training series have the nearest mean of the standard deviations of their columns."""
    data = SeriesClassifier.load(run, device="cpu").labeled
    train, test = (data.series(split) for split in ("train", "test"))
    spreads = [np.stack([frames.std(0).numpy() for frames in part.frames]) for part in (train, test)]
    labels = sorted(set(train.labels.tolist()))
    means = np.stack([spreads[0][train.labels == label].mean(0) for label in labels])
    guesses = np.array(labels)[nearest(means, spreads[1])]
    return {"nearest deviations": float((guesses == test.labels).mean())}


REPORTED, WITHOUT_REPLIES = ("--baselines", "--bootstrap", "0"), ("--replies", "0")
TRIALS = {
    "classification": Trial("SST-2", write_classification, "accuracy", partial(reported_baselines, "accuracy"), REPORTED),
    "tagging": Trial("UD English EWT", write_tagging, "accuracy", partial(reported_baselines, "accuracy"), REPORTED),
    "masked": Trial("WikiText-2", write_text, "accuracy", most_frequent_token),
    "language": Trial("WikiText-2", write_text, "perplexity", counted_text),
    "translation": Trial("Multi30k en-de", write_translation, "bleu", copied_and_nearest),
    "embedding": Trial("SGD dialogues", write_embedding, "mrr", rarity_of_words),
    "span": Trial("generated", write_span, "exact_match", first_place),
    "chat": Trial(
        "SGD dialogues", partial(write_dialogues, "dialogues.txt"), "perplexity", counted_replies, ("--replies", "0")
    ),
    "retrieval": Trial("SGD dialogues", partial(write_dialogues, "dialogues.tsv"), "mrr", ranked_by_bm25, REPORTED),
    "skip_thought": Trial("WikiText-2", write_sentences, "perplexity", counted_neighbors),
    "forecasting": Trial("ETTh1", write_series, "mse", partial(reported_baselines, "mse")),
    "node_classification": Trial("generated", write_graph, "accuracy", partial(reported_baselines, "accuracy"), REPORTED),
    "image_classification": Trial("generated", write_images, "accuracy", nearest_image),
    "captioning": Trial("generated", write_scenes, "bleu", caption_of_nearest_image),
    "series_classification": Trial("generated", write_gaits, "accuracy", nearest_deviations),
    "decisions": Trial("generated", write_episodes, "accuracy", partial(reported_baselines, "accuracy")),
}
LOWER = {"perplexity", "mse"}  # metrics of which less is better


def run_heed(elsewhere: Path, *arguments: str) -> str:
    """The command in a process of its own."""
    environment = os.environ | {"HEED_DATA": str(Path(os.environ.get("HEED_DATA", "data")).resolve())}
    command = [sys.executable, "-m", "heedful", *arguments]
    return subprocess.run(command, cwd=elsewhere, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def measure(task: str, folder: Path, rows: int, heed: Heed, changes: Sequence[str] = ()) -> dict[str, Any]:
    """Train and evaluate the starter of a task in an empty folder; changes: overrides of `heed train`, for a short trial."""
    trial, project, run = TRIALS[task], folder / task, folder / task / "run"
    heed("new", task, str(project))
    trial.write(project, rows)
    start = time.perf_counter()
    heed("train", str(project / "recipe.toml"), *changes, "--run", str(run))
    seconds = time.perf_counter() - start
    report = json.loads(heed("evaluate", str(run), *trial.options, "--json"))
    figure = find_figure(report, trial.metric)
    baselines = trial.baselines(run, report)
    sign = -1 if trial.metric in LOWER else 1
    return {
        "task": task,
        "corpus": trial.corpus,
        "rows": rows,
        "train_seconds": round(seconds, 1),
        "metric": trial.metric,
        "value": round(figure, 4),
        "baselines": {name: round(value, 4) for name, value in baselines.items()},
        "better_than_all": all(sign * figure > sign * value for value in baselines.values()),
        **({"changes": list(changes)} if changes else {}),
        **machine_info(),
    }


def merge_results(path: Path, result: Mapping[str, Any]) -> None:
    """Write the result of a task to a file, which keeps those of other tasks."""
    known = {one["task"]: one for one in json.loads(path.read_text())["starters"]} if path.exists() else {}
    known[result["task"]] = result
    path.write_text(json.dumps({"starters": [known[task] for task in TRIALS if task in known]}, indent=1) + "\n")


def find_figure(report: Mapping[str, Any], metric: str) -> float:
    """A figure of `heed evaluate --json`; that of translation has scores."""
    return float(report["figures"][metric] if "figures" in report else report["scores"][metric]["value"])


def result_table(results: Sequence[Mapping[str, Any]]) -> str:
    rows = [("task", "data", "rows", "seconds", "metric", "starter", "baselines")]
    for one in results:
        others = ", ".join(f"{name} {value:.4g}" for name, value in one["baselines"].items())
        numbers = f"{one['rows']:,}", f"{one['train_seconds']:.0f}", one["metric"], f"{one['value']:.4g}"
        rows.append((one["task"], one["corpus"], *numbers, others))
    return table(rows, width=10_000)


def main(arguments: Sequence[str] | None = None, heed: Heed | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", help=f"Default: all of {', '.join(TRIALS)}.")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--change", action="append", default=[], help="An override of the recipe, for a short trial.")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "starters.json")
    options = parser.parse_args(arguments)
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder, elsewhere = Path(name) / "projects", Path(name) / "elsewhere"
        elsewhere.mkdir()
        for task in options.tasks or TRIALS:
            results.append(measure(task, folder, options.rows, heed or partial(run_heed, elsewhere), options.change))
            print(result_table(results[-1:]), flush=True)
            merge_results(options.output, results[-1])
    print(f"\n{result_table(results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
