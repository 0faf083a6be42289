"""How the help names what a verb takes: a flag by itself, an argument by its name, a list by what is in it.

--json     RUN     FILES …     --target <str> …       not --json <bool>, run <path>, files <list[Path]>
"""

from __future__ import annotations

import re
from typing import Any


def name_plainly(command: Any, parent: Any = None) -> Any:
    """The command, its parameters and those of all verbs below it named so."""
    context = command.context_class(command, info_name=command.name, parent=parent, **command.context_settings)
    for parameter in command.get_params(context):
        many = parameter.nargs != 1 or parameter.multiple
        if parameter.param_type_name == "argument":
            parameter.metavar = parameter.name.upper()
            parameter.display_type_rich = (lambda ctx: "…") if many else (lambda ctx: "")
        elif parameter.is_flag:
            parameter.metavar = ""
        elif parameter.metavar is None:
            inside = re.sub(r"list\[(.*)\]", r"\1", parameter.display_type(context)).replace(" range", "")
            parameter.metavar = f"{inside} …".lower() if many else inside
    for verb in getattr(command, "commands", {}).values():
        name_plainly(verb, context)
    return command
