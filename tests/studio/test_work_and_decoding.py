"""Work and Decoding: the texts and numbers of the page are those of Python."""

from __future__ import annotations

import itertools
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from serving.running_server import run_server
from studio.studio_pages import IN_BROWSER, TEXT, cells, page, playwright, settle
from tiny_tasks import example_of, write_tiny_recipe
from workshop import heed

import heedful
from heedful import inspection
from heedful.inspection.explaining.trained import CONTINUATION
from heedful.inspection.explaining.tree import STATUSES, prefix_of

pytestmark = IN_BROWSER
HOSTILE = "<img src=x onerror=alert(1)> \u202eabc"


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another translation model."""
    folder = tmp_path_factory.mktemp("second")
    recipe = write_tiny_recipe("translation", folder)
    assert heed("train", recipe, "training.steps=3", "seed=7", "--run", folder / "second") == 0
    return folder / "second"


@pytest.fixture(scope="module")
def url(
    tiny_runs: dict[str, Path], second: Path, tiny_encoder: Path, tiny_several: Path, tmp_path_factory: Any
) -> Iterator[str]:
    """A server with a model of every task, a second translation model, and classifiers of other kinds."""
    named, runs = tmp_path_factory.mktemp("named"), {"pooling": tiny_encoder, "several": tiny_several}
    copies = [shutil.copytree(run, named / name, symlinks=True) for name, run in runs.items()]
    with run_server(*tiny_runs.values(), second, *copies) as running:
        yield running.url


def numbers(opened: Any, selector: str) -> list[float]:
    return [float(text) for text in opened.locator(selector).all_inner_texts()]


def common_words(one: list[str], other: list[str]) -> int:
    """The length of the longest common subsequence."""
    found = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, j in itertools.product(range(len(one)), range(len(other))):
        found[i + 1][j + 1] = found[i][j] + 1 if one[i] == other[j] else max(found[i][j + 1], found[i + 1][j])
    return found[-1][-1]


def assert_difference(opened: Any, selector: str, text: str, other: str) -> None:
    """The element shows the text; its words without a mark are a longest common subsequence with the other text."""
    assert opened.locator(selector).inner_text() == text
    marked = " ".join(opened.locator(f"{selector} mark").all_inner_texts()).split()
    unmarked = len(text.split()) - len(marked)
    assert unmarked == common_words(text.split(), other.split())


def test_work_translates_and_decodes_again_after_an_alternative(browser: Any, url: str, translator: Any) -> None:
    with page(browser, url, "work") as opened:
        (best,) = translator.translations([TEXT])
        assert opened.locator("#translation").inner_text() == best.text
        assert numbers(opened, '[data-number="log-probability"]') == [round(best.candidates[0].log_probability, 4)]
        assert numbers(opened, '[data-number="score"]') == [round(best.candidates[0].score, 4)]
        opened.get_by_role("group", name="Target tokens").locator("button").nth(1).click()
        settle(opened)
        expected = inspection.alternatives(translator, TEXT, 1)
        shown = [row[1] for row in cells(opened, "#alternatives tbody tr")]
        assert shown == [f"{one.probability:.4f}" for one in expected.alternatives]
        assert opened.locator("#entropy").inner_text() == f"{expected.entropy:.3f}"
        other = next(one.piece for one in expected.alternatives if not one.chosen)
        opened.locator("#alternatives button", has_text=other.lstrip("▁")).first.click()
        settle(opened)
        forced = inspection.alternatives(translator, TEXT, 1, instead=other).instead
        assert forced is not None
        assert_difference(opened, "#forced", forced.translation, best.text)
        assert opened.locator("#forced-log-probability").inner_text() == f"{forced.log_probability:.4f}"
        assert "step=1" in opened.url
        opened.locator("#adopt").click()
        settle(opened)
        again = inspection.alternatives(translator, TEXT, 1, target=forced.translation)
        assert [row[1] for row in cells(opened, "#alternatives tbody tr")] == [
            f"{one.probability:.4f}" for one in again.alternatives
        ]
        opened.locator("#original").click()
        settle(opened)
        first = inspection.alternatives(translator, TEXT, 0)
        assert opened.locator("#entropy").inner_text() == f"{first.entropy:.3f}"


def test_work_links_target_tokens_to_the_source_by_attention_and_by_gradients(browser: Any, url: str, translator: Any) -> None:
    attention = inspection.attention(translator, TEXT).to_dict()["alignment"]["tokens"]["weights"]
    saliency = inspection.saliency(translator, TEXT).to_dict()["saliency"]["source"]
    with page(browser, url, "work") as opened:
        source, target = (opened.get_by_role("group", name=f"{side} tokens") for side in ("Source", "Target"))
        for name, values in (("attention", attention), ("gradient × input", saliency)):
            opened.get_by_role("button", name=name).click()
            settle(opened)
            for at in (0, 2):
                target.locator("button").nth(at).focus()
                titles = source.locator(".piece").evaluate_all("pieces => pieces.map(one => one.title)")
                shown = [float(title.rpartition(": ")[2]) for title in titles]
                assert shown == pytest.approx(values[at][: len(shown)], abs=6e-5) and len(shown) == 3


def test_work_changes_the_search_and_lists_hypotheses(browser: Any, url: str, translator: Any) -> None:
    with page(browser, url, "work") as opened:
        opened.get_by_text("Options").click()
        opened.get_by_label("beam size").fill("6")
        opened.get_by_label("length penalty").fill("1.5")
        opened.get_by_role("spinbutton", name="hypotheses").fill("4")
        opened.get_by_role("button", name="Apply").click()
        settle(opened)
        (best,) = translator.translations([TEXT], beam=6, length_penalty=1.5, n_best=4)
        rows = cells(opened, "#candidates tbody tr")
        assert rows == [[one.text, f"{one.log_probability:.4f}", f"{one.score:.4f}"] for one in best.candidates]
        assert len(rows) == 4


def test_work_shows_two_translation_models_side_by_side(browser: Any, url: str, translator: Any, second: Path) -> None:
    with page(browser, url, "work") as opened:
        opened.get_by_label("compare with").select_option("second")
        settle(opened)
        (own,), (other,) = translator.translations([TEXT]), heedful.Translator.load(second).translations([TEXT])
        assert own.text != other.text
        assert_difference(opened, "#other", other.text, own.text)
        shown = numbers(opened, '[data-number="log-probability"]')
        assert shown == [round(one.candidates[0].log_probability, 4) for one in (own, other)]


def test_the_keyboard_runs_moves_between_tokens_and_chooses_an_alternative(browser: Any, url: str, translator: Any) -> None:
    with page(browser, url, "work") as opened:
        opened.locator("#input").fill("w4 w5")
        opened.locator("#input").press("Enter")
        settle(opened)
        assert opened.locator("#translation").inner_text() == translator.predict("w4 w5")
        tokens = opened.get_by_role("group", name="Target tokens").locator("button")
        tokens.first.focus()
        tokens.first.press("ArrowRight")
        tokens.nth(1).press("Enter")
        settle(opened)
        assert tokens.nth(1).evaluate("one => one === document.activeElement")
        assert tokens.nth(1).get_attribute("aria-pressed") == "true" and "step=1" in opened.url
        chosen = opened.locator("#alternatives button").nth(1)
        chosen.press("Enter")
        settle(opened)
        listed = inspection.alternatives(translator, "w4 w5", 1).alternatives
        other = [one for one in listed if one.piece == chosen.get_attribute("title")]
        assert len(other) == 1
        if not other[0].chosen:
            forced = inspection.alternatives(translator, "w4 w5", 1, instead=other[0].piece).instead
            assert forced is not None and opened.locator("#forced").inner_text() == forced.translation


@pytest.mark.parametrize("name", ["classification", "pooling", "several"])
def test_work_classifies_with_shaded_words(
    browser: Any, url: str, name: str, tiny_runs: Any, tiny_encoder: Path, tiny_several: Path
) -> None:
    classifier = heedful.load({"pooling": tiny_encoder, "several": tiny_several}.get(name, tiny_runs["classification"]))
    text = "the cat sees"
    (expected,) = classifier.predictions([text])
    found = expected.to_dict()
    with page(browser, url, "work", model=name, text=text) as opened:
        rows = {row[0]: row[1] for row in cells(opened, '[aria-label="Probabilities of the labels"] tr')}
        assert rows == {label: f"{value:.4f}" for label, value in found["probabilities"].items()}
        assert opened.locator("[data-label]").inner_text() == (expected.text or "(no label)")
        if name != "classification":
            shown = opened.locator("#document .word").evaluate_all("all => all.map(w => [w.textContent, w.dataset.weight])")
            words = [word for one in inspection.document(classifier, text).sentences for word in one.words]
            assert shown == [[word.word, f"{word.weight:.4f}"] for word in words] and words
            opened.get_by_role("button", name="gradient × input").click()
            settle(opened)
        values = inspection.saliency(classifier, text).to_dict()
        titles = opened.locator("#saliency .piece").evaluate_all("pieces => pieces.map(one => one.title)")
        assert titles == [
            f"{token}: {value:.4f} nats" for token, value in zip(values["inputs"], values["saliency"]["target"][0], strict=True)
        ]


def test_work_classifies_a_pair_of_texts(browser: Any, tmp_path: Path) -> None:
    recipe = write_tiny_recipe("classification", tmp_path)
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.tsv").write_text("yes\tthe cat sees\tthe cat\nno\ta dog runs\tthe cat\n" * 8)
    options = ("data.texts=[2, 3]", "task.layout=entailment", "training.steps=2")
    assert heed("train", recipe, *options, "--run", tmp_path / "pairs") == 0
    classifier = heedful.Classifier.load(tmp_path / "pairs")
    (expected,) = classifier.predictions(["a dog\tthe cat runs"])
    with (
        run_server(tmp_path / "pairs") as running,
        page(browser, running.url, "work", model="pairs", text="the cat\tthe dog") as opened,
    ):
        opened.get_by_label("Text 1").fill("a dog")
        opened.get_by_label("Text 2").fill("the cat runs")
        opened.locator("#run").click()
        settle(opened)
        rows = {row[0]: row[1] for row in cells(opened, '[aria-label="Probabilities of the labels"] tr')}
        assert rows == {label: f"{value:.4f}" for label, value in expected.probabilities.items()}
        values = inspection.saliency(classifier, "a dog\tthe cat runs").to_dict()
        titles = opened.locator("#saliency .piece").evaluate_all("pieces => pieces.map(one => one.title)")
        assert titles == [
            f"{token}: {value:.4f} nats" for token, value in zip(values["inputs"], values["saliency"]["target"][0], strict=True)
        ]


def test_work_samples_translations(browser: Any, url: str, translator: Any) -> None:
    with page(browser, url, "work") as opened:
        opened.get_by_text("Options").click()
        opened.locator(".options select").select_option("sample")
        opened.get_by_label("temperature").fill("0.8")
        opened.get_by_label("seed").fill("5")
        opened.get_by_role("button", name="Apply").click()
        settle(opened)
        (samples,) = translator.translations([TEXT], method="sample", temperature=0.8, seed=5, n_best=3)
        rows = cells(opened, "#candidates tbody tr")
        assert rows == [[one.text, f"{one.log_probability:.4f}", f"{one.score:.4f}"] for one in samples.candidates]


def test_generated_texts_of_two_models_are_underlined_from_the_first_difference_on(browser: Any, url: str) -> None:
    def add_twin(reply: Any) -> Any:
        (own,) = (one for one in reply["models"] if one["id"] == "language")
        return {"models": [own, own | {"id": "twin"}]}

    def with_seed(route: Any) -> None:
        data = route.request.post_data
        route.continue_(post_data=data.replace("twin", "language").replace('"seed":3', '"seed":4') if "twin" in data else data)

    opened = open_with(browser, url, "work?model=language&text=the+cat", {"/api/models": add_twin})
    opened.route("**/v1/completions", with_seed)
    opened.get_by_label("compare with").select_option("twin")
    opened.get_by_text("Options").click()
    opened.locator("#seed").fill("3")
    opened.locator("#run").click()
    opened.locator("#streamed-other [role=button]").first.wait_for(timeout=20_000)
    opened.locator("#streamed [role=button]").first.wait_for(timeout=20_000)
    texts = [opened.locator(one).evaluate("one => one.textContent") for one in ("#streamed", "#streamed-other")]
    assert texts[0] != texts[1]
    shared = "".join(a for a, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False)))
    plain = opened.locator("#streamed").evaluate(
        "one => [...one.children].filter(part => !part.classList.contains('differs')).map(part => part.textContent).join('')"
    )
    assert shared.startswith(plain) and len(plain) > len(shared) - 20 and opened.locator("#streamed .differs").count() > 0
    opened.close()


def test_work_tags_words(browser: Any, url: str, tiny_runs: Any) -> None:
    (expected,) = heedful.Tagger.load(tiny_runs["tagging"]).predictions(["the cat sees ."])
    with page(browser, url, "work", model="tagging", text="the cat sees .") as opened:
        assert opened.locator(".group small").all_inner_texts() == expected.labels
        shown = opened.locator(".word").evaluate_all("words => words.map(one => one.dataset.probability)")
        assert shown == [f"{value:.4f}" for value in expected.probabilities]
        opened.locator(".word").first.focus()
        opened.locator(".word").first.press("ArrowRight")
        assert opened.locator('[data-number="probability"]').inner_text() == f"{expected.probabilities[1]:.4f}"


def test_work_tags_vectors_of_numbers(browser: Any, tiny_numeric: Path) -> None:
    text = "1\t2\n-1\t0\n3\t0.5"
    (expected,) = heedful.Tagger.load(tiny_numeric).predictions([text])
    with run_server(tiny_numeric) as running, page(browser, running.url, "work", model="run", text="") as opened:
        opened.get_by_label("Vectors").fill(text)
        opened.locator("#run").click()
        settle(opened)
        assert opened.locator(".group small").all_inner_texts() == expected.labels
        shown = opened.locator(".word").evaluate_all("words => words.map(one => one.dataset.probability)")
        assert shown == [f"{value:.4f}" for value in expected.probabilities]


def test_work_fills_masks(browser: Any, url: str, tiny_runs: Any) -> None:
    text = "[MASK] dog [MASK]"
    (expected,) = heedful.MaskFiller.load(tiny_runs["masked"]).predictions([text], top=5)
    with page(browser, url, "work", model="masked", text=text) as opened:
        for at, mask in enumerate(expected.masks, start=1):
            rows = cells(opened, f'[aria-label="Most probable tokens of mask {at}"] tr')
            assert [row[:2] for row in rows] == [[one.token, f"{one.probability:.4f}"] for one in mask]
        assert opened.locator("[data-filled] mark").all_inner_texts() == [mask[0].token for mask in expected.masks]


def test_work_marks_an_answer_by_characters_not_by_code_units(browser: Any, url: str, tiny_runs: Any) -> None:
    question, context = "where is the cat?", "😀 the cat 😀 is in the box"
    (expected,) = heedful.SpanExtractor.load(tiny_runs["span"]).predictions([(question, context)])
    with page(browser, url, "work", model="span", text=f"{question}\t{context}") as opened:
        assert opened.locator(".context mark").inner_text() == expected.text == opened.locator("[data-answer]").inner_text()
        assert opened.locator(".context").inner_text() == context
        assert opened.locator('[data-number="probability"]').inner_text() == f"{expected.probability:.4f}"
        assert opened.locator("#input-1").input_value() == context


@pytest.mark.parametrize("task", ["embedding", "skip_thought"])
def test_work_ranks_texts_by_similarity(browser: Any, url: str, task: str, tiny_runs: Any) -> None:
    others = ["dog runs", "cat sees", "the cow"]
    (values,) = heedful.Embedder.load(tiny_runs[task]).similarity(["cat sees"], others).tolist()
    with page(browser, url, "work", model=task, text="cat sees") as opened:
        opened.locator("#input-1").fill("\n".join(others))
        opened.locator("#run").click()
        settle(opened)
        rows = [row[:2] for row in cells(opened, '[aria-label="Cosine similarity"] tr')]
        ranked = sorted(zip(values, others, strict=True), reverse=True)
        assert rows == [[text, f"{value:.4f}"] for value, text in ranked] and rows[0][0] == "cat sees"


def test_work_searches_stored_answers(browser: Any, url: str, tiny_runs: Any) -> None:
    answers = heedful.Retriever.load(tiny_runs["retrieval"]).search("the cat", top=5)
    with page(browser, url, "work", model="retrieval", text="the cat") as opened:
        assert opened.locator(".answers .text").all_inner_texts() == [one.text for one in answers]
        assert opened.locator(".answers .score").all_inner_texts() == [f"{one.score:.4f}" for one in answers]


@pytest.mark.parametrize("task", ["chat", "retrieval"])
def test_a_dialogue_has_candidates_reasons_and_undo(browser: Any, url: str, task: str, tiny_runs: Any) -> None:
    replier: Any = heedful.load(tiny_runs[task])
    with page(browser, url, "work", model=task, text="the dog") as opened:
        if task == "retrieval":
            opened.get_by_role("button", name="Dialogue").click()
        opened.locator("#run").click()
        opened.get_by_role("button", name="Why").wait_for()
        reply = replier.reply(["the dog"]).text
        assert opened.locator("li.assistant .text").inner_text() == (reply or "(empty reply)")
        opened.get_by_role("button", name="Why").click()
        settle(opened)
        why = replier.why(["the dog"], reply).to_dict()
        if task == "chat":
            assert [row[1] for row in cells(opened, "#why-turns tbody tr")] == [
                f"{turn['weight']:.4f}" for turn in why["turns"]
            ]
        else:
            rows = cells(opened, "#why-neighbors tbody tr")
            assert [row[0] for row in rows] == [f"{one['score']:.4f}" for one in why["neighbors"]] and rows
        opened.get_by_role("button", name="Candidates").click()
        settle(opened)
        options = {"top": 5} if task == "retrieval" else {"method": "beam", "beam": 5, "n_best": 5}
        (found,) = replier.predictions(["the dog"], **options)
        rows = cells(opened, "#candidates tbody tr")
        assert [row[:2] for row in rows] == [[one.text, f"{one.score:.4f}"] for one in found.candidates] and len(rows) > 1
        opened.get_by_role("button", name="Undo").click()
        assert opened.locator(".turns li").count() == 0 and opened.locator("#input").input_value() == "the dog"


def test_work_streams_generated_text_with_log_probabilities(browser: Any, url: str, tiny_runs: Any) -> None:
    generator = heedful.TextGenerator.load(tiny_runs["language"])
    (expected,) = generator.predictions(["the cat"], length=8, logprobs=5, method="sample", temperature=0.7, top_p=1.0, seed=3)
    (completion,) = expected.completions
    with page(browser, url, "work", model="language", text="the cat") as opened:
        opened.get_by_text("Options").click()
        opened.locator("#length").fill("8")
        opened.locator("#temperature").fill("0.7")
        opened.locator("#seed").fill("3")
        opened.locator("#run").click()
        playwright.expect(opened.locator("#streamed [role=button]")).to_have_count(len(completion.tokens), timeout=20_000)
        shown = opened.locator("#streamed").evaluate("one => one.textContent")
        assert shown.replace("⏎", "") == f"the cat{completion.text}"
        assert completion.log_probabilities is not None
        for at in (0, 5):
            opened.locator("#streamed [role=button]").nth(at).focus()
            one = completion.log_probabilities[at]
            assert opened.locator('[data-number="logprob"]').inner_text() == f"{one.log_probability:.4f}"
            rows = cells(opened, '[aria-label="Most probable tokens at this position"] tr')
            assert [row[1] for row in rows] == [f"{math.exp(value):.4f}" for _, value in one.top]


def test_generation_is_stopped_by_its_button(browser: Any, url: str) -> None:
    with page(browser, url, "work", model="language", text="the cat") as opened:
        opened.get_by_text("Options").click()
        opened.locator("#length").fill("2048")
        opened.locator("#run").click()
        playwright.expect(opened.locator("#streamed")).to_contain_text("the cat ", timeout=20_000)
        opened.locator("#stop").click()
        playwright.expect(opened.locator("#run")).to_be_enabled(timeout=5_000)
        assert "Stopped." in opened.get_by_label("Output of language").inner_text()
        length = len(opened.locator("#streamed").inner_text())
        opened.wait_for_timeout(300)
        assert len(opened.locator("#streamed").inner_text()) == length


@pytest.mark.parametrize("model", ["translation", "tagging", "classification", "language", "embedding"])
def test_hostile_text_is_shown_as_text(browser: Any, url: str, model: str) -> None:
    with page(browser, url, "work", model=model, text=HOSTILE, width=390) as opened:
        if opened.locator("#run").is_enabled():
            opened.locator("#run").click()
            opened.wait_for_timeout(500)
            settle(opened)
        assert opened.locator("img").count() == 0 and opened.locator("#input").input_value() == HOSTILE
        assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_an_error_of_the_server_is_shown_as_a_sentence(browser: Any, url: str) -> None:
    opened = browser.new_page()  # `page` refuses what the browser logs for an answer of status 400
    opened.goto(f"{url}/#/work?model=masked&text=no+mask+here")
    opened.get_by_role("alert").wait_for()
    assert "has no mask; expected at least one [MASK]" in opened.get_by_role("alert").inner_text()
    opened.close()


def search_stage(predictor: Any, text: str, **options: Any) -> Any:
    config = predictor.search_config_from(options)
    (stage,) = inspection.explain(predictor, text, about="tree", config=config).stages
    assert stage.tree is not None
    return stage


def test_decoding_shows_the_search_tree_with_every_number(browser: Any, url: str, translator: Any) -> None:
    with page(browser, url, "decoding") as opened:
        tree = search_stage(translator, TEXT).tree
        assert opened.locator("g.node").count() == len(tree.nodes)
        statuses = set()
        for at in {next((i for i, node in enumerate(tree.nodes) if i and node.status == one), 3) for one in STATUSES}:
            opened.locator(f'g.node[data-index="{at}"]').click()
            node, shown = tree.nodes[at], opened.locator("#node").inner_text()
            numbers = f"p {node.probability:.4f} · log P {node.total:.4f} · score {node.score:.4f} · rank {node.rank}"
            assert numbers in shown
            words = [tree.words[i].lstrip("▁").replace("</s>", "end") for i in ancestors(tree, at)]
            assert opened.locator("#prefix").inner_text() == " ".join(words)
            statuses.add((node.status, opened.locator("#status").inner_text()))
        assert len(statuses) == len({status for status, _ in statuses}) >= 3


def ancestors(tree: Any, at: int) -> list[int]:
    """The nodes from the first token to a node."""
    path: list[int] = []
    while tree.nodes[at].parent >= 0:
        path.insert(0, at)
        at = tree.nodes[at].parent
    return path


def test_decoding_follows_the_search_options(browser: Any, url: str, translator: Any) -> None:
    with page(browser, url, "decoding") as opened:
        for beam, penalty in ((2, 0.6), (2, 1.4)):
            opened.locator("#beam").fill(str(beam))
            opened.locator("#penalty").fill(str(penalty))
            opened.locator("#penalty").press("Enter")
            settle(opened)
            stage = search_stage(translator, TEXT, beam=beam, length_penalty=penalty)
            assert opened.locator("g.node").count() == len(stage.tree.nodes)
            expected = [[text, f"{total:.4f}", f"{score:.4f}"] for text, total, score in stage.matrices[0].cells]
            assert cells(opened, "table.results tbody tr") == expected
            ends = sorted((node for node in stage.tree.nodes if node.status == "finished"), key=lambda node: -node.score)
            shown = cells(opened, "#finished tbody tr")
            assert [row[1:] for row in shown] == [[f"{node.total:.4f}", f"{node.score:.4f}"] for node in ends] and len(ends) > 1


def test_decoding_is_played_scrubbed_and_read_step_by_step(browser: Any, url: str, translator: Any) -> None:
    with page(browser, url, "decoding") as opened:
        tree = search_stage(translator, TEXT).tree
        opened.locator("#step").focus()
        opened.locator("#step").press("ArrowRight")
        settle(opened)
        for step in (1, 2):
            assert opened.locator("#search-step").inner_text() == str(step) and f"step={step}" in opened.url
            assert opened.locator("g.node").count() == sum(node.length <= step + 1 for node in tree.nodes)
            expected = inspection.alternatives(translator, TEXT, step)
            rows = cells(opened, "#top tr")
            assert [row[1] for row in rows] == [f"{one.probability:.4f}" for one in expected.alternatives[:10]]
            assert opened.locator("#entropy").inner_text() == f"{expected.entropy:.3f}"
            if step == 1:
                opened.get_by_role("button", name="Next step", exact=True).click()
                settle(opened)
        opened.get_by_role("button", name="Previous step").click()
        assert opened.locator("#search-step").inner_text() == "1"
        opened.locator("#play").click()
        playwright.expect(opened.locator("#search-step")).to_have_text("2", timeout=5_000)
        opened.locator("#play").click()
        opened.wait_for_timeout(1200)
        assert opened.locator("#search-step").inner_text() == "2"
        opened.get_by_role("button", name="Whole tree").click()
        assert opened.locator("g.node").count() == len(tree.nodes)
        settle(opened)


def test_the_arrow_keys_move_in_the_tree(browser: Any, url: str, translator: Any) -> None:
    with page(browser, url, "decoding") as opened:
        tree = search_stage(translator, TEXT).tree
        start = ancestors(tree, tree.best[0])[0]
        opened.locator(f'g.node[data-index="{start}"]').focus()
        opened.keyboard.press("ArrowRight")
        assert opened.evaluate("document.activeElement.dataset.index") == str(ancestors(tree, tree.best[0])[1])
        opened.keyboard.press("ArrowDown")
        below = int(opened.evaluate("document.activeElement.dataset.index"))
        assert (
            tree.nodes[below].length == 2 and f"p {tree.nodes[below].probability:.4f}" in opened.locator("#node").inner_text()
        )
        opened.keyboard.press("ArrowLeft")
        assert opened.evaluate("document.activeElement.dataset.index") == str(tree.nodes[below].parent)
        wide = opened.locator("main svg[role=group]").evaluate("one => one.clientWidth")
        opened.keyboard.press("-")
        assert opened.locator("main svg[role=group]").evaluate("one => one.clientWidth") < wide


@pytest.mark.parametrize(("name", "text"), [("translation", TEXT), ("language", "the cat"), ("classification", "the cat sees")])
def test_decoding_shows_the_lens(browser: Any, url: str, name: str, text: str, tiny_runs: Any) -> None:
    with page(browser, url, "decoding", model=name, text=text) as opened:
        lens = inspection.lens(heedful.load(tiny_runs[name]), text)
        rows = cells(opened, "#lens tbody tr")
        assert len(rows) == len(lens.layers) > 0
        for row, layer in zip(rows, lens.layers, strict=True):
            assert all(f"{value:.4f}" in cell for cell, value in zip(row[1:], layer.probability, strict=True))
        if name == "classification":
            assert "generates no text" in opened.locator("main").inner_text()


def test_decoding_shows_the_continuation_of_a_language_model(browser: Any, url: str, tiny_runs: Any) -> None:
    generator = heedful.TextGenerator.load(tiny_runs["language"])
    with page(browser, url, "decoding", model="language", text="the cat") as opened:
        tree = search_stage(generator, "the cat", method="beam").tree
        assert opened.locator("g.node").count() == len(tree.nodes)
        assert "generates by sampling, which has no search tree" in opened.locator("main").inner_text()
        (expected,) = generator.predictions(["the cat"], length=CONTINUATION, method="beam")
        assert prefix_of(tree.nodes, tree.best[0])[1:-1] == expected.completions[0].tokens
        first = inspection.alternatives(generator, "the cat", 0)
        assert opened.locator("#entropy").inner_text() == f"{first.entropy:.3f}"


def test_decoding_of_a_model_that_generates_nothing_says_so(browser: Any, url: str) -> None:
    text = example_of("skip_thought").inputs[0]
    with page(browser, url, "decoding", model="skip_thought", text=text) as opened:
        assert "there is no search to show" in opened.locator("main").inner_text()


def open_with(browser: Any, url: str, address: str, changes: dict[str, Callable[[Any], Any]]) -> Any:
    """Open an address; replies of these paths are changed on their way to the page."""
    opened = browser.new_page()

    def change(path: str) -> Callable[[Any], None]:
        def answer(route: Any) -> None:
            response = route.fetch()
            route.fulfill(response=response, json=changes[path](response.json()))

        return answer

    for path in changes:
        opened.route(f"**{path}", change(path))
    opened.goto(f"{url}/#/{address}")
    opened.wait_for_selector("html[data-ready]", timeout=20_000)
    settle(opened)
    return opened


def test_a_task_without_a_form_of_its_own_is_shown_by_its_typed_result(browser: Any, url: str, tiny_runs: Any) -> None:
    def rename(reply: Any) -> Any:
        for one in reply["models"]:
            one["task"] = "weather" if one["id"] == "classification" else one["task"]
        return reply

    (expected,) = heedful.Classifier.load(tiny_runs["classification"]).predictions(["the cat sees"])
    opened = open_with(browser, url, "work?model=classification&text=the+cat+sees", {"/api/models": rename})
    shown = opened.locator("[data-prediction]").inner_text()
    assert expected.text in shown and "{" not in shown
    assert all(f"{value:.4f}" in shown for value in expected.probabilities.values())
    opened.close()


@pytest.mark.parametrize(
    ("own", "other", "marked"),
    [
        ("我喜欢绿茶", "我喜欢红茶", ["红"]),
        ("the red cat sleeps here", "a cat sleeps in there", ["a", "in there"]),
        ("<b>a</b> b", "<b>a</b> <i>c</i>", ["<i>c</i>"]),
    ],
    ids=["characters", "words", "markup"],
)
def test_differences_are_marked_by_words_or_by_characters(
    browser: Any, url: str, own: str, other: str, marked: list[str]
) -> None:
    texts = iter([own, other])

    def replace_text(reply: Any) -> Any:
        reply["predictions"][0]["translation"] = next(texts)
        return reply

    opened = open_with(browser, url, "work?model=translation&text=w1+w2", {"/api/predict": replace_text})
    opened.get_by_label("compare with").select_option("second")
    settle(opened)
    assert opened.locator("#other").inner_text() == other and opened.locator("#translation").inner_text() == own
    assert opened.locator("#other mark").all_inner_texts() == marked
    opened.close()


def test_text_from_right_to_left_is_shown_so(browser: Any, url: str) -> None:
    with page(browser, url, "work", model="tagging", text="القط ينام .", width=390) as opened:
        assert opened.locator(".tagged").evaluate("one => getComputedStyle(one).direction") == "rtl"
        first, second = (opened.locator(".word").nth(at).bounding_box() for at in (0, 1))
        assert first["x"] > second["x"]
    arabic = {"source_tokens": ["▁القط", "▁ينام", "▁."], "source_words": [0, 1, 2]}
    changes: Any = {"/api/inspect/alternatives": lambda reply: reply | arabic}
    opened = open_with(browser, url, f"work?model=translation&text={TEXT.replace(' ', '+')}", changes)
    tokens = opened.get_by_role("group", name="Source tokens")
    assert tokens.evaluate("one => getComputedStyle(one).direction") == "rtl" and "القط" in tokens.inner_text()
    opened.close()


def test_a_step_beyond_the_end_shows_the_last_position(browser: Any, url: str, translator: Any) -> None:
    last = len(translator.encode_example(TEXT).outputs.ids) - 1
    expected = inspection.alternatives(translator, TEXT, last)
    for view in ("work", "decoding"):
        with page(browser, url, view, step=60) as opened:
            assert opened.locator("#entropy").inner_text() == f"{expected.entropy:.3f}"


def test_a_new_user_reads_why_a_word_was_chosen_and_what_would_come_instead(browser: Any, url: str, translator: Any) -> None:
    """The sentence names the probability, the best other token and the source token with most attention."""
    expected = inspection.alternatives(translator, TEXT, 0)
    weights = inspection.attention(translator, TEXT).to_dict()["alignment"]["tokens"]["weights"][0]
    chosen = next(one for one in expected.alternatives if one.chosen)
    other = next(one for one in expected.alternatives if not one.chosen)
    with page(browser, url, "work") as opened:
        opened.get_by_role("button", name="Example").click()
        opened.locator("#input").fill(TEXT)
        opened.get_by_role("button", name="Translate").click()
        settle(opened)
        why = " ".join(opened.locator("#why").inner_text().split())
        assert f"{chosen.piece.lstrip('▁')} has probability {chosen.probability:.4f} at position 0" in why
        assert f"the best other token is {other.piece.lstrip('▁')} with {other.probability:.4f}" in why
        at = max(range(len(weights)), key=weights.__getitem__)
        assert f": {TEXT.split()[at]} {weights[at]:.4f}." in opened.locator("#link").inner_text()
        opened.get_by_role("link", name="step by step").click()
        settle(opened)
        assert opened.locator("g.node").count() > 1


@pytest.mark.parametrize("task", ["classification", "tagging"])
def test_other_tasks_have_two_models_side_by_side(
    browser: Any, url: str, task: str, tiny_runs: Any, tiny_encoder: Path
) -> None:
    def duplicate(reply: Any) -> Any:
        """A classifier under another id has the answers of its twin; a tagger is compared with itself."""
        (own,) = (one for one in reply["models"] if one["id"] == task)
        return {"models": [own, *(one for one in reply["models"] if one["id"] == "pooling"), own | {"id": "twin"}]}

    text = "the cat sees"
    predictor: Any = heedful.load(tiny_runs[task])
    (expected,) = predictor.predictions([text])
    opened = open_with(browser, url, f"work?model={task}&text=the+cat+sees", {"/api/models": duplicate})
    if task == "classification":
        opened.get_by_label("compare with").select_option("pooling")
        settle(opened)
        (second,) = heedful.Classifier.load(tiny_encoder).predictions([text])
        shown = [row[1] for row in cells(opened, '#other [aria-label="Probabilities of the labels"] tr')]
        assert shown == [f"{value:.4f}" for value in sorted(second.probabilities.values(), reverse=True)]
        assert opened.locator("[data-label].differs").count() == (2 if second.text != expected.text else 0)
    else:
        opened.route("**/api/predict", lambda route: route.continue_(post_data=route.request.post_data.replace("twin", task)))
        opened.get_by_label("compare with").select_option("twin")
        settle(opened)
        assert opened.locator("#other .group small").all_inner_texts() == expected.labels
        assert "Both models predict the same labels." in opened.get_by_label("Output").inner_text()
    opened.close()
