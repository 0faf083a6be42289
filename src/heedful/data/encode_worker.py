"""A process that encodes shards of a corpus; started by `encode_shards.py`.

    standard input     the encoder, then (folder, items) for each shard, pickled by the parent
    standard output    None for each shard, or the error, pickled

It ends when its input ends, also because the parent was killed.
"""

from __future__ import annotations

import pickle
import signal
import sys

from heedful.errors import WriteError
from heedful.storage.folders import new_folder


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent closes the input
    given, answers = sys.stdin.buffer, sys.stdout.buffer
    encoder = pickle.load(given)
    while True:
        try:
            folder, items = pickle.load(given)
        except (EOFError, pickle.UnpicklingError):  # the parent ended, perhaps while it was sending a shard
            return
        error: BaseException | None = None
        try:
            with new_folder(folder) as temporary:
                encoder.write(temporary, items)
        except WriteError as problem:
            error = problem.__cause__ or problem  # the cause is not pickled with it
        except Exception as problem:
            error = problem
        try:
            pickle.dump(error, answers)
            answers.flush()
        except BrokenPipeError:  # the parent ended
            return


if __name__ == "__main__":
    main()
