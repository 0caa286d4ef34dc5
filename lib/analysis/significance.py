"""Tests: numpy in, p-values out. The units are those of the question, as for intervals (lib.analysis.intervals)."""

from itertools import permutations

import numpy as np
from scipy import stats


def mcnemar(a: np.ndarray, b: np.ndarray, alternative: str = "two-sided") -> float:
    """a, b [items] of bool -> exact p; alternative "greater": a is right more often than b."""
    a, b = np.asarray(a, bool), np.asarray(b, bool)
    only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
    return stats.binomtest(only_a, only_a + only_b, 0.5, alternative).pvalue if only_a + only_b else 1.0


def holm(p: np.ndarray) -> np.ndarray:
    """p [k] -> p adjusted for k comparisons (Holm 1979), in the given order."""
    p = np.asarray(p, float)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1)
    return adjusted


def t_test(differences: np.ndarray, against: float, alternative: str) -> float:
    """One-sided p of the mean of paired differences [units] being "greater" or "less" than `against`."""
    differences = np.asarray(differences, float)
    if len(differences) < 2:
        return 1.0
    if np.ptp(differences) <= 1e-12 * (1 + np.abs(differences).max()):  # no spread, no t: the mean is known
        beyond = differences[0] > against if alternative == "greater" else differences[0] < against
        return 0.0 if beyond else 1.0
    return float(stats.ttest_1samp(differences, against, alternative=alternative).pvalue)


def tost(differences: np.ndarray, margin: float) -> float:
    """Paired differences [units] -> p of "the mean lies within +-margin" (two one-sided t-tests, Schuirmann
    1987)."""
    return max(t_test(differences, -margin, "greater"), t_test(differences, margin, "less"))


def matching_test(wins: np.ndarray, n_permutations: int = 20000, seed: int = 0) -> tuple[float, float, float]:
    """wins [L, L], share in which column language wins for row language -> (rate on the diagonal, rate
    expected by chance, one-sided p).

    Null: winning has nothing to do with being the same language. One permutation relabels the calibrations
    for all rows at once, so a language that is best for everybody matches once under every relabelling and
    proves nothing; labels shuffled within each row would call it evidence of something. All L! relabellings
    for L <= 8, else a sample of them. """
    n = len(wins)
    if n <= 8:
        relabelled = np.array(list(permutations(range(n))))
    else:
        rng = np.random.default_rng(seed)
        drawn = rng.permuted(np.tile(np.arange(n), (n_permutations, 1)), axis=1)
        relabelled = np.vstack([np.arange(n), drawn])
    matches = np.asarray(wins)[np.arange(n), relabelled].mean(axis=1)
    rate = float(np.trace(wins) / n)
    return rate, float(np.sum(wins) / n / n), float((matches >= rate - 1e-12).mean())
