"""What a rule is, what it finds, and which rows it may read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lib.analysis.claims.margins import LANGUAGES, METHODS, MODELS

VERDICTS = ("supported", "not supported", "contradicted", "cannot tell")
CELL = ["model", "method", "group", "dtype"]  # one pruned model but for its calibration


class Missing(Exception):
    """A table or rows without which the claim cannot be judged; the message names them."""


@dataclass(frozen=True)
class Finding:
    verdict: str
    statistic: float
    low: float
    high: float
    n: int
    note: str = ""


@dataclass(frozen=True)
class Claim:
    id: str
    claim: str
    rule: str
    tables: tuple[str, ...]
    judge: Callable[[Mapping[str, pd.DataFrame], Mapping], Finding]
    changed: str = ""  # what was changed in the rule since it was written, when, and why


def rule(id: str, claim: str, words: str, tables: Sequence[str], changed: str = ""):
    """Make the decorated function the rule of a claim: (tables, main setting) -> Finding."""
    return lambda judge: Claim(id, claim, words, tuple(tables), judge, changed)


def decide(low: float, high: float, threshold: float, powered: bool) -> str:
    """Verdict on "the statistic is above the threshold" from its interval. `powered`: the data could have
    shown it, so that an interval across the threshold is a failure of the claim and not of the data."""
    if low > threshold:
        return "supported"
    if high < threshold:
        return "contradicted"
    return "not supported" if powered else "cannot tell"


def table(tables: Mapping[str, pd.DataFrame], name: str, columns: Sequence[str]) -> pd.DataFrame:
    """The table, if it is there with rows and these columns beside the common ones; raises Missing."""
    frame = tables.get(name)
    if frame is None or frame.empty:
        raise Missing(f"table {name} is missing or empty")
    lacking = [c for c in [*CELL, "calibration", "seed", *columns] if c not in frame]
    if lacking:
        raise Missing(f"table {name} lacks the column(s) {', '.join(lacking)}")
    return frame


def main_rows(frame: pd.DataFrame, main: Mapping, methods: Sequence[str] = METHODS) -> pd.DataFrame:
    """Pruned rows in the main setting, Wanda in its published group (per row); raises Missing."""
    keep = frame["method"].isin(methods) & ((frame["method"] != "wanda") | (frame["group"] == "row"))
    for column, value in main.items():
        if column not in frame:
            raise Missing(f"the column {column} is missing")
        keep &= np.isclose(frame[column], value) if isinstance(value, float) else frame[column] == value
    if not keep.any():
        setting = ", ".join(f"{k} {v}" for k, v in main.items())
        raise Missing(f"no rows of {' or '.join(methods)} at {setting}")
    return frame[keep]


def dense_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the dense models; raises Missing."""
    rows = frame[frame["method"] == "dense"]
    if rows.empty:
        raise Missing("no rows of the dense model")
    return rows


def is_mixture(calibration: pd.Series) -> pd.Series:
    return calibration.str.contains("+", regex=False) | (calibration == "all")


def matched(frame: pd.DataFrame) -> pd.DataFrame:
    """Single-language calibrations, and the evaluation languages that are among them; raises Missing when
    fewer than LANGUAGES are left."""
    rows = frame[~is_mixture(frame["calibration"])]
    languages = set(rows["calibration"]) & set(rows["language"])
    if len(languages) < LANGUAGES:
        raise Missing(f"{len(languages)} language(s) both calibrated in and evaluated; {LANGUAGES} needed")
    return rows[rows["calibration"].isin(languages) & rows["language"].isin(languages)]


def whatever(frame: pd.DataFrame) -> None:
    """Raises Missing unless both methods and enough models are there for a claim that holds for each."""
    absent = set(METHODS) - set(frame["method"])
    if absent:
        raise Missing(f"no rows of {' and '.join(sorted(absent))}, and the claim is about both methods")
    models = frame["model"].unique()
    if len(models) < MODELS:
        raise Missing(f"{models[0]} only, and the claim is about any model")
