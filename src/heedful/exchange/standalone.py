"""Translate with start.onnx and step.onnx and nothing else than onnxruntime, tokenizers and numpy.

    python translate.py FOLDER < lines > translations

A beam search as `heed translate` has it, without its constraints: the hypotheses of a sentence are rows of one batch, and
where they change places, rows of all that is known are taken.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Translator:
    def __init__(self, folder: str | Path) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        folder = Path(folder)
        self.facts = json.loads((folder / "export.json").read_text(encoding="utf-8"))
        self.begin, self.go_on = (onnxruntime.InferenceSession(folder / name) for name in ("start.onnx", "step.onnx"))
        self.known = [one.name for one in self.begin.get_outputs()]
        self.taken = {one.name for one in self.go_on.get_inputs()}
        self.said = [one.name.removeprefix("next.") for one in self.go_on.get_outputs()]
        self.read, self.write = (
            Tokenizer.from_file(str(folder / self.facts["tokenizers"][side])) for side in ("source", "target")
        )
        self.read.encode_special_tokens = True

    def translate(self, text: str) -> str:
        ids = self.read.encode(text, add_special_tokens=False).ids
        silent = {self.facts["target"][name] for name in ("pad", "start", "end")}
        said = [id for id in self.search(ids) if id not in silent] if ids else []
        return str(self.write.decode(said, skip_special_tokens=False))

    def search(self, ids: list[int]) -> list[int]:
        """The best sentence's ids, without start and end."""
        asked, special = self.facts["search"], self.facts["target"]
        limit = min(max(len(ids) + asked["max_extra"], asked["min_length"]), asked["max_length"])  # the end not counted
        if self.facts["longest"]:
            limit = min(limit, self.facts["longest"] - 1)
        known = self.start([*ids, self.facts["source"]["end"]])
        total = np.zeros(1)  # (rows,) log-probability of each beginning
        begun: list[list[int]] = [[special["start"]]]
        found: list[tuple[float, list[int]]] = []
        for length in range(1, limit + 2):
            logits, known = self.step([row[-1] for row in begun], known)
            scores = total[:, None] + logits - log_total(logits)
            if length <= asked["min_length"]:
                scores[:, special["end"]] = -np.inf
            if length == limit + 1:
                scores[:, np.arange(scores.shape[1]) != special["end"]] = -np.inf
            best = np.argsort(-scores, axis=None, kind="stable")[: asked["beam"] - len(found)]
            rows, tokens = np.divmod(best, scores.shape[1])
            for row, token in zip(rows, tokens, strict=True):
                if token == special["end"] and np.isfinite(scores[row, token]):
                    found.append((scores[row, token] / self.penalty(length), begun[row][1:]))
            going = [place for place, token in enumerate(tokens) if token != special["end"]]
            going = [place for place in going if np.isfinite(scores.flat[best[place]])]
            if not going:
                break
            total = scores.flat[best[going]]
            begun = [[*begun[rows[place]], int(tokens[place])] for place in going]
            known = {name: tensor[rows[going]] for name, tensor in known.items()}
            if found and total.max() / self.penalty(limit + 1) <= max(found)[0]:
                break  # log-probabilities only fall
        return max(found, key=lambda one: one[0])[1]

    def penalty(self, length: int) -> float:
        alpha = self.facts["search"]["length_penalty"]
        base = length if self.facts["search"]["penalty"] == "power" else (5 + length) / 6
        return float(base**alpha)

    def start(self, ids: list[int]) -> dict[str, NDArray[Any]]:
        source = np.array([ids])
        found = self.begin.run(None, {"source": source, "real": np.ones_like(source, dtype=bool)})
        return dict(zip(self.known, found, strict=True))

    def step(self, tokens: list[int], known: dict[str, NDArray[Any]]) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        given = {"token": np.array(tokens)} | known
        answers = self.go_on.run(None, {name: x for name, x in given.items() if name in self.taken})
        after = dict(zip(self.said, answers, strict=True))
        return after.pop("logits"), known | after


def log_total(logits: NDArray[Any]) -> NDArray[Any]:
    largest = logits.max(-1, keepdims=True)
    total: NDArray[Any] = np.log(np.exp(logits - largest).sum(-1, keepdims=True)) + largest
    return total


if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv):
        sys.exit(__doc__)
    translator = Translator(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
    for line in sys.stdin:
        print(translator.translate(line.rstrip("\n")), flush=True)
