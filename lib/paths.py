"""Absolute paths from the repository root, nothing else.

`CACHE` may be a symbolic link to a bigger disk.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "data"
CACHE = DATA / "cache"
RESULTS = DATA / "results"
FIGURES = ROOT / "figures"
NOTEBOOKS = ROOT / "notebooks"
