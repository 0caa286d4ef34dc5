"""How far the target language is ahead as a calibration, over all languages at once."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from lib.analysis.intervals import RESAMPLES, resample_weights, tails
from lib.errors import InputError


def leads(segments: pd.DataFrame, by: Sequence[str], level: float = 0.95) -> pd.DataFrame:
    """Rows (`by`, language, calibration, segment, nll in nats, bytes) -> one row a group of `by`: `difference` in bits
    per byte, target calibration minus the best of the others, mean over the languages that are calibrated in (below
    0: the target is ahead), with `low`, `high`; `lowest`, in how many of the `languages` the target is lowest;
    `segments`.

    Percentile interval over segments, which all languages and calibrations share; the best other is found anew in
    each resample, which favours the others. Raises InputError when a group lacks cells.
    """
    rows = []
    for key, group in segments.groupby(list(by), sort=False):
        names, nll, size = _grid(group)
        weights = resample_weights(np.random.default_rng(0), size.shape[1], RESAMPLES)
        each = _differences(nll, size, np.ones((1, size.shape[1])))[0]
        low, high = np.quantile(_differences(nll, size, weights).mean(axis=1), tails(level))
        rows.append((*key, each.mean(), low, high, int((each < 0).sum()), len(names), size.shape[1]))
    return pd.DataFrame(rows, columns=[*by, "difference", "low", "high", "lowest", "languages", "segments"])


def _grid(group: pd.DataFrame) -> tuple[list[str], np.ndarray, np.ndarray]:
    """-> names [L] of the languages read and calibrated in, nll [L, L, G] by language, calibration and segment,
    bytes [L, G]."""
    names = sorted(set(group["language"]) & set(group["calibration"]))
    axes = ["language", "calibration", "segment"]
    order = sorted(group["segment"].unique())
    full = pd.MultiIndex.from_product([names, names, order], names=axes)
    rows = group[group["language"].isin(names) & group["calibration"].isin(names)].set_index(axes).sort_index()
    if len(names) < 2 or not rows.index.equals(full):
        raise InputError(f"{len(rows)} rows were given where {len(names)} languages x as many calibrations x "
                         f"{len(order)} segments have one each; at least two languages are needed, and each cell once")
    shape = len(names), len(names), len(order)
    nll, size = (rows[column].to_numpy(float).reshape(shape) for column in ("nll", "bytes"))
    return names, nll, size[:, 0]


def _differences(nll: np.ndarray, size: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """nll [L, L, G], bytes [L, G], weights of segments [B, G] -> bits per byte of the target minus those of the best
    other, [B, L]."""
    bits = np.einsum("bg,lcg->blc", weights, nll) / (weights @ size.T)[:, :, None] / np.log(2)
    own = np.eye(len(nll), dtype=bool)
    others = np.where(own, np.inf, bits).min(axis=2)
    return bits[:, own] - others
