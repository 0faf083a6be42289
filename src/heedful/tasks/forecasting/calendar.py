"""The calendar: features of the time of a step, and the times that follow a series.

hour = (cos, sin)(2 pi h / 24)        so that 23:00 is next to 0:00; weekday, day of the month and month likewise
"""

from __future__ import annotations

import math
from calendar import monthrange
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from heedful.errors import DataError

CovariateName = Literal["hour", "weekday", "day", "month"]
DAY, WEEK = timedelta(days=1), timedelta(days=7)
LONGEST = 31  # days of a month

COVARIATES: dict[CovariateName, Callable[[datetime], float]] = {  # time -> position in its cycle, from 0 to 1
    "hour": lambda time: (time.hour + time.minute / 60) / 24,
    "weekday": lambda time: time.weekday() / 7,
    "day": lambda time: (time.day - 1) / 31,
    "month": lambda time: (time.month - 1) / 12,
}


def calendar_features(times: Sequence[str], names: Sequence[CovariateName], rows: int) -> NDArray[np.float32]:
    """(rows, 2 x names); no names: (rows, 0)."""
    if not names:
        return np.zeros((rows, 0), np.float32)
    moments = [datetime.fromisoformat(time) for time in times]
    turns = [[2 * math.pi * COVARIATES[name](moment) for name in names] for moment in moments]
    angles = np.array(turns, np.float64)  # (rows, names)
    return np.concatenate((np.cos(angles), np.sin(angles)), 1).astype(np.float32)


def next_times(times: Sequence[str], count: int) -> list[str]:
    """The times of the steps after a series, with the distance of its last two; without times, the numbers of the steps."""
    if not times:
        return [str(step) for step in range(1, count + 1)]
    last, previous = datetime.fromisoformat(times[-1]), datetime.fromisoformat(times[-2] if len(times) > 1 else times[-1])
    months = (last.year - previous.year) * 12 + last.month - previous.month
    day = LONGEST if is_month_end(last) and is_month_end(previous) else max(last.day, previous.day)
    by_month = months > 0 and last == add_months(previous, months, day)
    try:
        following = [
            add_months(last, months * step, day) if by_month else last + (last - previous) * step
            for step in range(1, count + 1)
        ]
    except (OverflowError, ValueError):
        raise DataError("the forecast would end after the year 9999; expected earlier times") from None
    return [format_like(times[-1], moment) for moment in following]


def add_months(moment: datetime, months: int, day: int) -> datetime:
    """This day of a later month, or the last day of a shorter one; ValueError after the year 9999."""
    years, month = divmod(moment.month - 1 + months, 12)
    year = moment.year + years
    return moment.replace(year=year, month=month + 1, day=min(day, monthrange(year, month + 1)[1]))


def is_month_end(moment: datetime) -> bool:
    return moment.day == monthrange(moment.year, moment.month)[1]


def format_like(example: str, moment: datetime) -> str:
    """The time in the format of another one."""
    if example.isdigit():  # 20240531
        return f"{moment:%Y%m%d}"
    if len(example) == len("2024-05-31"):
        return moment.date().isoformat()
    return moment.isoformat(sep="T" if "T" in example else " ", timespec="auto" if example.count(":") > 1 else "minutes")


def season_of(times: Sequence[str]) -> int:
    """Steps of a day, or of a week where a step is a day or more; without times: 1."""
    if len(times) < 2:
        return 1
    step = datetime.fromisoformat(times[1]) - datetime.fromisoformat(times[0])
    return max(round((DAY if step < DAY else WEEK) / step), 1)
