"""Intervals: numpy and pandas in, numbers out, the same numbers for the same `seed`.

The units differ by question: segments and calibration draws for perplexity, items for tasks, languages where
a sentence is about languages in general.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
from scipy import stats

from lib.errors import InputError

RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    estimate: float
    low: float
    high: float
    n: int  # independent units


@dataclass(frozen=True)
class Best:
    """How one calibration, `target`, stands against the best of the others, in bits per byte."""

    target: str
    best: str
    runner_up: str
    difference: float  # target minus the best other; below 0: the target is best
    low: float
    high: float
    beaten: bool  # at least one other is shown to be better, corrected for the number of others
    wins: dict[str, float]  # share of resamples in which each calibration is best; ties are shared out
    seeds: int
    segments: int
    note: str


def best_calibration(segments: pd.DataFrame, target: str | None = None, level: float = 0.95,
                     n_resamples: int = RESAMPLES, seed: int = 0) -> Best:
    """Rows (calibration, seed, segment, nll in nats, bytes) of one model, method and text -> Best.

    Bootstrap over draws and segments. Both are shared by all calibrations (paired) and crossed with each
    other, so each resample takes draws and, independently, segments; then bits per byte and the best other
    are found anew. Of S draws S - 1 are taken, which makes the variance over draws unbiased (Rao & Wu 1988);
    with few draws that vary more than the segments do the interval is still too short, because a percentile
    interval knows no t-quantile; noise that is fresh in each draw and segment, on the other hand, is counted
    more than once. Choosing the best other anew favours the others, so that `high < 0` errs on
    the safe side; for `low > 0` it does not, hence `beaten`, which corrects each other's bound (Bonferroni).
    `target` None: the calibration that is best in the data.
    Raises InputError for fewer than two calibrations, an unknown target, or an incomplete or doubled grid.
    """
    names, nll, size = _grid(segments)
    _, n_seeds, n_segments = nll.shape
    bits = nll.mean(axis=1).sum(axis=1) / size.sum() / np.log(2)
    order = np.argsort(bits, kind="stable")
    if target is None:
        target = names[order[0]]
    if target not in names:
        raise InputError(f"target {target!r} is not among the calibrations: {', '.join(names)}")
    resampled = _bits(nll, size, *_crossed_weights(seed, n_seeds, n_segments, n_resamples))
    t = names.index(target)
    others = np.delete(resampled, t, axis=1)
    low, high = np.quantile(resampled[:, t] - others.min(axis=1), tails(level))
    corrected = (1 - level) / 2 / others.shape[1]
    winners = resampled == resampled.min(axis=1, keepdims=True)
    share = (winners / winners.sum(axis=1, keepdims=True)).mean(axis=0)
    return Best(target, names[order[0]], names[order[1]], bits[t] - np.delete(bits, t).min(), low, high,
                bool((np.quantile(resampled[:, [t]] - others, corrected, axis=0) > 0).any()),
                dict(zip(names, share.tolist(), strict=True)), n_seeds, n_segments,
                "conditional on one draw" if n_seeds == 1 else "")


def best_by_cell(segments: pd.DataFrame, by: Sequence[str], **options) -> pd.DataFrame:
    """One row a group of `by`, which includes "language": the fields of `Best` with that language as target,
    `wins` being the target's own. Groups without the target among their calibrations, or with one calibration
    only, are left out. `options` go to `best_calibration`."""
    rows = []
    for key, group in segments.groupby(list(by), sort=True):
        cell = dict(zip(by, key, strict=True))
        names = set(group["calibration"])
        if cell["language"] in names and len(names) > 1:
            best = best_calibration(group, cell["language"], **options)
            rows.append(cell | vars(best) | {"wins": best.wins[best.target]})
    return pd.DataFrame(rows, columns=None if rows else [*by, *Best.__dataclass_fields__])


def _grid(segments: pd.DataFrame) -> tuple[list[str], np.ndarray, np.ndarray]:
    """-> names [C], nll [C, S, G], bytes [G]; seeds that some calibration lacks are left out."""
    seeds = segments.groupby("calibration")["seed"].agg(set)
    if len(seeds) < 2:
        raise InputError(f"{len(seeds)} calibration(s) given; comparing them needs at least two")
    shared = set.intersection(*seeds)
    rows = segments[segments["seed"].isin(shared)]
    names, order = sorted(seeds.index), sorted(rows["segment"].unique())
    axes = ["calibration", "seed", "segment"]
    full = pd.MultiIndex.from_product([names, sorted(shared), order], names=axes)
    rows = rows.set_index(axes).sort_index()
    if not len(full) or not rows.index.equals(full):
        raise InputError(f"{len(rows)} rows of segments were given where {len(names)} calibrations x "
                         f"{len(shared)} shared seeds x {len(order)} segments have one each; select one "
                         "model, method, corpus and language, and compute the missing cells")
    shape = len(names), len(shared), len(order)
    nll, size = (rows[c].to_numpy(float).reshape(shape) for c in ("nll", "bytes"))
    return names, nll, size[0, 0]


def _bits(nll: np.ndarray, size: np.ndarray, seed_weights: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """nll [C, S, G], bytes [G], weights of draws [B, S] (sum 1) and segments [B, G] -> bits per byte [B,
    C]."""
    by_draw = (weights @ nll.reshape(-1, nll.shape[2]).T).reshape(len(weights), *nll.shape[:2])
    return np.einsum("bcs,bs->bc", by_draw, seed_weights) / (weights @ size)[:, None] / np.log(2)


@lru_cache(16)  # a table asks for the same ones in most of its cells
def _crossed_weights(seed: int, n_seeds: int, n_segments: int, n_resamples: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights of draws [B, S], which sum to 1, and of segments [B, G] in resamples of both."""
    rng = np.random.default_rng(seed)
    drawn = max(n_seeds - 1, 1)
    seed_weights = rng.multinomial(drawn, np.full(n_seeds, 1 / n_seeds), n_resamples) / drawn
    return seed_weights, resample_weights(rng, n_segments, n_resamples)


