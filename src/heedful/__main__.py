"""The command `heed`, and `python -m heedful`.

Importing the command line takes most of the time to start. A signal in that time ends the process with the message and exit
code of `cli/process.py`, which handles signals from then on.
"""

from __future__ import annotations

import os
import signal
import sys


def end_at_once(number: int, frame: object) -> None:
    """Handle a signal when nothing has been done yet, so that nothing needs to be cleaned up."""
    try:
        if sys.stderr is not None:  # closed: its number may be that of another file
            os.write(2, b"stopped: interrupted\n")
    finally:
        os._exit(os.EX_TEMPFAIL)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # keep SIGHUP ignored under nohup
            signal.signal(number, end_at_once)
    from heedful.cli import main

    main()


if __name__ == "__main__":
    main()
