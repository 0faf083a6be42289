"""The data of masked language modeling: plain text, as for language models; sequences.py makes sequences of it."""

from __future__ import annotations

from heedful.data.report import CheckReport
from heedful.data.text_blocks import JoinedText
from heedful.tasks.base import RunConfig, Tokenizers
from heedful.tasks.language.data import TextData, TextSplits
from heedful.tasks.masked.config import MaskedConfig
from heedful.tasks.masked.masking import make_masking
from heedful.tasks.masked.sequences import Blocks, Pairs, SequenceSource
from heedful.text.specials import MASK, Specials


class MaskedData(TextData):
    def __init__(self, run: RunConfig) -> None:
        super().__init__(run)
        self.config: MaskedConfig = run.task

    @property
    def tags(self) -> list[str]:
        return [MASK]

    def prepare(self, tokenizers: Tokenizers, report: CheckReport) -> TextSplits:
        make_masking(self.config, tokenizers[1])  # an error without a mask token, before the text is encoded
        return self.prepare_whole(tokenizers)

    def sequences(self, text: JoinedText, marks: Specials) -> SequenceSource:
        """The sequences of encoded text; pairs of texts are made of a single one."""
        if self.config.next_sentence:
            (ids,) = text.texts
            return Pairs(ids, self.data.block, marks)
        return Blocks(text, self.data.block, marks)

    def usage_and_limits(self, folder: str) -> tuple[str, str]:
        usage = f'filler = heedful.load("{folder}")\nprint(filler.predict("the [MASK] sat"))'
        return usage, (
            f"Texts have at most {self.data.block} tokens. Tokens are predicted one by one, each as if the other masks of the "
            "text stayed hidden. A filled text is plausible, but not necessarily true."
        )
