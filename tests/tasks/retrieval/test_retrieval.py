"""Retrieval: own answers first, stored text only, an index that fits its checkpoint, and histories of turns."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_tasks import DIALOGUES, write_tiny_recipe
from workshop import heed, standard_input

import heedful
from heedful.errors import CheckpointError, ConfigError, DataError
from heedful.evaluation.bm25 import BM25
from heedful.runs.config import read_run
from heedful.tasks.conversation import Conversation
from heedful.tasks.retrieval.data import Example, RetrievalData
from heedful.tasks.retrieval.evaluate import Bm25Setting, bm25_scores, draw_candidates, model_scores
from heedful.tasks.retrieval.knowledge import KnowledgeBase, VectorTable, read_entries
from heedful.tasks.retrieval.model import row_losses

TURNS = [line.split("\t") for line in DIALOGUES.splitlines()]


@pytest.fixture
def run(tiny_runs: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of a run without index."""
    copied = shutil.copytree(tiny_runs["retrieval"], tmp_path / "run", symlinks=True)
    shutil.rmtree(copied / "knowledge" / "index", ignore_errors=True)
    return copied


@pytest.fixture
def retriever(run: Path) -> heedful.Retriever:
    return heedful.Retriever.load(run)


def write_faq(folder: Path) -> Path:
    file = folder / "faq.tsv"
    file.write_text("cat sees\tyes\ndog runs\tno\ncat sees\tcow eats\tperhaps\na plain answer\n")
    return file


def test_training_stores_the_examples_as_a_plain_file(run: Path) -> None:
    stored = [json.loads(line) for line in (run / "knowledge" / "replies.jsonl").read_text().splitlines()]
    expected = [{"question": one[max(at - 3, 0) : at], "answer": one[at]} for one in TURNS for at in range(1, 4)]
    assert stored == [entry for at, entry in enumerate(expected) if entry not in expected[:at]]


@pytest.mark.parametrize("match", ["questions", "both"])
def test_a_stored_question_returns_its_own_answer_at_rank_1(retriever: heedful.Retriever, tmp_path: Path, match: str) -> None:
    retriever.build(write_faq(tmp_path))
    for question, answer in {("cat sees",): "yes", ("dog runs",): "no", ("cat sees", "cow eats"): "perhaps"}.items():
        best, *others = retriever.search(question, 4, match)  # type: ignore[arg-type]
        assert (best.text, best.question) == (answer, question) and best.score == pytest.approx(1.0, abs=1e-5)
        assert len(others) == (2 if match == "questions" else 3)


def test_only_stored_text_is_returned(retriever: heedful.Retriever, tmp_path: Path) -> None:
    stored = {turn for dialogue in TURNS for turn in dialogue[1:]}
    texts = ["cat sees", "zzz", "<turn>", "dog runs\tcat", "here there cow"]
    for prediction in retriever.predictions(texts, top=50):
        found = [answer.text for answer in prediction.answers]
        assert set(found) <= stored and len(set(found)) == len(found) > 5
    assert {retriever.reply(["dog runs", "runs dog", text]).text for text in ("cow", "what?")} <= stored
    retriever.build(write_faq(tmp_path))
    assert {answer.text for answer in retriever.search("cat", 9, "answers")} == {"yes", "no", "perhaps", "a plain answer"}


@pytest.mark.parametrize("match", ["questions", "answers", "both"])
def test_search_equals_sorting_all_similarities(retriever: heedful.Retriever, match: str) -> None:
    entries = list(read_entries(retriever.knowledge_folder / "replies.jsonl"))
    query = retriever.encode_questions([["cow runs", "runs"]])
    sides = {
        "questions": retriever.encode_questions([entry.question for entry in entries]),
        "answers": retriever.encode_answers([entry.answer for entry in entries]),
    }
    best: dict[str, float] = {}
    for side, vectors in sides.items():
        if match in (side, "both"):
            for entry, score in zip(entries, (vectors @ query[0]).tolist(), strict=True):
                best[entry.answer] = max(best.get(entry.answer, -2.0), score)
    expected = sorted(best.values(), reverse=True)
    for top in (1, 4, 100):
        found = retriever.search(["cow runs", "runs"], top, match)  # type: ignore[arg-type]
        assert [answer.score for answer in found] == pytest.approx(expected[:top], abs=1e-5)
        assert all(best[answer.text] == pytest.approx(answer.score, abs=1e-5) for answer in found)


