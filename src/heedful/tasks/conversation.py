"""A conversation with a model that replies: its history, and what can be done with it.

    conversation = bot.conversation()
    conversation.say("hello").text
    conversation.undo()

Whatever replies is a `Replier`: it is given the turns so far and returns a reply, with the other candidates and, where replies
are retrieved, the stored turns that they were found by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from heedful.errors import ConfigError

Show = Callable[[str], None]  # is called with each new part of a reply while it is generated


class ReplyCandidate(Protocol):
    @property
    def text(self) -> str: ...
    @property
    def score(self) -> float: ...


class AnyReply(Protocol):
    @property
    def text(self) -> str: ...

    @property
    def candidates(self) -> Sequence[ReplyCandidate]:
        """Best first, at least one."""

    @property
    def neighbors(self) -> Sequence[ReplyCandidate]:
        """The stored turns that the reply was found by; none where it was generated."""

    def to_dict(self) -> dict[str, Any]: ...


class Explanation(Protocol):
    def text(self) -> str: ...

    def to_dict(self) -> dict[str, Any]: ...


@runtime_checkable
class Replier(Protocol):
    """What a conversation needs of a predictor."""

    def reply(
        self,
        history: Sequence[str],
        *,
        show: Show | None = None,
        candidates: int = 1,
        temperature: float | None = None,
        **search: Any,
    ) -> AnyReply:
        """The reply to the last turn of a history, oldest turn first. candidates: replies to return; temperature: of sampling,
        None: as the run searches; search: further options of the search."""

    def why(self, history: Sequence[str], reply: str) -> Explanation:
        """What the reply to a history depends on."""


class Conversation:
    """The turns of a user and a model, in turn. `options` are those of `Replier.reply`; they may be changed between turns."""

    def __init__(self, replier: Replier, **options: Any) -> None:
        self.replier, self.options = replier, dict(options)
        self.turns: list[str] = []

    def say(self, text: str, show: Show | None = None) -> AnyReply:
        """Add a turn and the reply to it, and return the reply. A reply that is interrupted leaves the history unchanged."""
        if not text.strip():
            raise ConfigError("given an empty turn, expected at least one word")
        reply = self.replier.reply([*self.turns, text], show=show, **self.options)
        self.turns += [text, reply.text]
        return reply

    def undo(self) -> bool:
        """Remove the last turn and its reply; False if there is none."""
        removed = bool(self.turns)
        del self.turns[-2:]
        return removed

    def reset(self) -> None:
        """Remove all turns."""
        self.turns.clear()

    def why(self) -> Explanation:
        """What the last reply depends on."""
        if not self.turns:
            raise ConfigError("there is no reply yet to explain")
        return self.replier.why(self.turns[:-1], self.turns[-1])

    def to_dict(self) -> dict[str, Any]:
        """The turns as a line of dialogue data (data/dialogues.py)."""
        speakers = ("user", "model")
        return {"turns": [{"speaker": speakers[at % 2], "text": text} for at, text in enumerate(self.turns)]}
