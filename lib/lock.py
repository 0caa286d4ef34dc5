"""One process at a time: a lock that tells whose it is."""

import datetime
import fcntl
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lib.errors import InputError


@contextmanager
def held(path: Path, what: str, wait: bool = False) -> Iterator[None]:
    """Hold the lock of `what`, a file that is made if it is not there.

    The system drops the lock when its process ends, in whatever way: there is no stale one. Where another process
    has it, `wait` says so on stderr and waits; otherwise InputError names that process.
    """
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            if not wait:
                raise InputError(f"{what} is in use by {holder}; wait until it has ended, or stop it") from None
            print(f"{what} is in use by {holder}, waiting", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}, since {datetime.datetime.now():%Y-%m-%d %H:%M:%S} "
                   f"({' '.join(sys.argv)})\n")
        file.flush()
        yield
