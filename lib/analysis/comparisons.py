"""Pruned models compared on the same items: which calibration or method answers more of them, and by how much.

Frames hold rows (model, arm, calibration, seed, task, language, item, correct); answers of several draws of one
calibration are averaged.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from lib.analysis.claims.items import wins
from lib.analysis.intervals import mean_interval, paired_bootstrap, rate_interval, spearman
from lib.analysis.significance import holm, mcnemar

PLACE = ["model", "arm", "task", "language"]


def changes(items: pd.DataFrame, dense: pd.DataFrame) -> pd.DataFrame:
    """Accuracy of each model, arm, task, language and calibration minus the dense model's on the same items:
    `accuracy`, `dense`, `change`, `n`."""
    before = dense.groupby(["model", "task", "language"])["correct"].mean().rename("dense").reset_index()
    table = items.groupby([*PLACE, "calibration"], sort=False)["correct"].agg(accuracy="mean", n="size").reset_index()
    table = table.merge(before, on=["model", "task", "language"])
    return table.assign(change=table["accuracy"] - table["dense"])


def win_rates(items: pd.DataFrame, level: float = 0.95) -> pd.DataFrame:
    """One row a model, arm and task: `rate`, how often over languages the target language gives the highest accuracy
    (ties shared out), with `low`, `high` (Wilson over languages), `chance` (one over the calibrations), `n` languages.
    Languages that are no calibration are left out."""
    rows = []
    for key, of_task in items.groupby(["model", "arm", "task"], sort=False):
        table = of_task.groupby(["language", "calibration"])["correct"].mean().unstack("calibration")
        table = table[table.index.isin(table.columns)]
        if table.shape[1] > 1 and len(table):
            won = [float(wins(row.to_numpy(), table.columns.get_loc(language))) for language, row in table.iterrows()]
            found = rate_interval(float(np.mean(won)), len(won), level)
            rows.append((*key, found.estimate, found.low, found.high, 1 / table.shape[1], len(won)))
    return pd.DataFrame(rows, columns=["model", "arm", "task", "rate", "low", "high", "chance", "n"])


def target_gains(items: pd.DataFrame, rival: str | None = None) -> pd.DataFrame:
    """One row a model, arm and task: `difference` in accuracy, calibrated in the target language minus calibrated in
    `rival` (None: the mean over all other languages), with `low`, `high`: bootstrap over items, each with its answers
    in all languages (`n` items), of the languages in which both were asked."""
    own = items[items["calibration"] == items["language"]]
    other = items[(items["calibration"] != items["language"])]
    if rival is not None:
        other = other[other["calibration"] == rival]
    unit = [*PLACE, "item"]
    both = pd.concat([own.groupby(unit)["correct"].mean(), other.groupby(unit)["correct"].mean()], axis=1,
                     keys=["own", "other"]).dropna()
    return _over_items(both, ["model", "arm", "task"], "own", "other")


def method_gains(items: pd.DataFrame, first: str, second: str) -> pd.DataFrame:
    """One row a model, task and `calibrated` ("target" or "other" language): `difference` in accuracy, the arm `first`
    minus `second`, on the same items, languages, calibrations and draws, with `low`, `high` as in `target_gains`."""
    unit = ["model", "task", "language", "calibration", "seed", "item"]
    both = items[items["arm"].isin([first, second])].set_index([*unit, "arm"])["correct"].unstack("arm").dropna()
    own = both.index.get_level_values("calibration") == both.index.get_level_values("language")
    both = both.assign(calibrated=np.where(own, "target", "other")).set_index("calibrated", append=True)
    return _over_items(both, ["model", "task", "calibrated"], first, second)


def shown(items: pd.DataFrame, alpha: float = 0.05) -> pd.DataFrame:
    """One row a model, arm, task, language and other calibration: `difference` of the target's accuracy, its standard
    error over items, exact McNemar `p` (two-sided), `adjusted` for all rows (Holm 1979), `verdict` ("better",
    "worse" or "" where nothing is shown). Of several draws that both have the first is compared."""
    rows = []
    for key, cell in items.groupby(PLACE, sort=False):
        grid = cell.sort_values("seed").groupby(["item", "calibration"])["correct"].first().unstack("calibration")
        for other in grid.columns.drop(key[-1], errors="ignore") if key[-1] in grid else ():
            pair = grid[[key[-1], other]].dropna()
            difference = pair[key[-1]] - pair[other]
            rows.append((*key, other, float(difference.mean()), float(difference.sem()), len(pair),
                         mcnemar(pair[key[-1]] > 0.5, pair[other] > 0.5)))
    table = pd.DataFrame(rows, columns=[*PLACE, "other", "difference", "stderr", "n", "p"])
    table["adjusted"] = holm(table["p"].to_numpy())
    side = np.where(table["difference"] > 0, "better", "worse")
    return table.assign(verdict=np.where(table["adjusted"] < alpha, side, ""))


def stand_ins(items: pd.DataFrame, bits: pd.DataFrame) -> pd.DataFrame:
    """One row a model, arm, task and language: `rho`, Spearman's correlation over calibrations of accuracy with bits
    per byte in the same language (the sign turned: +1 is lower bits, more right answers). `bits`: rows (model,
    arm, language, calibration, bits_per_byte)."""
    by = ["model", "arm", "language", "calibration"]
    right = items.groupby([*PLACE, "calibration"], sort=False)["correct"].mean().rename("accuracy").reset_index()
    both = right.merge(bits.groupby(by)["bits_per_byte"].mean().reset_index(), on=by)
    rows = [(*key, float(spearman(-cell["bits_per_byte"].to_numpy(), cell["accuracy"].to_numpy())), len(cell))
            for key, cell in both.groupby(PLACE, sort=False) if len(cell) > 2]
    return pd.DataFrame(rows, columns=[*PLACE, "rho", "calibrations"])


def means(frame: pd.DataFrame, by: Sequence[str], value: str, level: float = 0.95) -> pd.DataFrame:
    """One row a group of `by`: `estimate`, the mean of its values that are not NaN, with `low`, `high` (Student's
    interval; NaN for a single value) and `n`."""
    groups = frame.dropna(subset=value).groupby(list(by), sort=False)[value]
    rows = [dict(zip(by, key, strict=True)) | vars(mean_interval(values.to_numpy(), level)) for key, values in groups]
    return pd.DataFrame(rows).replace([np.inf, -np.inf], np.nan)


def _over_items(both: pd.DataFrame, by: Sequence[str], first: str, second: str) -> pd.DataFrame:
    """Paired differences of two columns, averaged by item, with a bootstrap over items."""
    means = both.groupby([*by, "item"])[[first, second]].mean()
    rows = []
    for key, cell in means.groupby(list(by), sort=False):
        found = paired_bootstrap(cell[first].to_numpy(), cell[second].to_numpy())
        rows.append((*key, found.estimate, found.low, found.high, found.n))
    return pd.DataFrame(rows, columns=[*by, "difference", "low", "high", "n"])
