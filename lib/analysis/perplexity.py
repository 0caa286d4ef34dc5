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


def silencing_cost(segments: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Segments read with and without (`control` "none") neurons silent -> totals of the former by `by`, `control`,
    `silenced` and `language`, with `change`: bits per byte minus those of the same text with none silent."""
    table = totals(segments, [*by, "control", "silenced", "language"])
    none = table["control"] == "none"
    before = table[none].set_index([*by, "language"])["bits_per_byte"].rename("before")
    table = table[~none].join(before, on=[*by, "language"])
    return table.assign(change=table["bits_per_byte"] - table["before"]).drop(columns="before")
