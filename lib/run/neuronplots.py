"""Drawings of notebook 08."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns

from lib.run.figures import DIVERGING, SEQUENTIAL, WIDTH
from lib.study import Study


def layers(frame: pd.DataFrame, study: Study, arms: Sequence[str]) -> plt.Figure:
    """Heat maps of `neurons` by `language` and `layer`, a panel a model (column) and arm (row), a scale a model."""
    fig, panels = plt.subplots(len(arms), len(study.models), figsize=(WIDTH, 0.5 + 1.25 * len(arms)), squeeze=False,
                               sharex="col", layout="constrained")
    for j, model in enumerate(study.models):
        most = frame.loc[frame["model"] == model, "neurons"].max()
        for i, arm in enumerate(arms):
            part = frame[(frame["model"] == model) & (frame["arm"] == arm)]
            grid = part.pivot(index="language", columns="layer", values="neurons").reindex(study.languages)
            axes = panels[i, j]
            sns.heatmap(grid, ax=axes, cmap=SEQUENTIAL, vmin=0, vmax=most, cbar=False)
            axes.set_yticks(np.arange(len(grid)) + 0.5, list(grid.index), rotation=0, fontsize=6)
            axes.set(title=f"{model}, {arm}", ylabel="", xlabel="decoder block" if i == len(arms) - 1 else "")
            axes.tick_params(length=0)
        fig.colorbar(panels[0, j].collections[0], ax=panels[:, j], location="bottom", shrink=0.8, label="neurons")
    return fig


def silenced(frame: pd.DataFrame, study: Study) -> plt.Figure:
    """Heat maps of `change` by `silenced` and `language`, a panel a `control` (row) and model and arm (column), one
    scale a model."""
    columns = list(frame[["model", "arm"]].drop_duplicates().itertuples(index=False, name=None))
    controls = list(frame["control"].unique())
    fig, panels = plt.subplots(len(controls), len(columns), figsize=(WIDTH, 0.8 + 1.8 * len(controls)), squeeze=False,
                               sharex=True, sharey=True, layout="constrained")
    for j, (model, arm) in enumerate(columns):
        limit = frame.loc[frame["model"] == model, "change"].abs().max()
        for i, control in enumerate(controls):
            part = frame[(frame["model"] == model) & (frame["arm"] == arm) & (frame["control"] == control)]
            grid = part.pivot(index="silenced", columns="language", values="change")
            grid, axes = grid.reindex(index=study.languages, columns=study.languages), panels[i, j]
            sns.heatmap(grid, ax=axes, cmap=DIVERGING, center=0, vmin=-limit, vmax=limit, cbar=False, annot=True,
                        fmt=".2f", annot_kws={"size": 4.5})
            axes.set_yticks(np.arange(len(grid)) + 0.5, list(grid.index), rotation=0)
            axes.set(title=f"{model}\n{arm}" if i == 0 else "", ylabel=f"{control} silent" if j == 0 else "",
                     xlabel="language of the text" if i == len(controls) - 1 else "")
            axes.tick_params(length=0, labelsize=6.5)
    return fig
