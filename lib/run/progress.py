"""Progress of long work, for whoever waits: a line a visit with the time left.

Under `python -m lib.reproduce` the lines go to the file that it names and shows; elsewhere to stderr by
tqdm. Neither leaves anything in a notebook that reproduce has executed.
"""

import os
import time
from collections.abc import Iterable

from tqdm import tqdm

LOG = "COMPENDIUM_PROGRESS"  # environment variable: the file that reproduce follows


def report(what: str, finished: Iterable, total: int) -> None:
    """Go through items as they are finished, `total` in all, and report each. Items are named by their `label`."""
    log = os.environ.get(LOG)
    if not log:
        for _ in tqdm(finished, desc=what, total=total, mininterval=1, disable=not total):
            pass
        return
    start = time.monotonic()
    for k, item in enumerate(finished, 1):
        each = (time.monotonic() - start) / k
        left = minutes(each * (total - k))
        with open(log, "a") as file:
            file.write(f"{what} {k}/{total}  {item.label}  {each:.1f} s each, {left} left here\n")


def minutes(seconds: float) -> str:
    """3 -> "3 s", 200 -> "3 min"."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
