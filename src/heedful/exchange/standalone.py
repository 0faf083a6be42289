"""Translate with start.onnx and step.onnx; requires only onnxruntime, tokenizers and numpy.

    python translate.py FOLDER < lines > translations

The beam search of `heed translate`, without its constraints: the hypotheses of a sentence are rows of one batch, and to
reorder them, the rows of all state tensors are indexed.
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
        self.start_graph, self.step_graph = (
            onnxruntime.InferenceSession(folder / name) for name in ("start.onnx", "step.onnx")
        )
        self.state_names = [output.name for output in self.start_graph.get_outputs()]
        self.input_names = {entry.name for entry in self.step_graph.get_inputs()}
        self.output_names = [output.name.removeprefix("next.") for output in self.step_graph.get_outputs()]
        self.source_tokenizer, self.target_tokenizer = (
            Tokenizer.from_file(str(folder / self.facts["tokenizers"][side])) for side in ("source", "target")
        )
        self.source_tokenizer.encode_special_tokens = True

    def translate(self, text: str) -> str:
        ids = self.source_tokenizer.encode(text, add_special_tokens=False).ids
        control = {self.facts["target"][name] for name in ("pad", "start", "end")}
        generated = [id for id in self.search(ids) if id not in control] if ids else []
        return str(self.target_tokenizer.decode(generated, skip_special_tokens=False))

    def search(self, ids: list[int]) -> list[int]:
        """Return the ids of the best hypothesis, without start and end."""
        options, special = self.facts["search"], self.facts["target"]
        limit = min(max(len(ids) + options["max_extra"], options["min_length"]), options["max_length"])  # without the end
        if self.facts["max_length"]:
            limit = min(limit, self.facts["max_length"] - 1)
        state = self.start([*ids, self.facts["source"]["end"]])
        total = np.zeros(1)  # (rows,) log-probability of each prefix
        prefixes: list[list[int]] = [[special["start"]]]
        finished: list[tuple[float, list[int]]] = []
        for length in range(1, limit + 2):
            logits, state = self.step([prefix[-1] for prefix in prefixes], state)
            scores = total[:, None] + logits - log_total(logits)
            if length <= options["min_length"]:
                scores[:, special["end"]] = -np.inf
            if length == limit + 1:
                scores[:, np.arange(scores.shape[1]) != special["end"]] = -np.inf
            best = np.argsort(-scores, axis=None, kind="stable")[: options["beam"] - len(finished)]
            rows, tokens = np.divmod(best, scores.shape[1])
            for row, token in zip(rows, tokens, strict=True):
                if token == special["end"] and np.isfinite(scores[row, token]):
                    finished.append((scores[row, token] / self.penalty(length), prefixes[row][1:]))
            kept = [rank for rank, token in enumerate(tokens) if token != special["end"]]
            kept = [rank for rank in kept if np.isfinite(scores.flat[best[rank]])]
            if not kept:
                break
            total = scores.flat[best[kept]]
            prefixes = [[*prefixes[rows[rank]], int(tokens[rank])] for rank in kept]
            state = {name: tensor[rows[kept]] for name, tensor in state.items()}
            if finished and total.max() / self.penalty(limit + 1) <= max(finished)[0]:
                break  # log-probabilities only decrease
        return max(finished, key=lambda hypothesis: hypothesis[0])[1]

    def penalty(self, length: int) -> float:
        alpha = self.facts["search"]["length_penalty"]
        base = length if self.facts["search"]["penalty"] == "power" else (5 + length) / 6
        return float(base**alpha)

    def start(self, ids: list[int]) -> dict[str, NDArray[Any]]:
        source = np.array([ids])
        tensors = self.start_graph.run(None, {"source": source, "real": np.ones_like(source, dtype=bool)})
        return dict(zip(self.state_names, tensors, strict=True))

    def step(self, tokens: list[int], state: dict[str, NDArray[Any]]) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        inputs = {"token": np.array(tokens)} | state
        outputs = self.step_graph.run(None, {name: x for name, x in inputs.items() if name in self.input_names})
        after = dict(zip(self.output_names, outputs, strict=True))
        return after.pop("logits"), state | after


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
