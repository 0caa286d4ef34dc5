"""Language-specific and language-agnostic parts of sentence embeddings (LSAR): numpy in, rows out.

The split comes from the language means of the dense model's embeddings, layer by layer, and is then applied to
the dense and the pruned embeddings of the same parallel sentences. The even sentences give the means, the odd
ones are measured: no sentence does both, in any language.

What gives rows takes `dense` and `pruned` [languages, sentences, layers, d] and a `control`, "none" or:
"shuffled": every sentence that gives a mean is given to a random language, and within each measured sentence the
languages change places, so that it stays parallel. (Within a sentence its content cancels in the difference of two
languages: were the means shuffled so too, they would differ along the language subspace all the same.)
"random": a random subspace of the same rank takes the place of the language-specific one.
"noise": the pruned embeddings become the dense ones plus isotropic noise of the norm of each one's pruning error.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from lib.errors import InputError

VARIANTS = ("raw", "centred", "trimmed")
CONTROLS = ("none", "shuffled", "random", "noise")
TRIMMED = 0.005  # share of features, those of largest variance, that "trimmed" leaves out
# The products here are small: on a machine with other work, threads that wait for each other cost far more than they
# save. And the sums do not depend on the number of cores.
_one_thread = threadpool_limits.wrap(limits=1, user_api="blas")
SAME = 1e-9  # singular values below this share of the largest are rounding


@dataclass(frozen=True)
class Split:
    """`mean` [d]: the mean of the language means. `mu` [d]: what the languages share. `basis` [d, r]:
    orthonormal, of the language-specific subspace, and orthogonal to mu."""

    mean: np.ndarray
    mu: np.ndarray
    basis: np.ndarray

    def specific(self, e: np.ndarray) -> np.ndarray:
        """e [..., d] -> Ms Ms^T e [..., d]"""
        return e @ self.basis @ self.basis.T

    def agnostic(self, e: np.ndarray) -> np.ndarray:
        """e [..., d] -> e - Ms Ms^T e [..., d]"""
        return e - self.specific(e)


def lsar(means: np.ndarray, rank: int | None = None) -> Split:
    """Language means [L, d] -> the low-rank split (Xie et al., EMNLP 2022, arXiv 2401.05792, algorithm 1).

    With the means as columns of M [d, L] and c = M1/L, the paper takes Ws Gamma^T, the rank-r SVD of M - c1^T,
    B = c1^T + Ws Gamma^T, mu = x/||x||^2 with x = (B^+)^T 1, and Ms from the SVD of B - mu1^T. Here mu is found
    without the pseudo-inverse. x^T b = 1 for every column b of B, so mu is the point of their affine hull
    closest to the origin: mu = c - Ws Ws^T c. Hence B - mu1^T = Ws (Ws^T c1^T + Gamma^T), and Ms spans what Ws
    spans. The agnostic part of c is mu, its specific part c - mu.

    `rank`: default L - 1, the most there are: the L columns of M - c1^T sum to zero, and r = L would add an
    arbitrary direction. Raises InputError on a rank outside 1..L-1, and when the means differ in fewer than
    `rank` directions.
    """
    count, d = means.shape
    rank = count - 1 if rank is None else rank
    if not 1 <= rank < count:
        raise InputError(f"rank {rank} was asked for with {count} language(s); allowed: 1 to the number of languages "
                         "minus 1, as means around their own mean have no more directions")
    means = means.astype(np.float64)
    c = means.mean(axis=0)
    _, sizes, directions = np.linalg.svd(means - c, full_matrices=False)
    found = int((sizes > SAME * max(sizes[0], np.abs(means).max())).sum())
    if found < rank:
        raise InputError(f"the means of {count} languages of {d} features differ in {found} direction(s), fewer than "
                         f"rank {rank}; give languages whose texts differ, or a lower rank")
    return _around(c, directions[:rank].T)


def _around(c: np.ndarray, basis: np.ndarray) -> Split:
    return Split(c, c - basis @ (basis.T @ c), basis)


@_one_thread
def parts(dense: np.ndarray, pruned: np.ndarray, languages: Sequence[str], rank: int | None = None,
          variants: Sequence[str] = VARIANTS, control: str = "none", seed: int = 0) -> list[dict]:
    """[L, n, layers, d] twice -> what pruning does to each part, one row a language, layer, part and variant.

    `error` = sum ||p - e||^2 / sum ||e||^2, sums over sentences, of the part's dense e and pruned p; `cosine`,
    the mean over sentences of cos(e, p); `share` and `share_pruned`, the part's share of the squared norm, so
    that the shares of the two parts add up to 1, and share x error to the error of the whole.
    `variant`: "raw"; "centred", both minus the dense mean c, that is the agnostic part minus mu and the
    specific part minus c - mu; "trimmed", centred without the 0.5 % of features of largest variance in the
    dense embeddings, the split made anew.
    """
    rows = []
    for view in _views(dense, pruned, languages, rank, variants, control, seed):
        for part, project in (("agnostic", view.split.agnostic), ("specific", view.split.specific)):
            for language, dense_whole, pruned_whole in zip(languages, view.dense, view.pruned, strict=True):
                e, p = project(dense_whole), project(pruned_whole)
                rows.append({"language": language, "layer": view.layer, "part": part, "variant": view.variant,
                             "control": control, "error": np.vdot(p - e, p - e) / np.vdot(e, e),
                             "cosine": float((_unit(e) * _unit(p)).sum(axis=1).mean()),
                             "share": np.vdot(e, e) / np.vdot(dense_whole, dense_whole),
                             "share_pruned": np.vdot(p, p) / np.vdot(pruned_whole, pruned_whole), "n": len(e)})
    return rows


@_one_thread
def retrieval(dense: np.ndarray, pruned: np.ndarray, languages: Sequence[str], rank: int | None = None,
              variants: Sequence[str] = VARIANTS, control: str = "none", seed: int = 0) -> list[dict]:
    """[L, n, layers, d] twice -> how often the pruned model's nearest sentence of another language, by cosine, is
    the translation: one row an ordered pair of languages, layer, variant and part ("whole", "agnostic").

    `language` asks, `other` answers; `accuracy`, `chance` = 1 / `n`. For the dense model give it as both.
    """
    rows = []
    for view in _views(dense, pruned, languages, rank, variants, control, seed):
        for part, x in (("whole", view.pruned), ("agnostic", view.split.agnostic(view.pruned))):
            x = _unit(x)
            for a, b in permutations(range(len(x)), 2):
                hits = (x[a] @ x[b].T).argmax(axis=1) == np.arange(x.shape[1])
                rows.append({"language": languages[a], "other": languages[b], "layer": view.layer, "part": part,
                             "variant": view.variant, "control": control, "accuracy": float(hits.mean()),
                             "chance": 1 / len(hits), "n": len(hits)})
    return rows


@_one_thread
def identification(dense: np.ndarray, pruned: np.ndarray, languages: Sequence[str], rank: int | None = None,
                   variants: Sequence[str] = VARIANTS[1:], control: str = "none", seed: int = 0) -> list[dict]:
    """[L, n, layers, d] twice -> how often the dense language mean nearest to a pruned sentence, in the
    language-specific subspace, is that of its language: one row a language, layer and variant.

    Distances are Euclidean, so "raw" equals "centred". `chance` = 1 / L, on average over languages.
    """
    rows = []
    for view in _views(dense, pruned, languages, rank, variants, control, seed):
        x, means = view.pruned @ view.split.basis, view.means @ view.split.basis
        nearest = np.linalg.norm(x[:, :, None] - means, axis=-1).argmin(axis=2)
        for k, language in enumerate(languages):
            rows.append({"language": language, "layer": view.layer, "variant": view.variant, "control": control,
                         "accuracy": float((nearest[k] == k).mean()), "chance": 1 / len(languages),
                         "n": nearest.shape[1]})
    return rows


class _View(NamedTuple):
    # One layer in one variant: language means [L, d] of the dense model and the measured sentences [L, n, d], all
    # in the variant's features and from its origin.
    layer: int
    variant: str
    split: Split
    means: np.ndarray
    dense: np.ndarray
    pruned: np.ndarray


def _views(dense, pruned, languages, rank, variants, control, seed) -> Iterator[_View]:
    _check(dense, pruned, languages, variants, control)
    for layer in range(dense.shape[2]):
        rng = np.random.default_rng([seed, layer])
        E, P = _controlled(dense[:, :, layer].astype(np.float64), pruned[:, :, layer].astype(np.float64), control, rng)
        for variant in variants:
            kept = _calm(E) if variant == "trimmed" else slice(None)
            e, p = E[..., kept], P[..., kept]
            means = e[:, 0::2].mean(axis=1)
            split = lsar(means, rank)
            if control == "random":
                split = _around(split.mean, np.linalg.qr(rng.standard_normal(split.basis.shape)).Q)
            origin = 0 if variant == "raw" else split.mean
            yield _View(layer, variant, split, means - origin, e[:, 1::2] - origin, p[:, 1::2] - origin)


def _controlled(E: np.ndarray, P: np.ndarray, control: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    if control == "shuffled":
        order = np.arange(E[..., 0].size).reshape(E.shape[:2])
        order[:, 0::2] = rng.permutation(order[:, 0::2].ravel()).reshape(order[:, 0::2].shape)
        order[:, 1::2] = rng.permuted(order[:, 1::2], axis=0)
        return E.reshape(-1, E.shape[2])[order], P.reshape(-1, P.shape[2])[order]
    if control == "noise":
        return E, E + _unit(rng.standard_normal(E.shape)) * np.linalg.norm(P - E, axis=-1, keepdims=True)
    return E, P


def _calm(E: np.ndarray) -> np.ndarray:
    """[L, n, d] -> the features, in order, but for those of largest variance over all sentences that give means."""
    variance = E[:, 0::2].var(axis=(0, 1))
    return np.sort(np.argsort(-variance, kind="stable")[max(1, round(TRIMMED * len(variance))):])


def _unit(x: np.ndarray) -> np.ndarray:
    """Rows [..., d] at length 1; rows of zeros stay."""
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), np.finfo(float).tiny)


def _check(dense, pruned, languages, variants, control) -> None:
    if dense.ndim != 4 or dense.shape != pruned.shape or dense.shape[0] != len(languages) or dense.shape[1] < 4:
        raise InputError(f"embeddings are dense {list(dense.shape)} and pruned {list(pruned.shape)} for "
                         f"{len(languages)} languages; both must be [languages, sentences, layers, d] of the same "
                         "parallel sentences, at least 4")
    if not set(variants) <= set(VARIANTS) or control not in CONTROLS:
        raise InputError(f"variants are {list(variants)} and the control {control!r}; allowed variants: "
                         f"{', '.join(VARIANTS)}; controls: {', '.join(CONTROLS)}")
    if not (np.isfinite(dense).all() and np.isfinite(pruned).all()):
        raise InputError("embeddings are not finite: a sentence was not embedded, or the model overflows (use float32)")