def test_an_answer_behind_many_equal_ones_is_found(tmp_path: Path) -> None:
    """Table 1 begins with many rows of one answer; the second best answer is behind them, before the best of table 2."""
    base = object.__new__(KnowledgeBase)
    entries = [json.dumps({"question": ["q"], "answer": "same" if at < 9 else f"answer {at}"}).encode() for at in range(12)]
    base.lines = np.frombuffer(b"".join(entries), np.uint8)
    base.offsets = np.cumsum([0, *map(len, entries)])
    first = torch.tensor([[1.0]] * 9 + [[0.9], [0.2], [0.1]])
    base.tables = {
        "questions": VectorTable(first, np.arange(12)),
        "answers": VectorTable(torch.tensor([[0.0], [0.5], [0.3], [0.1]]), np.array([0, 11, 10, 9])),
    }
    (found,) = base.search(torch.tensor([[1.0]]), "both", 2)
    assert [(answer.text, round(answer.score, 3)) for answer in found] == [("same", 1.0), ("answer 9", 0.9)]


def test_an_index_of_another_checkpoint_is_refused_until_it_is_rebuilt(
    run: Path, retriever: heedful.Retriever, tiny_runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    retriever.search("cat")
    recipe = write_tiny_recipe("retrieval", tmp_path)
    assert heed("train", recipe, "training.steps=2", "seed=5", "--run", tmp_path / "other") == 0
    shutil.copytree(run / "knowledge", tmp_path / "other" / "knowledge", dirs_exist_ok=True)
    with pytest.raises(CheckpointError, match="was made with another checkpoint"):
        heedful.Retriever.load(tmp_path / "other").search("cat")
    capsys.readouterr()
    assert heed("search", tmp_path / "other", "cat") == 4
    assert f"heed search {tmp_path / 'other'} --rebuild" in capsys.readouterr().err
    assert heed("search", tmp_path / "other", "cat", "--rebuild") == 0


def test_a_damaged_truncated_or_outdated_index_is_refused(run: Path, retriever: heedful.Retriever) -> None:
    retriever.search("cat")
    index = run / "knowledge" / "index"
    file = index / "answers.vectors"
    content = file.read_bytes()
    for damaged in (content[:-4], content[:-1] + bytes([content[-1] ^ 1]), b""):
        file.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"is damaged: answers.vectors") as error:
            heedful.Retriever.load(run).search("cat")
        assert "--rebuild" in str(error.value)
    file.write_bytes(content)
    heedful.Retriever.load(run).search("cat")
    (index / "MANIFEST.json").unlink()
    with pytest.raises(CheckpointError, match="is damaged"):
        heedful.Retriever.load(run).search("cat")
    retriever.build()
    with (run / "knowledge" / "replies.jsonl").open("a") as replies:
        replies.write('{"question": "new", "answer": "newer"}\n')
    with pytest.raises(CheckpointError, match="changed since it was indexed"):
        heedful.Retriever.load(run).search("cat")
    assert heed("search", run, "--rebuild") == 0
    assert heedful.Retriever.load(run).search("new", 1, "questions")[0].text == "newer"


