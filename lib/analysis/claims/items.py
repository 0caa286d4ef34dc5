"""The answers to task items that verdicts may read, and what their noise allows to be seen."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from lib.analysis.claims.margins import ALPHA, WORTHWHILE
from lib.analysis.claims.rules import CELL, Missing, dense_rows, main_rows, table
from lib.analysis.intervals import spearman
from lib.analysis.tasks import above_chance

PLACE = ["model", "task", "language"]
ABOVE_CHANCE = ("Tasks and languages where the dense model is not above chance (exact binomial, one-sided, "
                f"p < {ALPHA:.2g}) are left out and counted. ")


def answers(tables: Mapping[str, pd.DataFrame], main: Mapping) -> tuple[pd.DataFrame, pd.DataFrame, int]:
    """-> (answers of pruned models, of dense ones, number of model-task-language triples left out).

    Left out is where the dense model is not above chance: exact one-sided binomial test of its answers. There
    pruning has nothing to take away, and which calibration "wins" is decided by noise.
    """
    columns = ["language", "task"]
    items = table(tables, "task_items", [*columns, "item", "correct"])
    chance = table(tables, "downstream", [*columns, "chance"]).groupby(columns)["chance"].first()
    dense = dense_rows(items)
    kept, dropped = [], 0
    for place, answered in dense.groupby(PLACE):
        if place[1:] not in [(t, x) for x, t in chance.index]:
            raise Missing(f"table downstream has no chance level for {place[1]} in {place[2]}")
        right, level = int(answered["correct"].sum()), chance[place[2], place[1]]
        if above_chance(right, len(answered), level, ALPHA):
            kept.append(place)
        else:
            dropped += 1
    if not kept:
        raise Missing("every task and language is at chance in the dense model")
    pruned = main_rows(items, main)
    pruned, dense = (rows[pd.MultiIndex.from_frame(rows[PLACE]).isin(kept)] for rows in (pruned, dense))
    if pruned.empty:
        raise Missing("no answers of pruned models where the dense model is above chance")
    return pruned, dense, dropped


def by_calibration(rows: pd.DataFrame):
    """Yield (cell as a dict of CELL, task, language; answers [items, calibrations], averaged over draws).
    Items that some calibration lacks are left out."""
    names = [*CELL, "task", "language"]
    for key, group in rows.groupby(names):
        grid = group.groupby(["item", "calibration"])["correct"].mean().unstack().dropna()
        if len(grid) and grid.shape[1] > 1:
            yield dict(zip(names, key, strict=True)), grid


def wins(accuracy: np.ndarray, target: int) -> np.ndarray:
    """accuracy [..., C] -> the target's share of being highest, ties shared out [...]."""
    accuracy = np.round(accuracy, 12)
    best = accuracy == accuracy.max(axis=-1, keepdims=True)
    return best[..., target] / best.sum(axis=-1)


def ceiling(answered: np.ndarray, target: int, n_resamples: int = 500, seed: int = 0) -> float:
    """Answers [items, C] -> how often a target that truly leads all others by WORTHWHILE would come out
    highest with the noise of these items: what a win rate can reach here."""
    rng = np.random.default_rng(seed)
    n = len(answered)
    noise = rng.multinomial(n, np.full(n, 1 / n), n_resamples) @ (answered - answered.mean(axis=0)) / n
    noise[:, target] += WORTHWHILE
    return float(wins(noise, target).mean())


def halves_agree(rows: pd.DataFrame) -> pd.Series:
    """Highest rank correlation over calibrations that a perfect stand-in for accuracy could show, by
    language.

    Split-half: Spearman between accuracies on even and odd items, averaged over cells, corrected to full
    length (Spearman-Brown); its square root is the attainable correlation. At or below 0 nothing can be
    seen."""
    found = []
    for cell, grid in by_calibration(rows):
        even, odd = grid.iloc[::2].mean().to_numpy(), grid.iloc[1::2].mean().to_numpy()
        found.append((cell["language"], float(spearman(even, odd))))
    half = pd.DataFrame(found, columns=["language", "r"]).groupby("language")["r"].mean().clip(lower=0)
    return np.sqrt(2 * half / (1 + half))
