"""Perplexity and bits per byte from scored segments: sums first, then the ratio."""

from collections.abc import Sequence

import numpy as np
import pandas as pd


def totals(segments: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Pool segments into one row a group: `nll` (nats), `tokens`, `bytes` (sums),
    `perplexity` = exp(nll / tokens), `bits_per_byte` = nll / (ln 2 * bytes)."""
    table = segments.groupby(list(by), sort=False, dropna=False)[["nll", "tokens", "bytes"]].sum().reset_index()
    table["perplexity"] = np.exp(table["nll"] / table["tokens"])
    table["bits_per_byte"] = table["nll"] / np.log(2) / table["bytes"]
    return table
