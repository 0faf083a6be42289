"""heed chat: a conversation with a model that replies, in the terminal or by lines of standard input."""

from __future__ import annotations

import math
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from heedful.cli.output import Checkpoint, Device, Json, Precision, Search, print_json, print_message, print_text
from heedful.cli.predict import Run, load_run, refuse_search_options, search_config
from heedful.errors import ConfigError, HeedfulError, nearest
from heedful.storage.terminal import printable

if TYPE_CHECKING:
    from heedful.tasks.conversation import AnyReply, Conversation
    from heedful.tasks.predictor import Predictor

PROMPT = "> "
MAX_TEMPERATURE, MAX_CANDIDATES = 1000.0, 100


def chat(
    run: Run,
    search: Search = None,
    candidates: Annotated[int, typer.Option(min=1, max=MAX_CANDIDATES, help="Candidate replies to show.")] = 1,
    checkpoint: Checkpoint = None,
    device: Device = None,
    precision: Precision = "fp32",
    json: Json = False,
) -> None:
    """Hold a conversation with a run that replies; /help lists the commands.

    Without a terminal, each line of standard input is a turn, and an empty line begins a new conversation."""
    from heedful.tasks.conversation import Conversation

    predictor = load_run(run, None, checkpoint, device, precision)
    replier: Any = refuse_other_tasks(run, predictor)
    refuse_search_options(search, predictor.run.task.name, "predict")
    config = search_config(predictor, search)
    given = {name: getattr(config, name) for name in (option.partition("=")[0].strip() for option in search or [])}
    conversation = Conversation(replier, candidates=candidates, **given)
    if not json and all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout)):
        converse(conversation, f"{predictor.run.model.family} of {run}")
    else:
        reply_to_lines(conversation, json)


def refuse_other_tasks(run: Path, predictor: Predictor) -> Predictor:
    """The predictor, if it replies; an error with the tasks that do."""
    from heedful.tasks import TASKS, find_task
    from heedful.tasks.conversation import Replier

    if isinstance(predictor, Replier):
        return predictor
    tasks = " or ".join(repr(name) for name in TASKS if issubclass(find_task(name).predictor, Replier))
    raise ConfigError(f"{run} is a run of task {predictor.run.task.name!r}, which does not reply; expected task {tasks}")


def reply_to_lines(conversation: Conversation, json: bool) -> None:
    from heedful.data.input_lines import STDIN, read_texts

    for line in read_texts(STDIN, may_be_empty=True):
        if not line.strip():
            conversation.reset()
            continue
        reply = conversation.say(line)
        if json:
            print_json(reply.to_dict())
        else:
            print_text(reply.text if len(reply.candidates) == 1 else "\n".join(format_candidates(reply)))


def format_candidates(reply: AnyReply) -> list[str]:
    return [f"{candidate.score:.4f}\t{candidate.text}" for candidate in reply.candidates]


def converse(conversation: Conversation, title: str) -> None:
    """The conversation in a terminal: Ctrl-C ends a reply or clears the line, Ctrl-D ends the conversation."""
    with suppress(ImportError):  # not on every system
        import readline  # noqa: F401 - gives `input` line editing and a history
    print_message(f"{title}; /help lists the commands, Ctrl-D ends")
    with interruptible():
        while True:
            try:
                line = input(PROMPT)
            except KeyboardInterrupt:
                print_text("")
                continue
            except EOFError:
                print_text("")
                return
            except UnicodeDecodeError:
                print_message("the line is not UTF-8; expected UTF-8 text")
                continue
            try:
                if not answer_line(conversation, line.strip()):
                    return
            except KeyboardInterrupt:
                print_text("")
                print_message("interrupted; this turn is not part of the history")
            except HeedfulError as error:
                print_message(f"error: {error.args[0]}" + (f"\nhint: {error.hint}" if error.hint else ""))


