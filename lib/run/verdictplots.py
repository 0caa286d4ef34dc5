"""Drawing of notebook 10."""

import textwrap

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns

from lib.analysis.claims import VERDICTS
from lib.run.figures import WIDTH


def verdict_chart(verdicts: pd.DataFrame) -> plt.Figure:
    """Rows of `lib.analysis.claims.verdicts`: a line a claim, a mark in the column of its verdict, the statistic with
    its interval at the right."""
    fig, axes = plt.subplots(figsize=(WIDTH, 0.8 + 0.46 * len(verdicts)), layout="constrained")
    colours = dict(zip(VERDICTS, np.array(sns.color_palette("colorblind"))[[2, 1, 3, 7]], strict=True))
    for y, row in enumerate(verdicts.itertuples()):
        axes.axhline(y + 0.5, color="0.9", linewidth=0.6)
        axes.plot(VERDICTS.index(row.verdict), y, "osD^"[VERDICTS.index(row.verdict)], color=colours[row.verdict])
        number = "nothing measured" if np.isnan(row.statistic) else (
            f"{row.statistic:.2f} ({row.low:.2f} to {row.high:.2f}), n {row.n}")
        axes.text(len(VERDICTS) - 0.35, y, number, va="center", fontsize=7)
    names = ["\n".join(textwrap.wrap(f"{row.id}  {row.claim}", 62)) for row in verdicts.itertuples()]
    axes.set_yticks(range(len(verdicts)), names, fontsize=6.5)
    axes.set_xticks(range(len(VERDICTS)), [name.replace(" ", "\n") for name in VERDICTS], fontsize=7.5)
    axes.xaxis.tick_top()
    axes.set(xlim=(-0.5, len(VERDICTS) + 1.6), ylim=(len(verdicts) - 0.5, -0.5))
    axes.tick_params(length=0)
    sns.despine(ax=axes, left=True, bottom=True)
    return fig
