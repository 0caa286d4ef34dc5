"""Which languages are alike? Clusterings and tests on distances between languages; numpy in and out."""

from collections.abc import Mapping, Sequence
from itertools import permutations
from math import factorial
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import average, cophenet
from scipy.spatial.distance import squareform

from lib.errors import InputError

# From the widest group to the narrowest.
FAMILIES = {"ar": ("Afro-Asiatic", "Semitic"), "de": ("Indo-European", "Germanic"), "en": ("Indo-European", "Germanic"),
            "es": ("Indo-European", "Romance"), "ru": ("Indo-European", "Slavic"), "sw": ("Niger-Congo", "Bantu"),
            "zh": ("Sino-Tibetan", "Sinitic")}
SCRIPTS = {"ar": ("Arabic",), "de": ("Latin",), "en": ("Latin",), "es": ("Latin",), "ru": ("Cyrillic",),
           "sw": ("Latin",), "zh": ("Han",)}
EXACT = 40_320  # all orders of 8 languages
ROUNDING = 1e-9  # correlations closer than this are equal


class Mantel(NamedTuple):
    correlation: float
    p: float  # one-sided: how often languages in random order correlate as much
    lowest: float  # the p that a perfect correlation would have; no test can say more about these languages
    exact: bool  # all orders were tried


def distances(rows: pd.DataFrame, one: str, other: str, similarity: str, languages: Sequence[str]) -> np.ndarray:
    """Rows with two languages (columns `one`, `other`) and a similarity up to 1 -> 1 - mean similarity [L, L].

    A pair's rows count alike whichever language comes first; rows of a language with itself are left out.
    Raises InputError when a pair has no rows.
    """
    table = np.full((len(languages), len(languages)), np.nan)
    for i, a in enumerate(languages):
        for j, b in enumerate(languages[:i]):
            of_pair = ((rows[one] == a) & (rows[other] == b)) | ((rows[one] == b) & (rows[other] == a))
            if not of_pair.any():
                raise InputError(f"there are no rows of {a} and {b}; give languages that were all compared with each "
                                 f"other (found: {', '.join(sorted({*rows[one], *rows[other]}))})")
            table[i, j] = table[j, i] = 1 - rows.loc[of_pair, similarity].mean()
    np.fill_diagonal(table, 0)
    return table


def kinship(languages: Sequence[str], groups: Mapping[str, Sequence[str]] = FAMILIES) -> np.ndarray:
    """Share of levels [L, L] of `groups` that two languages do not have in common, from the widest group down:
    0 = same branch, 0.5 = same family, 1 = unrelated; for SCRIPTS 0 or 1.

    Raises InputError for a language without an entry.
    """
    unknown = [x for x in languages if x not in groups]
    if unknown:
        raise InputError(f"no groups are known for {', '.join(unknown)}; known: {', '.join(groups)}. Give `groups` "
                         "with an entry for each language, as many levels for each")
    named = [[tuple(groups[x][:k + 1]) for k in range(len(groups[x]))] for x in languages]
    return np.array([[1 - float(np.mean([p == q for p, q in zip(a, b, strict=True)])) for b in named] for a in named])


def cluster(table: np.ndarray) -> np.ndarray:
    """Distances [L, L] -> scipy's linkage matrix [L - 1, 4] by average linkage (UPGMA)."""
    return average(squareform(table))


def cophenetic_correlation(table: np.ndarray, other: np.ndarray) -> float:
    """Correlation of the heights at which two languages join in the clusterings of two tables [L, L].

    Raises InputError when a clustering joins all languages at one height.
    """
    return float(_correlations(cophenet(cluster(table)), cophenet(cluster(other))[None])[0])


def mantel(table: np.ndarray, other: np.ndarray, draws: int = 9999, seed: int = 0) -> Mantel:
    """Distances [L, L] twice -> correlation of the pairs, and its permutation test (Mantel 1967), one-sided.

    All L! orders of the languages of `other` are tried up to L = 8, else `draws` random ones, the observed order
    counted in. Raises InputError when all distances of a table are equal.
    """
    count = len(table)
    exact = factorial(count) <= EXACT
    if exact:
        orders = np.array(list(permutations(range(count))))
    else:
        rng = np.random.default_rng(seed)
        orders = np.vstack([np.arange(count), rng.permuted(np.tile(np.arange(count), (draws, 1)), axis=1)])
    i, j = np.triu_indices(count, 1)
    permuted = other[orders[:, i], orders[:, j]]
    found = _correlations(table[i, j], permuted)
    same = np.isclose(permuted, permuted[0], rtol=0, atol=ROUNDING).all(axis=1)
    return Mantel(float(found[0]), float((found >= found[0] - ROUNDING).mean()), float(same.mean()), exact)


def _correlations(pairs: np.ndarray, others: np.ndarray) -> np.ndarray:
    """[pairs], [k, pairs] -> Pearson correlations [k]"""
    if np.ptp(pairs) == 0 or np.ptp(others[0]) == 0:
        raise InputError("all distances between the languages are equal, so nothing can correlate with them; give "
                         "languages of different kinds")
    x, y = pairs - pairs.mean(), others - others.mean(axis=1, keepdims=True)
    return y @ x / np.linalg.norm(x) / np.linalg.norm(y, axis=1)
