"""The numbers of the README, from the published tables: what stands between `<!-- name -->` and `<!-- / -->` there.

    python -m lib.run.readme
"""

import re
from collections.abc import Callable
from functools import partial
from itertools import product

import pandas as pd

from lib.analysis.comparisons import target_gains
from lib.analysis.intervals import best_by_cell
from lib.analysis.leads import leads
from lib.analysis.masks import pooled
from lib.analysis.perplexity import silencing_cost, totals
from lib.arms import ASKED, TABLES
from lib.errors import InputError
from lib.paths import ROOT
from lib.run import plots, settings, store
from lib.study import Study

README = ROOT / "README.md"
NAMES = {"gemma-3-270m": "Gemma", "smollm2-135m": "SmolLM2"}
TASKS = ("knowledge", "category", "retrieval", "completion")
# What the minutes of a notebook are the sum of (see the column `what` of the table `timings`).
MEASURED = {"01": ["calibration text", "activation norms"], "02": ["pruning"], "03": ["perplexity"], "04": ["tasks"],
            "05": ["signal-to-noise"], "06": ["subspaces"], "07": ["masks", "mask pairs"],
            "08": ["neurons", "silencing"], "09": ["robustness", "perplexity of mixtures", "tasks of mixtures"],
            "10": []}


def filled(text: str) -> str:
    """The README's text with today's numbers. Raises InputError for a part that it has no place for, or that is
    unknown."""
    places = set(re.findall(r"<!-- ([\w ]+) -->", text))
    if places != set(PARTS):
        raise InputError(f"the README lacks a place for {sorted(set(PARTS) - places)} and has one for "
                         f"{sorted(places - set(PARTS))}, which is unknown; known: {', '.join(PARTS)}")
    for name, make in PARTS.items():
        text = re.sub(rf"(<!-- {name} -->).*?(<!-- / -->)", rf"\g<1>{make()}\g<2>", text, flags=re.S)
    return text


def answer() -> str:
    """The README's answer, a paragraph of Markdown."""
    (found,) = re.findall(r"^\*\*The answer\.\*\*.*?(?=\n\n)", README.read_text(), re.S | re.M)
    return re.sub(r"<!--.*?-->", "", found)


def results() -> str:
    """A row a model and arm that was calibrated in several languages: perplexity."""
    segments, by = store.published("segment_nll"), ["model", "arm", "corpus", "language"]
    segments["arm"] = plots.arms(segments)
    table = totals(segments, [*by, "method", "calibration"])
    dense = table[table["method"] == "dense"].set_index(["model", "corpus", "language"])["perplexity"]
    places = pd.MultiIndex.from_frame(table[["model", "corpus", "language"]])
    table["ratio"] = table["perplexity"].to_numpy() / dense.loc[places].to_numpy()
    several = segments.groupby(["model", "arm"])["calibration"].transform("nunique") > 1
    gain = best_by_cell(segments[several], by)
    rows = []
    for model, arm in product(NAMES, plots.ordered(gain["arm"])):
        won = gain[(gain["model"] == model) & (gain["arm"] == arm)]
        costs = table[(table["model"] == model) & (table["arm"] == arm)]
        own, english = costs["calibration"] == costs["language"], costs["calibration"] == "en"
        middle = [costs.loc[c, "ratio"].median() for c in (own, english & ~own, ~english & ~own)]
        counts = [(won["difference"] < 0).sum(), (won["high"] < 0).sum(), won["beaten"].sum()]
        if len(won):
            rows.append([NAMES[model], arm, *map(str, counts), *(f"{m:.2f}" for m in middle)])
    return _table(["model", "removed by", "lowest", "shown", "lost", "target", "English", "other"], rows)


def _gains() -> pd.DataFrame:
    items = store.published("task_items")
    items = items[items["calibration"] != "none"]
    return target_gains(items.assign(arm=plots.arms(items))).set_index(["model", "arm", "task"])


def tasks() -> str:
    """A row a model and arm: what the target language gains in each task."""
    table, rows = _gains(), []
    for model, arm in product(NAMES, plots.ordered(table.index.unique("arm"))):
        keys = [(model, arm, task) for task in TASKS]
        if any(key in table.index for key in keys):
            rows.append([NAMES[model], arm, *(_interval(table.loc[k]) if k in table.index else "" for k in keys)])
    return _table(["model", "removed by", *TASKS], rows)


