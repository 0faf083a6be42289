"""Data faults: pipes, encodings, very long lines and words."""

from __future__ import annotations

from faults_workshop import Case, Outcome, Sandbox, expect

MEMORY = 1500  # megabytes that training with one very long line may use


def translate_pipe(sandbox: Sandbox) -> Outcome:
    sandbox.trained_run_copy()
    done = sandbox.shell("heed translate run <(head -3 source.txt) --device cpu")
    return expect(done, 0, also=done.out.count("\n") == 3)


def translate_stdin_by_name(sandbox: Sandbox) -> Outcome:
    sandbox.trained_run_copy()
    done = sandbox.shell("cat source.txt | heed translate run /dev/stdin --device cpu")
    return expect(done, 0, also=done.out.count("\n") == 60)


def evaluate_pipes(sandbox: Sandbox) -> Outcome:
    sandbox.trained_run_copy()
    options = "--json --bootstrap 0 --device cpu"
    files = sandbox.shell(f"heed evaluate run --source source.txt --reference target.txt {options}")
    pipes = sandbox.shell(f"heed evaluate run --source <(cat source.txt) --reference <(cat target.txt) {options}")
    return expect(pipes, 0, also=files.out == pipes.out and files.code == 0)


def check_pipes(sandbox: Sandbox) -> Outcome:
    sandbox.recipe()
    return expect(sandbox.shell("heed data check <(cat source.txt) <(cat target.txt)"), 0, message="60 pairs kept")


def check_fifo(sandbox: Sandbox) -> Outcome:
    sandbox.recipe()
    return expect(sandbox.shell("mkfifo f; cat source.txt > f & heed data check f target.txt"), 0, message="60 pairs kept")


def train_fifo(sandbox: Sandbox) -> Outcome:
    sandbox.recipe()
    script = """mkfifo f; cat pairs.tsv > f & feeder=$!
heed train recipe.toml "data.train={tsv='f'}" --run run --device cpu; code=$?; kill $feeder; exit $code"""
    return expect(sandbox.shell(script), 3, message="can be read only once")


def train_encoded(sandbox: Sandbox, encoding: str, message: str) -> Outcome:
    recipe = sandbox.recipe()
    text = "".join(f"größer schöner Öl {number}\tdas Bärchen mag Süßes {number}\n" for number in range(200))
    sandbox.write("other.tsv", text.encode(encoding))
    return expect(sandbox.heed("train", recipe, "data.train={tsv='other.tsv'}", "--run", "run"), 3, message=message)


def train_latin1(sandbox: Sandbox) -> Outcome:
    return train_encoded(sandbox, "latin-1", "iconv -f ISO-8859-1 -t UTF-8 other.tsv")


def train_utf16(sandbox: Sandbox) -> Outcome:
    return train_encoded(sandbox, "utf-16", "iconv -f UTF-16 -t UTF-8 other.tsv")


def long_line(sandbox: Sandbox) -> Outcome:
    recipe = sandbox.recipe()
    with (sandbox.folder / "pairs.tsv").open("a") as file:
        file.write("w1 w2 " * 4_000_000 + "\t" + "w2 w1 " * 4_000_000 + "\n")
    done = sandbox.heed("train", recipe, "training.steps=2", "--run", "run", "--device", "cpu", limit=300)
    return expect(done, 0, message="too long", also=done.megabytes < MEMORY)


def long_word(sandbox: Sandbox) -> Outcome:
    recipe = sandbox.recipe()
    with (sandbox.folder / "pairs.tsv").open("a") as file:
        file.write("abcdefghij" * 40_000 + "\t" + "jihgfedcba" * 40_000 + "\n")
    overrides = ["tokenizer.kind=bpe", "tokenizer.vocab=100", "training.steps=2"]
    return expect(sandbox.heed("train", recipe, *overrides, "--run", "run", "--device", "cpu", limit=60), 0)


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
