"""Drawings that several notebooks share; each takes a tidy frame and draws into axes or a new figure."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns

from lib.run.figures import DIVERGING, WIDTH


def calibration_map(axes: plt.Axes, frame: pd.DataFrame, rows: Sequence[str], columns: Sequence[str], limit: float
                    ) -> None:
    """Heat map of `ratio` by `row` (calibration) and `language`, coloured by log2 within +-limit, 0 in the middle.

    In each column the row named by `best` is boxed, and has a dot where `clear` is true.
    """
    ratio = frame.pivot(index="row", columns="language", values="ratio").loc[list(rows), list(columns)]
    labels = ratio.map(lambda r: f"{r:.2f}" if r < 9.995 else f"{r:.0f}")
    sns.heatmap(np.log2(ratio), ax=axes, cmap=DIVERGING, center=0, vmin=-limit, vmax=limit, annot=labels, fmt="",
                annot_kws={"size": 6.5}, cbar=False, linewidths=0.5, linecolor="white")
    axes.tick_params(length=0)
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows, rotation=0)
    marks = frame.dropna(subset="best").drop_duplicates("language").set_index("language")
    for k, language in enumerate(columns):
        y = list(rows).index(marks.loc[language, "best"])
        axes.add_patch(plt.Rectangle((k + 0.03, y + 0.03), 0.94, 0.94, fill=False, edgecolor="black", linewidth=1.3,
                                     clip_on=False, zorder=3))
        if marks.loc[language, "clear"]:
            axes.plot(k + 0.84, y + 0.2, "o", color="black", markersize=2.5, zorder=4)


def forest(frame: pd.DataFrame, languages: Sequence[str], rows: Sequence[str], columns: Sequence[str]) -> plt.Figure:
    """`difference` with `low`, `high` by `language`, one mark a `rival`; panels by `model` and `corpus`; 0 is drawn."""
    fig, panels = plt.subplots(len(rows), len(columns), figsize=(WIDTH, 2.5 * len(rows)), sharex="row", sharey=True,
                               squeeze=False, layout="constrained")
    rivals = list(frame["rival"].unique())
    for (i, j), axes in np.ndenumerate(panels):
        part = frame[(frame["model"] == rows[i]) & (frame["corpus"] == columns[j])]
        axes.axvline(0, color="0.5", linewidth=0.8)
        for k, rival in enumerate(rivals):
            cells = part[part["rival"] == rival].set_index("language").reindex(languages)
            y = np.arange(len(languages)) + 0.16 * (2 * k - len(rivals) + 1)
            bars = np.abs(cells[["low", "high"]].to_numpy() - cells[["difference"]].to_numpy()).T
            axes.errorbar(cells["difference"], y, xerr=bars, fmt="os"[k], color=sns.color_palette()[k], markersize=4,
                          markerfacecolor="white" if k else None, linewidth=1, label=f"against {rival}")
        axes.set(title=f"{rows[i]}, {columns[j]}", yticks=range(len(languages)), yticklabels=languages,
                 xlabel="bits per byte, target minus rival" if i == len(rows) - 1 else "",
                 ylabel="evaluation language" if j == 0 else "")
        if i == 0 and j == 0:
            axes.invert_yaxis()
    fig.legend(*axes.get_legend_handles_labels(), loc="outside upper right", ncols=len(rivals))
    return fig
