"""Drawings of notebook 07."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from scipy.cluster.hierarchy import dendrogram

from lib.analysis.clustering import cluster
from lib.run.figures import SEQUENTIAL, WIDTH
from lib.run.plots import ordered
from lib.study import Study


def layer_maps(frame: pd.DataFrame, study: Study, value: str, label: str) -> plt.Figure:
    """Heat maps of `value` by `module` and `layer`, a panel a model (row) and arm (column), one colour scale."""
    arms = ordered(frame["arm"])
    fig, panels = plt.subplots(len(study.models), len(arms), figsize=(WIDTH, 0.6 + 1.7 * len(study.models)),
                               squeeze=False, layout="constrained")
    for (i, j), axes in np.ndenumerate(panels):
        part = frame[(frame["model"] == study.models[i]) & (frame["arm"] == arms[j])]
        if part.empty:
            axes.set_axis_off()
            continue
        grid = part.pivot(index="module", columns="layer", values=value).reindex(part["module"].unique())
        sns.heatmap(grid, ax=axes, cmap=SEQUENTIAL, vmin=0, vmax=frame[value].max(), cbar=False)
        axes.set_yticks(np.arange(len(grid)) + 0.5, [name.split(".")[-1] for name in grid.index], rotation=0)
        axes.set(title=f"{study.models[i]}, {arms[j]}", xlabel="decoder block", ylabel="")
        axes.tick_params(length=0)
    shown = next(axes for axes in panels.flat if axes.collections)
    fig.colorbar(shown.collections[0], ax=panels, shrink=0.7, label=label)
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
