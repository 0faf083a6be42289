"""Metavars of the help texts: none for a flag, the name of an argument, the item type of a list.

--json     RUN     FILES …     --target <str> …       not --json <bool>, run <path>, files <list[Path]>
"""

from __future__ import annotations

import re
from typing import Any


def set_metavars(command: Any, parent: Any = None) -> Any:
    """Set the metavars of a command and of all its subcommands; return the command."""
    context = command.context_class(command, info_name=command.name, parent=parent, **command.context_settings)
    for parameter in command.get_params(context):
        many = parameter.nargs != 1 or parameter.multiple
        if parameter.param_type_name == "argument":
            parameter.metavar = parameter.name.upper()
            parameter.display_type_rich = (lambda ctx: "…") if many else (lambda ctx: "")
        elif parameter.is_flag:
            parameter.metavar = ""
        elif parameter.metavar is None:
            item = re.sub(r"list\[(.*)\]", r"\1", parameter.display_type(context)).replace(" range", "")
            parameter.metavar = f"{item} …".lower() if many else item
    for subcommand in getattr(command, "commands", {}).values():
        set_metavars(subcommand, context)
    return command