def test_the_command_prints_the_answers_of_the_search(
    run: Path, retriever: heedful.Retriever, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert heed("search", run, "--build", write_faq(tmp_path), "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"knowledge": str(run / "knowledge"), "indexed": 4}
    assert heed("search", run, "cat sees", "cow eats", "--top", "2", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    found = retriever.search(["cat sees", "cow eats"], 2)
    assert printed["question"] == ["cat sees", "cow eats"]
    assert [(one["text"], one["score"]) for one in printed["answers"]] == [(one.text, one.score) for one in found]
    assert heed("search", run, "cat sees", "--match", "questions", "--top", "1") == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["1.0000", "yes", "cat", "sees"]


def test_wrong_files_and_arguments_are_errors(
    run: Path, retriever: heedful.Retriever, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content in {
        "a.tsv": "cat sees\t\n",
        "b.jsonl": '{"question": "a"}\n',
        "c.jsonl": '{"question": 5, "answer": "a"}\n',
        "d.jsonl": "[1]\n",
    }.items():
        (tmp_path / name).write_text(content)
        with pytest.raises(DataError, match=rf"{name} line 1"):
            retriever.build(tmp_path / name)
    before = (run / "knowledge" / "replies.jsonl").read_bytes()
    (tmp_path / "blank.txt").write_text("\n\n")
    with pytest.raises(DataError, match="there are no answers to store"):
        retriever.build(tmp_path / "blank.txt")
    assert (run / "knowledge" / "replies.jsonl").read_bytes() == before
    (tmp_path / "plain.jsonl").write_text('{"answer": "two\\nlines"}\n')
    retriever.build(tmp_path / "plain.jsonl")
    assert next(retriever.predictions(["cat"])).rows() == ["two lines"]
    with pytest.raises(ConfigError, match="the stored answers have no questions"):
        retriever.search("cat", match="questions")
    assert heed("search", run) == 2 and heed("search", run, "--rebuild", "--build", tmp_path / "a.tsv") == 2
    with pytest.raises(ConfigError, match="expected at least 1"):
        retriever.search("cat", 0)
    with pytest.raises(ConfigError, match="at least one word"):
        retriever.search(["cat", " "])
    with pytest.raises(ConfigError, match="unknown match 'question'"):
        retriever.search("cat", match="question")  # type: ignore[arg-type]


def test_a_history_is_encoded_newest_turn_first_within_the_window(retriever: heedful.Retriever) -> None:
    data, tokenizer = retriever.data, retriever.system.target_tokenizer
    (encoded,) = data.encode_questions([["dog there", "cat sees", "sees cat", "cow"]], tokenizer)
    assert tokenizer.decode(encoded[1:-1]) == "cow <turn> sees cat <turn> cat sees"
    assert data.encode_questions([["cow"]], tokenizer) == data.encode_answers(["cow"], tokenizer)
    (long,) = data.encode_questions([["cat " * 40, "dog"]], tokenizer)
    assert len(long) == 32 and tokenizer.decode(long[1:-1]).startswith("dog <turn> cat cat")
    (tagged,) = data.encode_questions([["a <turn> b"]], tokenizer)
    assert tagged.count(tokenizer.encode("<turn>")[0]) == 0


def test_the_history_changes_the_vector_and_the_answer_may_depend_on_it(retriever: heedful.Retriever) -> None:
    alone, with_history = retriever.encode_questions([["cow"], ["dog runs", "runs dog", "cow"]])
    assert not torch.allclose(alone, with_history, atol=1e-3)
    assert torch.allclose(retriever.encode(["cow"])[0], alone)


def test_a_batch_has_the_answers_and_hard_negatives_and_excludes_equal_ones(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("q,a,n\ncat sees,yes,no\ndog runs,yes,cat sees\ncat sees,maybe,\n")
    file = f'{{file="{tmp_path / "pairs.csv"}"}}'
    data = f'data={{form="similar", train={file}, valid={file}, columns=["q", "a", "n"], batch=4}}'
    heedful.train(
        write_tiny_recipe("retrieval", tmp_path), [data, "training.steps=1", "task.shared=false"], run=tmp_path / "run"
    )
    retriever = heedful.Retriever.load(tmp_path / "run")
    pairs, tokenizer = RetrievalData(retriever.run), retriever.system.target_tokenizer
    encoded = pairs.encode(retriever.examples("train"), tokenizer)
    batch = pairs.collate(encoded, [0, 1, 2], encoded.width, tokenizer.specials.pad)
    assert batch.answers.shape[:2] == (3, 2) and batch.answer_lengths[2, 1] == 0
    assert batch.allowed.int().tolist() == [
        [[1, 1], [0, 0], [0, 0]],  # row 2 has the same answer, its negative is the question; row 3 answers the same question
        [[0, 1], [1, 1], [1, 0]],
        [[0, 1], [1, 0], [1, 0]],
    ]
    assert row_losses(retriever.dual_encoder, batch, 0.1).isfinite().all()
    separate = retriever.dual_encoder.separate_answers
    assert separate is not None and not torch.equal(retriever.encode(["yes"]), retriever.encode_answers(["yes"]))


def test_bm25_and_the_model_score_the_same_candidates(retriever: heedful.Retriever) -> None:
    examples = [Example(("cat sees",), "sees cat"), Example(("a dog", "dog runs"), "runs dog"), Example(("cow",), "cow")]
    encoded = retriever.data.encode(examples, retriever.system.target_tokenizer)
    drawn = draw_candidates(encoded.answers, len(encoded.texts), 2)
    assert drawn[:, 0].tolist() == [0, 1, 2] and drawn.shape == (3, 2)
    scores = model_scores(retriever.dual_encoder, retriever.system, encoded, drawn)
    words = bm25_scores(examples, encoded.texts, drawn, Bm25Setting(1, 1.2, 0.75))
    questions = retriever.encode_questions([example.question for example in examples])
    answers = retriever.encode_answers(encoded.texts)
    for row in range(3):
        similar = (answers @ questions[row]).numpy()[drawn[row]]
        np.testing.assert_allclose(scores[row], similar, atol=1e-5)
        expected = BM25(encoded.texts).scores(examples[row].question[-1])[drawn[row]]
        np.testing.assert_allclose(words[row], expected)


def test_a_reply_has_candidates_the_stored_questions_and_an_explanation(retriever: heedful.Retriever) -> None:
    history, shown = ["the cat", "cat sees", "a sees"], list[str]()
    reply = retriever.reply(history, show=shown.append, candidates=3)
    assert [shown, list(reply.candidates)] == [[reply.text], retriever.search(history, 3)]
    assert [one.text for one in reply.neighbors] == [" | ".join(one.question) for one in reply.candidates]
    assert reply.neighbors[0].text == " | ".join(history)
    why = retriever.why(history, reply.text)
    assert [one["text"] for one in why.to_dict()["neighbors"]] == [one.text for one in retriever.search(history)]
    assert reply.text in why.text()
    with pytest.raises(ConfigError, match="'temperature', which has no effect"):
        retriever.reply(history, temperature=0.5)


def test_a_conversation_has_stored_replies_and_why_lists_their_neighbors(
    run: Path, retriever: heedful.Retriever, capsys: pytest.CaptureFixture[str]
) -> None:
    with standard_input(b"the cat\na sees\n"):
        assert heed("chat", run, "--json") == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    reply = retriever.reply(["the cat"]).text
    assert first["answers"][0]["text"] == reply
    assert second["question"] == ["the cat", reply, "a sees"]
    conversation = Conversation(retriever)
    conversation.say("the cat")
    assert conversation.why().to_dict()["reply"] == reply


def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    recipe = write_tiny_recipe("retrieval", tmp_path)
    for change, message in {
        "tokenizer.shared=false": "questions and answers have one vocabulary",
        "data.form=labeled": "data",
        "task.match=all": "expected one of",
    }.items():
        with pytest.raises(ConfigError, match=message):
            read_run(recipe, [change])
    with pytest.raises(ConfigError, match=r"training\.init has one encoder"):
        read_run(recipe, ["task.shared=false", "training.init=runs/other"])


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_a_retriever_of_another_precision_finds_nearly_the_same(
    run: Path, retriever: heedful.Retriever, precision: str
) -> None:
    expected = retriever.search("the cat", 3)
    found = heedful.Retriever.load(run, precision=precision).search("the cat", 3)
    assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=0.05)
