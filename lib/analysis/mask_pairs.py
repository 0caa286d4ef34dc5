"""Two masks of one model: where they differ, and mixtures of the two. numpy in and out; True = kept.

What differs between masks A and B of one method is a set of weights only A keeps and, in methods that remove
equally many in each row, as many in the same row that only B keeps. Giving A all of B's differing weights makes
it B, so what the language-specific part of a mask carries is read from what lies between:
a share of the differing weights (`swap`; perplexity as the share grows from A to B), or whole matrices (`take`;
attention from B, the rest from A). At a share of one half the mask keeps what both keep and has no preference
otherwise: A's and B's distance from there is what their own choice is worth. The same swap between two draws of
one language shows how much of it is the draw.

Only for methods that keep weights as they are: compensated ones (SparseGPT) belong to their own mask.
"""

import zlib
from collections.abc import Callable, Mapping

import numpy as np

from lib.analysis.masks import place
from lib.errors import InputError

TOP = (0.01, 0.05)
SPREADS = 50  # even spreads drawn; their mean is reported


def changes(kept: np.ndarray, other: np.ndarray, W: np.ndarray, bins: int = 10, seed: int = 0) -> list[dict]:
    """bool [out, in] twice, dense W [out, in] -> where the masks differ, weights that are zero in W left out.

    `by` "magnitude": by quantile of |W| within the row, one row a bin, `part` its upper edge. `by` "input" and
    "output": the features (columns) or neurons (rows) with most changes, `part` of all (at least one).
    `share`: of all changes. `even`: what an even spread gives. For magnitude that is the bin's share of the
    nonzero weights. For features and neurons it is the share of the most-hit ones when each nonzero weight
    changes with the same probability; they are picked after the fact, so it lies above `part`; counts are
    drawn as binomials (mean of 50 draws). `changed` of `weights`: counts in the whole matrix. `share` and
    `even` are NaN where nothing changed.
    """
    nonzero = W != 0
    changed = (kept != other) & nonzero
    count, weights = int(changed.sum()), int(nonzero.sum())
    ascending = np.abs(W).argsort(axis=1, kind="stable")
    hits, places = (np.take_along_axis(x, ascending, axis=1).sum(axis=0) for x in (changed, nonzero))
    quantile = np.arange(W.shape[1]) * bins // W.shape[1]
    rows = [{"by": "magnitude", "part": (k + 1) / bins, "share": _ratio(hits[quantile == k].sum(), count),
             "even": _ratio(places[quantile == k].sum(), weights) if count else np.nan} for k in range(bins)]
    rng = np.random.default_rng(seed)
    for by, axis in (("input", 0), ("output", 1)):
        hits, places = changed.sum(axis=axis), nonzero.sum(axis=axis)
        spreads = rng.binomial(places, _ratio(count, weights) if count else 0.0, (SPREADS, len(places)))
        for part in TOP:
            k = max(1, round(part * len(hits)))
            rows.append({"by": by, "part": part, "share": _ratio(np.sort(hits)[-k:].sum(), count),
                         "even": _ratio(np.sort(spreads, axis=1)[:, -k:].sum(), spreads.sum())})
    return [row | {"changed": count, "weights": weights} for row in rows]


def swap(kept: np.ndarray, other: np.ndarray, share: float, seed: int = 0) -> np.ndarray:
    """bool [out, in] twice -> `kept` with a `share` of its differing weights as in `other`, bool [out, in].

    In each row equally many weights that only `kept` keeps are removed as weights that only `other` keeps are
    kept: round-half-up(share * m) of the m of each kind, at random. So every row keeps as many as before; 0
    gives `kept`, 1 gives `other`, and with the same seed a larger share swaps the same weights and more.
    Raises InputError on a share outside [0, 1], and when the masks keep different numbers in a row.
    """
    if not 0 <= share <= 1:
        raise InputError(f"the share to swap is {share}; allowed: 0 (the first mask) to 1 (the second)")
    own, others = kept & ~other, other & ~kept
    differing = own.sum(axis=1)
    unequal = int((differing != others.sum(axis=1)).sum())
    if unequal:
        raise InputError(f"the masks keep different numbers of weights in {unequal} of {len(kept)} rows, so a swap "
                         "would change the sparsity; give masks of one method and sparsity that compares within rows")
    count = np.floor(share * differing + 0.5).astype(int)[:, None]
    order = np.random.default_rng(seed).random(kept.shape)
    return kept ^ (_first(own, order, count) | _first(others, order, count))


def swap_all(masks: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray], share: float, seed: int = 0
             ) -> dict[str, np.ndarray]:
    """`swap` in every matrix, each with a generator of its own (the seed and its name)."""
    return {name: swap(masks[name], others[name], share, [seed, zlib.crc32(name.encode())]) for name in masks}


def take(masks: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray], where: Callable[[int, str], bool]
         ) -> dict[str, np.ndarray]:
    """The matrices for which `where(layer, module)` holds from `others`, the rest from `masks`."""
    return {name: (others if where(*place(name)) else masks)[name] for name in masks}


def _first(among: np.ndarray, order: np.ndarray, count: np.ndarray) -> np.ndarray:
    """bool [out, in]: of the places `among`, in each row the `count` [out, 1] of lowest order."""
    place = np.where(among, order, np.inf).argsort(axis=1, kind="stable")
    first = np.zeros_like(among)
    np.put_along_axis(first, place, np.arange(among.shape[1]) < count, axis=1)
    return first


def _ratio(part: int, whole: int) -> float:
    return float(part / whole) if whole else np.nan
