"""Absolute paths from the repository root, and how a path is shown to a person.

What runs write goes into the checkout, or, where the environment variable COMPENDIUM_OUTPUT names a folder, into that:
a checkout may be read-only, or lie on a disk that is too small. `CACHE` may also be a symbolic link.
"""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = Path(os.environ.get("COMPENDIUM_OUTPUT") or ROOT).absolute()
DATA = ROOT / "data"
CACHE = OUTPUT / "data" / "cache"
RESULTS = DATA / "results"
FIGURES = OUTPUT / "figures"
NOTEBOOKS = ROOT / "notebooks"
EXECUTED = OUTPUT / "notebooks" / "executed"


def shown(path: Path) -> str:
    """The path as seen from the repository root where it lies in there, else the whole path."""
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)
