"""JSON that was written elsewhere: whatever is wrong with it becomes one DataError that names its place."""

from __future__ import annotations

import json
from typing import Any

from heedful.errors import DataError


def parse_json(text: str, place: str, *, hint: str | None = None) -> Any:
    """The value of a JSON text; `place` names the file, and the line where there are several."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        reason = error.msg
    except RecursionError:
        reason = "too deeply nested"
    except ValueError:  # Python refuses to read an integer of thousands of digits
        reason = "a number has thousands of digits"
    raise DataError(f"{place} is not JSON: {reason}", hint=hint)
