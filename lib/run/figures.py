"""One style for every figure, one way to save it."""

import matplotlib
import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from IPython.display import Image, display
from matplotlib.backend_bases import FigureCanvasBase

from lib.paths import FIGURES
from lib.study import Study

# The field's two kinds of colour scale: differences are centred on 0, amounts run one way.
DIVERGING = "vlag"
SEQUENTIAL = "viridis"
WIDTH = 7.2  # inches: a text page's width
SCREEN = 110  # pixels for an inch of a figure, where it is read on a screen


def style() -> None:
    """Set matplotlib and seaborn for the notebook: readable at a page's width, safe for colour-blind eyes,
    the same bytes each time."""
    sns.set_theme(context="paper", style="ticks", palette="colorblind", rc={
        "figure.dpi": SCREEN, "savefig.dpi": 200,
        "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 9, "axes.labelsize": 9,
        "xtick.labelsize": 8, "ytick.labelsize": 8, "legend.fontsize": 8, "legend.frameon": False,
        "svg.hashsalt": "compendium", "svg.fonttype": "path", "pdf.fonttype": 42,
        "font.family": "DejaVu Sans"})
    matplotlib.rcParams["figure.max_open_warning"] = 0


def save(fig: plt.Figure, slug: str, frame: pd.DataFrame, study: Study) -> None:
    """Write figures/<label>/<slug>.{svg,pdf,png,csv}, show the png and close the figure; the csv holds exactly the
    plotted frame.

    `slug` begins with the number of the notebook that draws it. The study's label and models are printed
    in small type, so that a quick figure cannot pass for a result.
    """
    note = f"profile {study.label} · {', '.join(study.models)}"
    fig.supxlabel(note, fontsize=6, color="0.4", x=0.995, ha="right")
    fig.draw_without_rendering()  # lays it out, once for all kinds of files
    fig.set_layout_engine(None)
    folder = FIGURES / study.label
    folder.mkdir(parents=True, exist_ok=True)
    dateless = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}
    for kind, metadata in dateless.items():
        fig.savefig(folder / f"{slug}.{kind}", metadata=metadata)
    frame.to_csv(folder / f"{slug}.csv", index=False, lineterminator="\n", float_format="%.6g")
    plt.close(fig)
    display(Image(folder / f"{slug}.png", width=round(fig.get_figwidth() * SCREEN),
                  alt=f"Figure {slug}; its numbers are in {slug}.csv"))


def heatmap(grid: pd.DataFrame, axes: plt.Axes, **options) -> None:
    """seaborn's heatmap with upright labels. seaborn draws the whole figure for each of its panels to see whether
    labels overlap; here it looks without drawing."""
    canvas = axes.figure.canvas
    FigureCanvasBase(axes.figure)  # takes the figure's canvas' place, and draws nothing
    try:
        sns.heatmap(grid, ax=axes, **options)
    finally:
        axes.figure.set_canvas(canvas)
    axes.tick_params(rotation=0)
