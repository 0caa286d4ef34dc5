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
    `segments` of a language.

    Percentile interval over segments, which all calibrations share. Languages that have the same segments, as in
    parallel text, are resampled together, others on their own; the best other is found anew in each resample, which
    favours the others. Raises InputError when a group lacks cells.
    """
    rows = []
    for key, group in segments.groupby(list(by), sort=False):
        cells, rng, drawn = _cells(group), np.random.default_rng(0), {}
        for _, found, _, _ in cells:
            if found not in drawn:
                drawn[found] = resample_weights(rng, len(found), RESAMPLES)
        each = np.array([_differences(own, nll, size, np.ones((1, len(found))))[0] for own, found, nll, size in cells])
        mean = np.mean([_differences(own, nll, size, drawn[found]) for own, found, nll, size in cells], axis=0)
        rows.append((*key, each.mean(), *np.quantile(mean, tails(level)), int((each < 0).sum()), len(cells),
                     min(len(found) for found in drawn)))
    return pd.DataFrame(rows, columns=[*by, "difference", "low", "high", "lowest", "languages", "segments"])


def _cells(group: pd.DataFrame) -> list[tuple[int, tuple[str, ...], np.ndarray, np.ndarray]]:
    """-> of each of the L languages read and calibrated in: the place of its own calibration, its segments, nll [L, G]
    by calibration and segment, bytes [G]."""
    names = sorted(set(group["language"]) & set(group["calibration"]))
    if len(names) < 2:
        raise InputError(f"{len(names)} language(s) are both read and calibrated in; at least two languages are needed")
    cells = []
    for own, language in enumerate(names):
        rows = group[(group["language"] == language) & group["calibration"].isin(names)]
        found = tuple(sorted(rows["segment"].unique()))
        full = pd.MultiIndex.from_product([names, found], names=["calibration", "segment"])
        rows = rows.set_index(full.names).sort_index()
        if not rows.index.equals(full):
            raise InputError(f"{len(rows)} rows were given in {language} where {len(names)} calibrations x {len(found)}"
                             " segments have one each; compute the missing cells, and give each once")
        nll, size = (rows[column].to_numpy(float).reshape(len(names), -1) for column in ("nll", "bytes"))
        cells.append((own, found, nll, size[0]))
    return cells


def _differences(own: int, nll: np.ndarray, size: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """nll [L, G], bytes [G], weights of segments [B, G] -> bits per byte of calibration `own` minus those of the best
    other, [B]."""
    bits = weights @ nll.T / (weights @ size)[:, None] / np.log(2)
    return bits[:, own] - np.delete(bits, own, axis=1).min(axis=1)
