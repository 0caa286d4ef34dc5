"""What sets of neurons are compared with: random ones of the same layers, and ones of like activation."""

from collections.abc import Sequence

import numpy as np

from lib.analysis.intervals import mean_interval, paired_bootstrap
from lib.errors import InputError

MATCHES = 10  # neurons that each one is compared with


def random_neurons(like: np.ndarray, avoid: np.ndarray, seed: int = 0) -> np.ndarray:
    """like [layers, neurons] -> bool of the same shape: in each layer as many, drawn from those not in `avoid`
    [layers, neurons]. Raises InputError when a layer has too few of them."""
    drawn = np.zeros(like.shape, dtype=bool)
    for layer, (count, allowed) in enumerate(zip(like.sum(axis=1), ~avoid, strict=True)):
        if allowed.sum() < count:
            raise InputError(f"layer {layer} has {allowed.sum()} neurons outside those to avoid and {count} are to be "
                             "drawn; avoid fewer")
        rng = np.random.default_rng([seed, layer])
        drawn[layer, rng.choice(np.flatnonzero(allowed), count, replace=False)] = True
    return drawn


def pruned_share_rows(languages: Sequence[str], shares: np.ndarray, norms: np.ndarray, owned: np.ndarray,
                      seed: int = 0) -> list[dict]:
    """shares, norms [layers, neurons], owned bool [L, layers, neurons] -> are the outgoing weights of a language's
    specific neurons pruned more or less than others'? One row a language.

    `shares`: of each neuron's outgoing weights that are pruned; NaN leaves it out. Wanda scores them by the
    neuron's activation norm, so each is compared with the MATCHES neurons of its layer nearest in log norm that are
    specific to no language. `share`, `matched`: means of both over `neurons`; `difference` with a 95 % bootstrap
    interval over neurons (unbounded for one); `norm_ratio`: geometric mean of norm over matched norm, 1 where the
    match is good. A language without any has NaN. Raises InputError when a layer has no neuron to match with.
    """
    log_norms = np.log(np.maximum(norms, np.finfo(norms.dtype).tiny))
    free = ~owned.any(axis=0) & np.isfinite(shares)
    rows = []
    for language, its in zip(languages, owned, strict=True):
        layers, places = np.nonzero(its & np.isfinite(shares))
        pairs = [(layer, _matches(log_norms[layer], place, free[layer], layer))
                 for layer, place in zip(layers, places, strict=True)]
        matched = np.array([shares[layer, others].mean() for layer, others in pairs])
        apart = log_norms[layers, places] - [log_norms[layer, others].mean() for layer, others in pairs]
        row = {"language": language, "neurons": len(pairs)}
        if pairs:
            own = shares[layers, places]
            found = paired_bootstrap(own, matched, seed=seed) if len(pairs) > 1 else mean_interval(own - matched)
            row |= {"share": float(own.mean()), "matched": float(matched.mean()), "difference": float(found.estimate),
                    "low": float(found.low), "high": float(found.high), "norm_ratio": float(np.exp(apart.mean()))}
        else:
            row |= dict.fromkeys(("share", "matched", "difference", "low", "high", "norm_ratio"), np.nan)
        rows.append(row)
    return rows


def _matches(log_norms: np.ndarray, place: int, free: np.ndarray, layer: int) -> np.ndarray:
    """The free neurons nearest to `place` in log norm [neurons], ties to the lower number."""
    others = np.flatnonzero(free)
    if not len(others):
        raise InputError(f"layer {layer} has no neuron that is specific to no language, so there is none to match with")
    return others[np.argsort(np.abs(log_norms[others] - log_norms[place]), kind="stable")[:MATCHES]]
