"""Faults of data: pipes, encodings, endless lines and words."""

from __future__ import annotations

from faults_workshop import Case, Place, Seen, ends

MEMORY = 1500  # megabytes that training on one absurd line may hold


def translate_pipe(place: Place) -> Seen:
    place.trained()
    done = place.shell("heed translate run <(head -3 source.txt) --device cpu")
    return ends(done, 0, also=done.out.count("\n") == 3)


def translate_stdin_by_name(place: Place) -> Seen:
    place.trained()
    done = place.shell("cat source.txt | heed translate run /dev/stdin --device cpu")
    return ends(done, 0, also=done.out.count("\n") == 60)


def evaluate_pipes(place: Place) -> Seen:
    place.trained()
    options = "--json --bootstrap 0 --device cpu"
    files = place.shell(f"heed evaluate run --source source.txt --reference target.txt {options}")
    pipes = place.shell(f"heed evaluate run --source <(cat source.txt) --reference <(cat target.txt) {options}")
    return ends(pipes, 0, also=files.out == pipes.out and files.code == 0)


def check_pipes(place: Place) -> Seen:
    place.recipe()
    return ends(place.shell("heed data check <(cat source.txt) <(cat target.txt)"), 0, says="60 pairs kept")


def check_fifo(place: Place) -> Seen:
    place.recipe()
    return ends(place.shell("mkfifo f; cat source.txt > f & heed data check f target.txt"), 0, says="60 pairs kept")


def train_fifo(place: Place) -> Seen:
    place.recipe()
    script = """mkfifo f; cat pairs.tsv > f & feeder=$!
heed train recipe.toml "data.train={tsv='f'}" --run run --device cpu; code=$?; kill $feeder; exit $code"""
    return ends(place.shell(script), 3, says="can be read only once")


def train_encoded(place: Place, encoding: str, says: str) -> Seen:
    recipe = place.recipe()
    text = "".join(f"größer schöner Öl {number}\tdas Bärchen mag Süßes {number}\n" for number in range(200))
    place.write("other.tsv", text.encode(encoding))
    return ends(place.heed("train", recipe, "data.train={tsv='other.tsv'}", "--run", "run"), 3, says=says)


def train_latin1(place: Place) -> Seen:
    return train_encoded(place, "latin-1", "iconv -f ISO-8859-1 -t UTF-8 other.tsv")


def train_utf16(place: Place) -> Seen:
    return train_encoded(place, "utf-16", "iconv -f UTF-16 -t UTF-8 other.tsv")


def long_line(place: Place) -> Seen:
    recipe = place.recipe()
    with (place.folder / "pairs.tsv").open("a") as file:
        file.write("w1 w2 " * 4_000_000 + "\t" + "w2 w1 " * 4_000_000 + "\n")
    done = place.heed("train", recipe, "training.steps=2", "--run", "run", "--device", "cpu", limit=300)
    return ends(done, 0, says="too long", also=done.megabytes < MEMORY)


def long_word(place: Place) -> Seen:
    recipe = place.recipe()
    with (place.folder / "pairs.tsv").open("a") as file:
        file.write("abcdefghij" * 40_000 + "\t" + "jihgfedcba" * 40_000 + "\n")
    overrides = ["tokenizer.kind=bpe", "tokenizer.vocab=100", "training.steps=2"]
    return ends(place.heed("train", recipe, *overrides, "--run", "run", "--device", "cpu", limit=60), 0)


CASES = [
    Case("translate, a pipe as file", "exit 0, a line for each of 3", translate_pipe),
    Case("translate, /dev/stdin as file", "exit 0, a line for each of 60", translate_stdin_by_name),
    Case("evaluate, pipes as files", "the scores of the files", evaluate_pipes),
    Case("data check, pipes as files", "exit 0, 60 pairs", check_pipes),
    Case("data check, a FIFO", "exit 0, 60 pairs", check_fifo),
    Case("train, a FIFO", "exit 3 at once", train_fifo),
    Case("train, Latin-1", "exit 3 with the iconv command", train_latin1),
    Case("train, UTF-16", "exit 3 with the iconv command", train_utf16),
    Case("train, a line of 48 MB", f"skipped, below {MEMORY} MB", long_line),
    Case("train, a word of 400,000 letters", "exit 0 within 60 s", long_word),
]
