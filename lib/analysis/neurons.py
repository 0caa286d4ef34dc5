"""Language-specific neurons by LAPE (Tang et al., ACL 2024, arXiv 2402.16438): numpy in, numpy and rows out.

p [languages, layers, neurons] is the share of a language's tokens on which a neuron fires. A neuron is specific
when it fires often in some language and the entropy of its firing over languages is low. The rule always finds
about 1 % of the neurons, on noise too: believe sets that two halves of the text agree on (`overlap`, against
`noise`), and that matter when silenced.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lib.errors import InputError

PERCENTILE = 0.95  # of all p: what counts as firing often
SHARE = 0.01  # of all neurons: how many are specific


@dataclass(frozen=True)
class Limits:
    """`often`: a neuron fires often in a language when its p is above this (tau). Among those that do in any
    language, `low`: specific up to this LAPE; `high`: agnostic from this LAPE on. Nats."""

    often: float
    low: float
    high: float


def lape(p: np.ndarray) -> np.ndarray:
    """p [L, layers, neurons] -> entropy [layers, neurons] of p over languages, normalised, in nats; NaN for a
    neuron that never fires."""
    total = p.sum(axis=0)
    share = np.divide(p, total, out=np.full(p.shape, np.nan), where=total > 0)
    return -(share * np.log(share, out=np.zeros(p.shape), where=share > 0)).sum(axis=0)


def limits(p: np.ndarray) -> Limits:
    """p [L, layers, neurons] -> the limits it sets.

    tau is the round(0.95 n)-th smallest of all n values of p, as in the authors' code; low and high are the
    k-th lowest and k-th highest LAPE of neurons that fire often somewhere, k = round(0.01 * number of all
    neurons), or the last where fewer do. (high is ours, the mirror of low.) A limit holds for all that tie with it,
    so that sets do not depend on the order of neurons and the same p gives the same sets again. Raises InputError
    when p is not as it should be.
    """
    _check(p)
    rank = round(PERCENTILE * p.size) - 1
    often = np.partition(p, rank, axis=None)[rank]
    found = np.sort(lape(p)[(p > often).any(axis=0)])
    k = min(round(SHARE * p[0].size), len(found))
    return Limits(float(often), *map(float, (found[k - 1], found[-k]) if k else (-np.inf, np.inf)))


def specific(p: np.ndarray, given: Limits | None = None) -> np.ndarray:
    """p [L, layers, neurons] -> bool of the same shape: which neurons are specific, each to every language in which
    it fires often. A language without any keeps its place. `given`: limits of another p (the dense model's), else
    its own."""
    found = given or limits(p)
    return (p > found.often) & (lape(p) <= found.low)


def agnostic(p: np.ndarray, given: Limits | None = None) -> np.ndarray:
    """p [L, layers, neurons] -> bool [layers, neurons]: fires often somewhere and has a LAPE of at least `high`."""
    found = given or limits(p)
    return (p > found.often).any(axis=0) & (lape(p) >= found.high)


def neuron_rows(languages: Sequence[str], dense: np.ndarray, pruned: np.ndarray) -> list[dict]:
    """p [L, layers, neurons] of the dense and the pruned model (or the dense one twice) -> one row a language and
    layer.

    `neurons`: specific ones of the pruned model by the dense model's limits; `kept`: those of them that are the
    language's in the dense model too (so neurons - kept are new). `neurons_own`, `kept_own`: the same with limits
    estimated anew on the pruned model. `lape_shift`: mean change of LAPE, pruned minus dense, over the dense
    model's specific neurons of the language that still fire; NaN where there is none.
    """
    _check(dense, pruned, languages)
    fixed = limits(dense)
    before, after, own = specific(dense, fixed), specific(pruned, fixed), specific(pruned)
    change = lape(pruned) - lape(dense)
    rows = []
    for k, language in enumerate(languages):
        for layer in range(dense.shape[1]):
            was, shift = before[k, layer], change[layer][before[k, layer]]
            shift = shift[~np.isnan(shift)]
            rows.append({"language": language, "layer": layer, "neurons": int(after[k, layer].sum()),
                         "kept": int((after[k, layer] & was).sum()), "neurons_own": int(own[k, layer].sum()),
                         "kept_own": int((own[k, layer] & was).sum()),
                         "lape_shift": float(shift.mean()) if len(shift) else np.nan})
    return rows


def shift_rows(dense: np.ndarray, pruned: np.ndarray) -> list[dict]:
    """p [L, layers, neurons] of the dense and the pruned model -> one row a layer and `part` ("specific": to any
    language, low LAPE; "agnostic": high LAPE), by the dense model's limits: `dense` and `pruned`, neurons in each;
    `kept`, in both. pruned - kept are new, dense - kept are lost."""
    _check(dense, pruned)
    fixed, rows = limits(dense), []
    sets = {"specific": [specific(p, fixed).any(axis=0) for p in (dense, pruned)],
            "agnostic": [agnostic(p, fixed) for p in (dense, pruned)]}
    for part, (before, after) in sets.items():
        rows += [{"layer": layer, "part": part, "dense": int(a.sum()), "pruned": int(b.sum()),
                  "kept": int((a & b).sum())} for layer, (a, b) in enumerate(zip(before, after, strict=True))]
    return rows


def overlap(languages: Sequence[str], a: np.ndarray, b: np.ndarray) -> list[dict]:
    """Two bool [L, layers, neurons], say from the halves of the text -> one row a language: `neurons`, `other`
    (sizes), `shared`, `jaccard`, and its `chance` if neurons were drawn at random within each layer: with
    e = sum over layers of a_l b_l / n expected to be shared, e / (|a| + |b| - e). NaN where both are empty."""
    rows = []
    for language, one, other in zip(languages, a, b, strict=True):
        sizes, shared = one.sum() + other.sum(), (one & other).sum()
        expected = (one.sum(axis=1) * other.sum(axis=1)).sum() / one.shape[1]
        rows.append({"language": language, "neurons": int(one.sum()), "other": int(other.sum()),
                     "shared": int(shared), "jaccard": float(shared / (sizes - shared)) if sizes else np.nan,
                     "chance": float(expected / (sizes - expected)) if sizes else np.nan})
    return rows


def noise(p: np.ndarray, tokens: Sequence[int], seed: int = 0) -> np.ndarray:
    """p [L, layers, neurons], tokens [L] it was counted on -> what p would be if no neuron knew languages: binomial
    draws, one a language, from its mean over all tokens.

    Neurons differ in how often they fire, and LAPE favours those just above tau, whose entropies vary most. So the
    sets of two such draws overlap by more than `chance`: that is the level which halves of real text must exceed.
    """
    _check(p)
    tokens = np.asarray(tokens)[:, None, None]
    mean = (p * tokens).sum(axis=0) / tokens.sum()
    drawn = np.random.default_rng(seed).binomial(tokens, np.broadcast_to(np.clip(mean, 0, 1), p.shape))
    return drawn / tokens


def _check(p: np.ndarray, other: np.ndarray | None = None, languages: Sequence[str] | None = None) -> None:
    other = p if other is None else other
    count = len(p) if languages is None else len(languages)
    if p.ndim != 3 or p.shape != other.shape or len(p) != count or count < 2:
        raise InputError(f"p is {list(p.shape)} (and {list(other.shape)}) for {count} language(s); give [languages, "
                         "layers, neurons] of equal shape for at least 2 languages")
    if not all(((x >= 0) & (x <= 1)).all() for x in (p, other)):
        raise InputError("p has values outside 0..1 or NaN; give shares of tokens, counted on text of each language")
