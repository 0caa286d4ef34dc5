"""Drawings of notebooks 07 and 08 that are of their own kind; see lib.run.plots for the others."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from scipy.cluster.hierarchy import dendrogram

from lib.analysis.clustering import cluster
from lib.run.figures import SEQUENTIAL, WIDTH, heatmap
from lib.study import Study


def layer_maps(frame: pd.DataFrame, study: Study, value: str, row: str, rows: Sequence[str], arms: Sequence[str],
               label: str) -> plt.Figure:
    """Heat maps of `value` by the column `row` (these `rows`) and `layer`, a panel a model (column) and arm (row), a
    colour scale a model. `label`: of the scale."""
    fig, panels = plt.subplots(len(arms), len(study.models), figsize=(WIDTH, 0.8 + 1.25 * len(arms)), squeeze=False,
                               sharex="col", layout="constrained")
    for j, model in enumerate(study.models):
        most = frame.loc[frame["model"] == model, value].max()
        for i, arm in enumerate(arms):
            part = frame[(frame["model"] == model) & (frame["arm"] == arm)]
            axes = panels[i, j]
            axes.set(title=f"{model}, {arm}" + (": not measured" if part.empty else ""))
            if part.empty:
                axes.set_axis_off()
                continue
            grid = part.pivot(index=row, columns="layer", values=value).reindex(rows)
            every = -(-grid.shape[1] // 15)  # more labels than that would touch
            heatmap(grid, axes, cmap=SEQUENTIAL, vmin=0, vmax=most, cbar=False, xticklabels=every)
            axes.set_yticks(np.arange(len(grid)) + 0.5, [name.split(".")[-1] for name in rows], fontsize=6)
            axes.set(ylabel="", xlabel="decoder block" if i == len(arms) - 1 else "")
            axes.tick_params(length=0)
        scale = ScalarMappable(Normalize(0, most), SEQUENTIAL)
        fig.colorbar(scale, ax=panels[:, j], location="bottom", shrink=0.8, label=label)
    return fig


def dendrograms(linked: Sequence[tuple[str, str, np.ndarray]], names: Sequence[str]) -> plt.Figure:
    """(model, what, distances [L, L]) each -> its average-linkage clustering, a panel each."""
    columns = 2
    rows = -(-len(linked) // columns)
    fig, panels = plt.subplots(rows, columns, figsize=(WIDTH, 2 * rows), squeeze=False, layout="constrained")
    for axes, (model, what, table) in zip(panels.flat, linked, strict=False):
        dendrogram(cluster(table), labels=list(names), ax=axes, color_threshold=0, above_threshold_color="0.2")
        axes.set(title=f"{model}, by {what}", ylabel="distance")
        axes.tick_params(axis="x", labelsize=8, length=0)
    return fig