def answer_line(conversation: Conversation, line: str) -> bool:
    """Reply to a turn or run a command; False: the conversation ends."""
    if not line:
        return True
    if line.startswith("/") and not line.startswith("//"):
        return run_command(conversation, line)
    reply = conversation.say(line.removeprefix("/") if line.startswith("//") else line, show_part)
    print_text("")
    if len(reply.candidates) > 1:
        print_text("\n".join(format_candidates(reply)))
    return True


def show_part(text: str) -> None:
    """Print a part of a reply. What could control the terminal is shown as its code."""
    sys.stdout.write(printable(text))
    sys.stdout.flush()


@contextmanager
def interruptible() -> Iterator[None]:
    """Let every Ctrl-C raise KeyboardInterrupt: the handler of a command ends the process at the second one."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class ChatCommand(NamedTuple):
    argument: str  # its name in the help; empty: none
    help: str
    function: Callable[[Conversation, str], str]  # returns what is printed


def run_command(conversation: Conversation, line: str) -> bool:
    """Run a command such as /undo; False for /quit."""
    name, _, argument = line.partition(" ")
    if name == "/quit":
        return False
    command = COMMANDS.get(name)
    if command is None:
        close = nearest(name, [*COMMANDS, "/quit"])
        hint = f"did you mean {close}?" if close else "/help lists the commands; begin a turn with // to send a slash"
        raise ConfigError(f"unknown command {name!r:.40}", hint=hint)
    argument = argument.strip()
    if bool(argument) != bool(command.argument):
        expected = f"expected {name} {command.argument}" if command.argument else f"expected {name} alone"
        raise ConfigError(f"given {line!r:.60}, {expected}")
    print_text(command.function(conversation, argument))
    return True


def show_help(conversation: Conversation, argument: str) -> str:
    rows = {f"{name} {command.argument}".strip(): command.help for name, command in COMMANDS.items()} | {"/quit": "End."}
    width = max(map(len, rows))
    return "\n".join(f"{name:<{width}}  {text}" for name, text in rows.items())


def reset(conversation: Conversation, argument: str) -> str:
    conversation.reset()
    return "the history is empty"


def undo(conversation: Conversation, argument: str) -> str:
    if not conversation.undo():
        raise ConfigError("there is no turn to undo")
    return f"{len(conversation.turns)} turns in the history"


def set_temperature(conversation: Conversation, argument: str) -> str:
    try:
        value = float(argument)
    except ValueError:
        value = math.nan
    if not 0 <= value <= MAX_TEMPERATURE:
        raise ConfigError(f"/temperature: given {argument!r:.40}, expected a number from 0 to {MAX_TEMPERATURE:g}")
    conversation.options["temperature"] = value
    return f"temperature {value:g}"


def set_candidates(conversation: Conversation, argument: str) -> str:
    if not argument.isdecimal() or not 1 <= int(argument[:9]) <= MAX_CANDIDATES:
        raise ConfigError(f"/candidates: given {argument!r:.40}, expected an integer from 1 to {MAX_CANDIDATES}")
    conversation.options["candidates"] = int(argument)
    return f"{int(argument)} candidates"


def save(conversation: Conversation, argument: str) -> str:
    from json import dumps

    from heedful.storage.writing import append_line

    if not conversation.turns:
        raise ConfigError("there is no turn to save")
    path = Path(argument).expanduser()
    append_line(path, dumps(conversation.to_dict(), ensure_ascii=False))
    return f"{len(conversation.turns)} turns appended to {path}"


def why(conversation: Conversation, argument: str) -> str:
    return conversation.why().text()


COMMANDS: Mapping[str, ChatCommand] = {
    "/reset": ChatCommand("", "Begin a new conversation.", reset),
    "/undo": ChatCommand("", "Remove the last turn and its reply.", undo),
    "/temperature": ChatCommand("X", "Sample with this temperature; 0: always the most probable token.", set_temperature),
    "/candidates": ChatCommand("N", "Show the N best replies with their scores.", set_candidates),
    "/save": ChatCommand("FILE", "Append the conversation to a .jsonl file of dialogues.", save),
    "/why": ChatCommand("", "Show what the last reply depends on: turns and words, or stored questions.", why),
    "/help": ChatCommand("", "Show this list.", show_help),
}