def knowledge() -> str:
    """What the target language gains in knowledge."""
    rows = _gains().xs("knowledge", level="task")
    holds = (rows["low"] < 0) & (rows["high"] > 0)
    return (f"between {rows['difference'].min():+.3f} and {rows['difference'].max():+.3f} in accuracy, with 0 inside "
            f"the interval for {holds.sum()} of {len(rows)} models and methods")


def robust() -> str:
    """How often the target language is ahead when one choice is moved."""
    study = Study.load("published")
    lead = leads(settings.named(store.published("robustness"), study), ["model", "factor", "setting", "corpus"])
    return (f"in {lead['lowest'].sum()} of {lead['languages'].sum()} cases, and is shown to be ahead in "
            f"{(lead['high'] < 0).sum()} of {len(lead)} settings and behind in {(lead['low'] > 0).sum()}")


def mixture() -> str:
    """What English, and a mixture with English, cost in bits per byte."""
    study = Study.load("published")
    home = {"method": "wanda", "group": "row", "seed": study.seeds[0], **study.main()}
    alone = store.published("segment_nll")
    alone = alone[(alone[list(home)] == pd.Series(home)).all(axis=1) & (alone["model"] == "gemma-3-270m")]
    mixed = pd.concat([store.published("mixture_nll"), alone], ignore_index=True)
    mixed["rival"] = [settings.kind(c, x) for c, x in zip(mixed["calibration"], mixed["language"], strict=True)]
    cost = [-best_by_cell(mixed[mixed["rival"].isin(["target", kind])], ["model", "corpus", "language"])[
        "difference"].median() for kind in ("with English", "English")]
    return "a median of {:.3f} bits per byte, where English alone costs {:.3f}".format(*cost)


def signal() -> str:
    """How often the target language has the highest signal-to-noise ratio."""
    table = store.published("layer_error")
    table = table[~table["module"].isin(["block", "final"]) & (table["calibration"] != "none")]
    means = table.groupby(["model", "method", "kind", "language", "calibration"])["snr_db"].mean().unstack()
    won = means.idxmax(axis=1) == means.index.get_level_values("language")
    return f"in {won.sum()} of {len(won)} cases"


def masks() -> str:
    """Overlap of the weights that two draws without a segment in common remove, and by chance."""
    table = store.published("mask_overlap")
    table = table[(table["budget"] == "rest") != (table["other_budget"] == "rest")]
    same = table["calibration"] == table["other_calibration"]
    own, other = (pooled(rows, ["model"]) for rows in (table[same], table[~same]))
    return (f"on {_percent(own['jaccard'])} of the weights that either removes, from two languages on "
            f"{_percent(other['jaccard'])} (by chance {_percent(own['chance'])})")


def subspaces() -> str:
    parts = store.published("subspaces").query("variant == 'centred' and control == 'none'")
    by = ["model", "method", "part"]
    own = parts[parts["calibration"] == parts["language"]].groupby(by)["error"].mean()
    least = own < parts.groupby(by)["error"].mean()
    return f"in {least.sum()} of {len(least)} means"


def neurons() -> str:
    silent = silencing_cost(store.published("silencing").query("method == 'dense'"), ["model"])
    silent["own"] = silent["silenced"] == silent["language"]
    cost = silent.groupby(["control", "own", "model"], sort=False)["change"].mean()
    own, other, random = (" and ".join(f"{cost[control, mine, model]:.2f}" for model in cost.index.unique("model"))
                          for control, mine in (("specific", True), ("specific", False), ("random", True)))
    return f"costs its text {own} bits per byte, text of other languages {other}; as many random neurons cost {random}"


def share() -> str:
    """How much the default run is of the published one."""
    mine, every = (len({v for table in TABLES + ASKED for v in study.variants(table)})
                   for study in (Study.load("default"), Study.load("published")))
    return f"{mine} of its {every} pruned or dense models"


def _minutes(measured: list[str]) -> str:
    timings = store.published("timings")
    return f"{timings.loc[timings['what'].isin(measured), 'seconds'].sum() / 60:.0f}"


def _interval(row: pd.Series) -> str:
    return f"{row['difference']:+.3f} ({row['low']:+.3f} to {row['high']:+.3f})"


def _percent(shares: pd.Series) -> str:
    return " and ".join(f"{100 * x:.0f} %" for x in shares)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, *rows)]
    return "\n" + "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]]) + "\n"


PARTS: dict[str, Callable[[], str]] = {
    part.__name__: part for part in (results, tasks, knowledge, robust, mixture, signal, masks, subspaces, neurons,
                                     share)
} | {f"minutes {number}": partial(_minutes, what) for number, what in MEASURED.items()}


if __name__ == "__main__":
    README.write_text(filled(README.read_text()))
