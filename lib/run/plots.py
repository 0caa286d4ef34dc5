"""Drawings of the notebooks; each takes a tidy frame with the columns `model` and `arm`, and gives a figure."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.ticker import MaxNLocator

from lib.run.figures import DIVERGING, SEQUENTIAL, WIDTH, heatmap
from lib.study import Study

NAMES = {"magnitude": "magnitude", "wanda": "Wanda", "ria": "RIA", "sparsegpt": "SparseGPT"}
KINDS = ("target", "other", "English", "no text")  # calibration, as seen from the evaluation language
MARKS = "osD^vP"


def arms(frame: pd.DataFrame) -> pd.Series:
    """A reader's name for the arm of each row: "Wanda", "SparseGPT 2:4", "magnitude by row". Comparison group and
    sparsity are named where the frame has several of them."""
    keys = ["method", "group", "pattern", "sparsity"]
    found = frame[keys].drop_duplicates()
    plain = found[found["pattern"] == "unstructured"]
    groups, sparsities = plain.groupby("method")["group"].nunique(), plain["sparsity"].nunique()
    names = {}
    for arm in found.itertuples(index=False, name=None):
        method, group, pattern, sparsity = arm
        parts = [NAMES.get(method, method)]
        if pattern == "unstructured":
            parts += [f"by {group}"] * bool(groups[method] > 1) + [f"{sparsity:.0%}"] * bool(sparsities > 1)
        elif pattern != "none":
            parts.append(pattern)
        names[arm] = " ".join(parts)
    return pd.Series([names[arm] for arm in frame[keys].itertuples(index=False, name=None)], frame.index, dtype=object)


def ordered(names) -> list[str]:
    """Arms in the order of NAMES, those of n:m patterns last."""
    place = {method: k for k, method in enumerate(NAMES.values())}
    return sorted(set(names), key=lambda name: (":" in name, place.get(name.split()[0], -1), name))


def calibration_maps(frame: pd.DataFrame, study: Study) -> plt.Figure:
    """One corpus: heat maps of `ratio` by `calibration` and `language` (see `calibration_map`), a panel a model (row)
    and arm (column), one colour scale for all."""
    columns, limit = ordered(frame["arm"]), np.log2(frame["ratio"].max())
    fig, panels = plt.subplots(len(study.models), len(columns), squeeze=False, layout="constrained", sharey=True,
                               figsize=(WIDTH * max(len(columns), 1.2) / 2, 3.1 * len(study.models)))
    for (i, j), axes in np.ndenumerate(panels):
        part = frame[(frame["model"] == study.models[i]) & (frame["arm"] == columns[j])]
        if part.empty:
            axes.set_axis_off()
            continue
        calibration_map(axes, part, study.calibration_sets(), study.languages, limit)
        axes.set(title=f"{study.models[i]}\n{columns[j]}", xlabel="evaluation language",
                 ylabel="calibration language" if j == 0 else "")
    fig.suptitle(f"text: {frame['corpus'].iloc[0]}", fontsize=9)
    fig.colorbar(panels[0, 0].collections[0], ax=panels, shrink=0.6, label="log2 (perplexity / dense perplexity)")
    return fig


def calibration_map(axes: plt.Axes, frame: pd.DataFrame, rows: Sequence[str], columns: Sequence[str], limit: float
                    ) -> None:
    """Heat map of `ratio` by `calibration` and `language`, coloured by log2 within +-limit, 0 in the middle.

    In each column the row named by `best` is boxed, and has a dot where `clear` is true.
    """
    ratio = frame.pivot(index="calibration", columns="language", values="ratio").reindex(index=rows, columns=columns)
    labels = ratio.map(lambda r: "" if np.isnan(r) else f"{r:.2f}" if r < 9.995 else f"{r:.0f}")
    heatmap(np.log2(ratio), axes, cmap=DIVERGING, center=0, vmin=-limit, vmax=limit, annot=labels, fmt="",
            annot_kws={"size": 6.5}, cbar=False, linewidths=0.5, linecolor="white")
    axes.tick_params(length=0)
    axes.set_yticks(np.arange(len(rows)) + 0.5, list(rows))
    marks = frame.drop_duplicates("language").set_index("language")
    for k, language in enumerate(columns):
        y = list(rows).index(marks.loc[language, "best"])
        axes.add_patch(plt.Rectangle((k + 0.03, y + 0.03), 0.94, 0.94, fill=False, edgecolor="black", linewidth=1.3,
                                     clip_on=False, zorder=3))
        if marks.loc[language, "clear"]:
            axes.plot(k + 0.84, y + 0.2, "o", color="black", markersize=2.5, zorder=4)


def forest(frame: pd.DataFrame, study: Study, rival: str = "the best other") -> plt.Figure:
    """`difference` with `low`, `high` by `language`, one mark an arm; a panel a model (row) and corpus (column); 0 is
    drawn."""
    names, languages = ordered(frame["arm"]), [x for x in study.languages if x in set(frame["language"])]
    height = 0.9 + len(languages) * (0.12 + 0.09 * len(names))
    fig, panels = plt.subplots(len(study.models), len(study.evaluation_corpora), sharex="row", sharey=True,
                               figsize=(WIDTH, height * len(study.models)), squeeze=False, layout="constrained")
    for (i, j), axes in np.ndenumerate(panels):
        part = frame[(frame["model"] == study.models[i]) & (frame["corpus"] == study.evaluation_corpora[j])]
        axes.axvline(0, color="0.5", linewidth=0.8)
        for k, name in enumerate(names):
            cells = part[part["arm"] == name].set_index("language").reindex(languages)
            at = np.arange(len(languages)) + 0.7 / len(names) * (k - (len(names) - 1) / 2)
            _mark(axes, cells, "difference", at, k, name)
        last = i == len(study.models) - 1
        axes.set(title=f"{study.models[i]}, {study.evaluation_corpora[j]}", yticks=range(len(languages)),
                 yticklabels=languages, ylabel="evaluation language" if j == 0 else "",
                 xlabel=f"bits per byte, target minus {rival}" if last else "")
    panels[0, 0].set_ylim(len(languages) - 0.5, -0.5)
    fig.legend(*axes.get_legend_handles_labels(), loc="outside upper right", ncols=len(names))
    return fig


def intervals(frame: pd.DataFrame, study: Study, value: str, row: str, mark: str, label: str, rows: Sequence[str],
              marks: Sequence[str], reference: float, log: bool = False, title: str = "") -> plt.Figure:
    """`value` with bars from `low` to `high`: `rows` of the column `row` from above, one of `marks` for each of the
    column `mark`, a panel a model; a line at `reference`. `label`: of the value's axis; `title`: of the marks."""
    marks = [name for name in marks if name in set(frame[mark])]
    rows = [name for name in rows if name in set(frame[row])]
    here = {name: [m for m in marks if m in set(frame.loc[frame[row] == name, mark])] for name in rows}
    fig, panels = plt.subplots(1, len(study.models), figsize=(WIDTH, 1.3 + len(rows) * (0.16 + 0.07 * len(marks))),
                               sharey=True, squeeze=False, layout="constrained")
    for axes, model in zip(panels.flat, study.models, strict=True):
        axes.set_title(model)
        part = frame[frame["model"] == model]
        if part.empty:
            axes.text(0.5, 0.5, "nothing to compare", transform=axes.transAxes, ha="center")
            axes.set_axis_off()
            continue
        axes.axvline(reference, color="0.5", linewidth=0.8)
        for k, name in enumerate(marks):
            # A row's marks stand around its tick, however few of them it has.
            at = [y + 0.7 / len(marks) * (m.index(name) - (len(m) - 1) / 2) if name in m else np.nan
                  for y, m in enumerate(here.values())]
            _mark(axes, part[part[mark] == name].set_index(row).reindex(rows), value, np.array(at), k, name)
        axes.set(xscale="log" if log else "linear", xlabel=label)
        if not log:
            axes.xaxis.set_major_locator(MaxNLocator(max(3, 12 // len(study.models)), steps=[1, 2, 5, 10]))
        axes.set_yticks(range(len(rows)), rows)
        handles = axes.get_legend_handles_labels()
    panels[0, 0].set_ylim(len(rows) - 0.5, -0.5)
    fig.legend(*handles, loc="outside upper center", ncols=min(len(marks), 4), title=title or None)
    return fig


def change_maps(frame: pd.DataFrame, study: Study, limit: float) -> plt.Figure:
    """Heat maps of `change`, a panel a `task` (row) and model and arm (column), coloured within +-`limit`, red for
    a loss. Grey: not measured there. See `_squares`."""
    fig, panels = _squares(frame, study, "change", "task", cmap=f"{DIVERGING}_r", center=0, vmin=-limit, vmax=limit)
    fig.colorbar(panels[0, 0].collections[0], ax=panels, shrink=0.5, label="accuracy, change from dense")
    return fig


def snr_maps(frame: pd.DataFrame, study: Study) -> plt.Figure:
    """Heat maps of `snr_db` in numbers, a panel a `kind` (row) and model and arm (column), each with its own colours.
    See `_squares`."""
    return _squares(frame, study, "snr_db", "kind", cmap=SEQUENTIAL, annot=True, fmt=".1f", annot_kws={"size": 5})[0]


def part_maps(frame: pd.DataFrame, study: Study) -> plt.Figure:
    """Heat maps of `error` in numbers, a panel a `part` (row) and model and arm (column), each with its own colours.
    See `_squares`."""
    return _squares(frame, study, "error", "part", best="min", cmap=SEQUENTIAL, annot=True, fmt=".2f",
                    annot_kws={"size": 5})[0]


def silencing_maps(frame: pd.DataFrame, study: Study) -> plt.Figure:
    """Heat maps of `change` in numbers, by the language whose neurons are `silenced`, a panel a `control` (row) and
    model and arm (column), one colour scale. See `_squares`."""
    limit = frame["change"].abs().max()
    return _squares(frame, study, "change", "control", index="silenced", label="language whose neurons are silent",
                    best=None, cmap=DIVERGING, center=0, vmin=-limit, vmax=limit, annot=True, fmt=".2f",
                    annot_kws={"size": 4.5})[0]


def _squares(frame: pd.DataFrame, study: Study, value: str, row: str, index: str = "calibration",
             label: str = "calibration language", best: str | None = "max", **colours) -> tuple[plt.Figure, np.ndarray]:
    """(figure, panels) of heat maps of `value` by `index` and `language`. In each column the `best` is boxed."""
    rows = list(frame[row].unique())
    columns = [(model, arm) for model in study.models for arm in ordered(frame.loc[frame["model"] == model, "arm"])]
    sides = study.calibration_sets() if index == "calibration" else study.languages
    fig, panels = plt.subplots(len(rows), len(columns), figsize=(WIDTH, 0.7 + 1.75 * len(rows)), sharex=True,
                               sharey=True, squeeze=False, layout="constrained")
    for (i, j), axes in np.ndenumerate(panels):
        model, arm = columns[j]
        part = frame[(frame["model"] == model) & (frame["arm"] == arm) & (frame[row] == rows[i])]
        grid = part.pivot(index=index, columns="language", values=value).reindex(index=sides, columns=study.languages)
        axes.set_facecolor("0.85")
        heatmap(grid, axes, cbar=False, linewidths=0.3, linecolor="white", **colours)
        for k, column in enumerate(grid if best else ()):
            for y in np.flatnonzero(grid[column] == grid[column].agg(best)):
                axes.add_patch(plt.Rectangle((k + 0.05, y + 0.05), 0.9, 0.9, fill=False, edgecolor="black"))
        axes.tick_params(length=0, labelsize=6.5)
        axes.set(title=f"{model}\n{arm}" if i == 0 else "", ylabel=rows[i] if j == 0 else "",
                 xlabel="evaluation language" if i == len(rows) - 1 else "")
        axes.set_yticks(np.arange(len(grid)) + 0.5, list(grid.index))
    fig.supylabel(label, fontsize=9)
    return fig, panels


def _mark(axes: plt.Axes, cells: pd.DataFrame, value: str, at: np.ndarray, k: int, label: str) -> None:
    """The k-th kind of mark at these places on the y axis, with bars from `low` to `high`."""
    bars = np.abs(cells[["low", "high"]].to_numpy() - cells[[value]].to_numpy()).T
    axes.errorbar(cells[value], at, xerr=bars, fmt=MARKS[k % len(MARKS)], color=sns.color_palette()[k], markersize=3.5,
                  linewidth=1, label=label)