def resample_weights(rng: np.random.Generator, n: int, n_resamples: int) -> np.ndarray:
    """How often each of n units is in each resample [n_resamples, n]."""
    return rng.multinomial(n, np.full(n, 1 / n), n_resamples)


def tails(level: float) -> tuple[float, float]:
    return (1 - level) / 2, (1 + level) / 2


def paired_bootstrap(a: np.ndarray, b: np.ndarray, level: float = 0.95, n_resamples: int = RESAMPLES,
                     seed: int = 0) -> Interval:
    """a, b [items], answers of two models to the same items -> mean of a - b, percentile interval over
    items."""
    difference = np.asarray(a, float) - np.asarray(b, float)
    means = resample_weights(np.random.default_rng(seed), len(difference), n_resamples) @ difference / len(difference)
    return Interval(difference.mean(), *np.quantile(means, tails(level)), len(difference))


def rank_correlation(x: np.ndarray, y: np.ndarray, level: float = 0.95, n_resamples: int = RESAMPLES,
                     seed: int = 0) -> Interval:
    """x, y [items, k] -> Spearman's correlation of their k column means, percentile interval over items."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    weights = resample_weights(np.random.default_rng(seed), len(x), n_resamples)
    found = spearman(weights @ x, weights @ y)
    return Interval(float(spearman(x.mean(0), y.mean(0))), *np.quantile(found, tails(level)), len(x))


def spearman(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x, y [..., k] -> rank correlation along the last axis, ties at their mean rank; 0 where a side is
    constant (it orders nothing)."""
    x, y = (stats.rankdata(np.round(v, 12), axis=-1) - (np.shape(v)[-1] + 1) / 2 for v in (x, y))
    scale = np.sqrt((x**2).sum(-1) * (y**2).sum(-1))
    return np.divide((x * y).sum(-1), scale, out=np.zeros_like(scale), where=scale > 0)


def mean_interval(values: np.ndarray, level: float = 0.95) -> Interval:
    """values [units] -> mean, Student interval over units. One unit gives an infinite interval."""
    values = np.asarray(values, float)
    if len(values) < 2:
        return Interval(values.mean(), -np.inf, np.inf, len(values))
    half = stats.t.ppf((1 + level) / 2, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return Interval(values.mean(), values.mean() - half, values.mean() + half, len(values))


def rate_interval(rate: float, n: int, level: float = 0.95) -> Interval:
    """A rate over n units -> Wilson interval, which has width at rates 0 and 1. `rate * n` need not be whole:
    a unit may itself be a share, which varies less than a yes or no, so the interval is then on the wide
    side."""
    z2 = stats.norm.ppf((1 + level) / 2) ** 2
    middle = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = np.sqrt(z2 * (rate * (1 - rate) / n + z2 / (4 * n * n))) / (1 + z2 / n)
    return Interval(rate, max(middle - half, 0.0), min(middle + half, 1.0), n)
