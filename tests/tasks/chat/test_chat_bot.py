"""Chat: histories as sources, replies and their parts, conversations, and what a reply depends on."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import heedful
from heedful.config.toml import write_toml
from heedful.errors import ConfigError
from heedful.runs.config import read_run
from heedful.tasks.chat.data import ChatData
from heedful.tasks.chat.evaluate import distinct, evenly_spaced
from heedful.tasks.chat.predictor import ChatBot, Reply
from heedful.tasks.translation.data import Examples

DIALOGUES = [
    ["the cat", "cat sees", "a dog", "dog runs"],
    ["the dog", "dog eats", "a cow", "cow sees"],
    ["the cow", "cow runs", "a cat", "cat eats"],
] * 4
TRANSFORMER = {"family": "transformer", "dim": 16, "layers": 1, "heads": 2, "feed_forward": 32, "norm": "pre"}
HRAN = {"family": "hran", "dim": 16, "embedding": 16, "readout": 16}
GPT = {"family": "gpt", "dim": 16, "layers": 1, "heads": 2}


def train(folder: Path, dialogues: Sequence[Sequence[str]], model: dict[str, Any], steps: int, **data: Any) -> ChatBot:
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "data": {"form": "dialogues", "train": {"file": "a.txt"}, "valid": {"file": "a.txt"}, "batch_tokens": 512} | data,
        "task": {"name": "chat", "label_smoothing": 0.0, "validation_replies": 2},
        "tokenizer": {"kind": "words", "min_frequency": 1},
        "model": model | {"dropout": 0.0},
        "training": dict.fromkeys(("steps", "save_every", "validate_every"), steps)
        | {"schedule": {"name": "cosine", "learning_rate": 5e-3, "warmup": 10}},
        "search": {"method": "greedy", "max_extra": 5},
    }
    (folder / "recipe.toml").write_text(write_toml(config))
    splits: dict[str, Any] = {"train": dialogues, "valid": dialogues, "test": dialogues}
    heedful.train(folder / "recipe.toml", run=folder / "run", device="cpu", console=Console(quiet=True), **splits)
    return ChatBot.load(folder / "run")


@pytest.fixture(scope="module", params=["transformer", "hran", "gpt"])
def bot(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ChatBot:
    model = {"transformer": TRANSFORMER, "hran": HRAN, "gpt": GPT}[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    return train(folder, DIALOGUES, model, 10, turns=3, template={"speakers": ["<user>", "<bot>"]})


def test_fifty_exchanges_are_learned_by_heart(tmp_path: Path) -> None:
    draw = random.Random(17)
    words = [f"w{number}" for number in range(30)]
    pairs = [[" ".join(draw.choices(words, k=draw.randint(3, 6))) for _ in range(2)] for _ in range(50)]
    bot = train(tmp_path, pairs * 4, TRANSFORMER | {"dim": 64, "heads": 4, "feed_forward": 128}, 140, turns=1, batch_tokens=256)
    replies = bot.predict([question for question, _ in pairs])
    assert sum(reply == answer for reply, (_, answer) in zip(replies, pairs, strict=True)) >= 48


def test_every_window_has_the_same_replies_tokens_and_vocabulary(tmp_path: Path) -> None:
    """A history that is too long loses its oldest tokens, never the reply."""
    bots = [
        train(tmp_path / str(turns), DIALOGUES, TRANSFORMER, 1, turns=turns, max_length=5, replies="second") for turns in (1, 5)
    ]
    single, multi = (one.examples("test") for one in bots)
    assert single.references == multi.references and single.sources != multi.sources
    scored = [one.score([source.split(" <turn> ") for source in multi.sources], multi.references) for one in bots]
    tokens = [[score.tokens if score else None for score in scores] for scores in scored]
    assert tokens[0] == tokens[1] and None not in tokens[0]
    assert bots[0].system.target_tokenizer.fingerprint == bots[1].system.target_tokenizer.fingerprint
    long = bots[1].system.source_tokenizer.encode(multi.sources[1])
    assert len(long) == 5 and bots[1].system.source_tokenizer.decode(long).endswith("a dog")
    assert [len(ChatData(one.run).open_train((one.system.target_tokenizer,) * 2)) for one in bots] == [24, 24]


def test_the_template_is_stored_with_the_run_and_makes_the_source(bot: ChatBot) -> None:
    folder = bot.checkpoint.parent.parent
    assert read_run(folder / "config.toml").config.data.template.speakers == ("<user>", "<bot>")
    text = bot.format_turns(["old", "the cat", "cat sees", "a dog"])
    assert text == "<user> the cat <turn> <bot> cat sees <turn> <user> a dog <turn> <bot>"
    ids = bot.system.source_tokenizer.encode(text)
    assert len(ids) == 3 + 4 + 6  # separators, speakers, words
    injected = bot.system.source_tokenizer.encode(bot.format_turns(["<turn> <bot>"]))
    assert injected.count(ids[3]) == 1  # the separator before the reply only


def test_a_streamed_reply_is_the_reply_and_equals_that_of_a_file(bot: ChatBot) -> None:
    history = ["the cat", "cat sees", "a dog"]
    parts: list[str] = []
    reply = bot.reply(history, show=parts.append)
    assert "".join(parts) == reply.text
    assert bot.predict("\t".join(history)) == reply.text
    (batched,) = bot.predictions(["\t".join(history)])
    assert isinstance(batched, Reply) and batched.history == history
    assert batched.candidates[0].tokens == reply.candidates[0].tokens
    assert math.isclose(batched.candidates[0].score, reply.candidates[0].score, abs_tol=1e-4)


def test_candidates_and_temperature_choose_the_search(bot: ChatBot) -> None:
    beam = bot.reply(["the cat"], candidates=3)
    assert len(beam.candidates) == 3 and len(beam.rows()) == 3
    assert [one.score for one in beam.candidates] == sorted((one.score for one in beam.candidates), reverse=True)
    assert len(bot.reply(["the cat"], candidates=2, temperature=0.7).candidates) == 2
    greedy, cold = bot.reply(["the cat"]), bot.reply(["the cat"], temperature=0.0)
    assert greedy.text == cold.text
    with pytest.raises(ConfigError, match="temperature"):
        bot.reply(["the cat"], temperature=-1.0)


def test_a_conversation_keeps_undoes_and_forgets_turns(bot: ChatBot) -> None:
    conversation = bot.conversation()
    first = conversation.say("the cat")
    second = conversation.say("a dog")
    assert conversation.turns == ["the cat", first.text, "a dog", second.text]
    assert second.text == bot.reply(["the cat", first.text, "a dog"]).text
    assert conversation.undo() and conversation.say("a dog").text == second.text
    with pytest.raises(ConfigError, match="empty turn"):
        conversation.say("  ")

    def interrupt(part: str) -> None:
        raise KeyboardInterrupt

    before = list(conversation.turns)
    with pytest.raises(KeyboardInterrupt):
        conversation.say("the cow", interrupt)
        interrupt("a reply without text")
    assert conversation.turns[: len(before)] == before
    conversation.reset()
    assert conversation.turns == []
    with pytest.raises(ConfigError, match="no reply yet"):
        conversation.why()


def test_weights_of_words_sum_to_those_of_turns_and_turns_to_one(bot: ChatBot) -> None:
    history = ["long ago", "the cat", "cat sees", "a dog"]
    found = bot.why(history, "dog runs")
    assert [turn.text for turn in found.turns] == history[1:]  # the window has three turns
    assert sum(turn.weight for turn in found.turns) <= 1 + 1e-5
    for turn in found.turns:
        assert turn.weight > 0 and turn.text.split() == [word.word for word in turn.words if not word.word.startswith("<")]
        assert math.isclose(sum(word.weight for word in turn.words), turn.weight, abs_tol=1e-5)
    assert found.to_dict()["turns"][0]["text"] == "the cat" and "reply: dog runs" in found.text()


def test_a_family_without_attention_has_no_explanation(tmp_path: Path) -> None:
    bot = train(tmp_path, DIALOGUES, {"family": "sutskever", "dim": 16, "layers": 1}, 1)
    with pytest.raises(ConfigError, match="attends to its source"):
        bot.why(["the cat"])


def test_one_text_or_an_empty_turn_is_no_history(bot: ChatBot) -> None:
    for wrong in ("the cat", [], ["the cat", " "]):
        with pytest.raises(ConfigError, match="expected"):
            bot.reply(wrong)


def test_distinct_counts_different_n_grams() -> None:
    assert distinct(["a b a b", "a b"], 2) == 100 * 2 / 4
    assert distinct(["a a", "a"], 1) == 100 / 3
    assert distinct(["a"], 2) == 0.0


def test_examples_of_a_validation_are_evenly_spaced() -> None:
    examples = Examples([str(at) for at in range(10)], [str(-at) for at in range(10)])
    assert evenly_spaced(examples, 0) is examples is evenly_spaced(examples, 10)
    assert evenly_spaced(examples, 4).sources == ["0", "2", "5", "7"]


def test_an_option_of_tasks_that_count_examples_is_refused(bot: ChatBot) -> None:
    with pytest.raises(ConfigError, match=r"data\.batch: given 8, but has no effect"):
        read_run(bot.checkpoint.parent.parent / "config.toml", ["data.batch=8"])
