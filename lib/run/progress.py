"""Progress of long work, for whoever waits: a line a visit with the time left.

Under `python -m lib.reproduce` the lines go to the file that it names and shows; elsewhere to stderr by
tqdm. Neither leaves anything in a notebook that reproduce has executed.
"""

import os
import time
from collections.abc import Iterator, Sequence

from tqdm import tqdm

LOG = "COMPENDIUM_PROGRESS"  # environment variable: the file that reproduce follows


def visits(what: str, items: Sequence) -> Iterator:
    """Yield the items, reporting each as it is finished. Items are named by their `label`."""
    log = os.environ.get(LOG)
    if not log:
        yield from tqdm(items, desc=what, mininterval=1, disable=not items)
        return
    start = time.monotonic()
    for k, item in enumerate(items, 1):
        yield item
        each = (time.monotonic() - start) / k
        with open(log, "a") as file:
            file.write(f"{what} {k}/{len(items)}  {item.label}  {each:.1f} s each, "
                       f"{minutes(each * (len(items) - k))} left here\n")


def minutes(seconds: float) -> str:
    """3 -> "3 s", 200 -> "3 min"."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
