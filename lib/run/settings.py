"""Names of settings in which a model was pruned, as they differ from the study's main one: notebook 09."""

import pandas as pd

from lib.inputs.languages import weights
from lib.run.plots import NAMES
from lib.study import Study

# Column that a setting differs in -> what is varied. The first that differs names the setting: settings of another
# length or text have another number of windows too, and n:m patterns another comparison group.
FACTORS = {"method": "method", "pattern": "pattern", "calibration_corpus": "text", "budget": "budget",
           "seqlen": "window length", "sparsity": "sparsity", "group": "comparison group", "seed": "draw",
           "n_samples": "amount of text"}
MAIN = "main setting"
KINDS = ("target", "English", "with English", "all languages", "training mix")  # see `kind`


def named(frame: pd.DataFrame, study: Study, method: str = "wanda", group: str = "row") -> pd.DataFrame:
    """The rows, of pruned models, with `factor`, what is varied, and `setting`, a reader's name; in the order of
    FACTORS. The main setting is the study's own with its first seed, pruned by `method` within groups `group`."""
    main = study.main() | {"method": method, "group": group, "seed": study.seeds[0]}
    keys = list(FACTORS)
    names = {}
    for values in frame[keys].drop_duplicates().itertuples(index=False):
        differ = [key for key in keys if getattr(values, key) != main[key]]
        names[tuple(values)] = (FACTORS[differ[0]], _name(values, differ[0])) if differ else (MAIN, MAIN)
    rows = frame.copy()
    found = [names[values] for values in rows[keys].itertuples(index=False, name=None)]
    rows[["factor", "setting"]] = pd.DataFrame(found, index=rows.index, columns=["factor", "setting"])
    place = {factor: k for k, factor in enumerate([MAIN, *FACTORS.values()])}
    rows["place"] = rows["factor"].map(place)
    return rows.sort_values(["place", *keys], kind="stable").drop(columns="place")


def _name(values, differs: str) -> str:
    return {"method": NAMES.get(values.method, values.method), "pattern": f"{values.pattern} pattern",
            "calibration_corpus": f"{values.calibration_corpus}, {values.n_samples} windows",
            "budget": f"same {values.budget}", "seqlen": f"{values.n_samples} windows of {values.seqlen}",
            "sparsity": f"{values.sparsity:.0%} removed", "group": f"compared by {values.group}",
            "seed": f"draw {values.seed}", "n_samples": f"{values.n_samples} windows"}[differs]


def kind(calibration: str, language: str) -> str:
    """What a calibration is, as seen from a language: one of KINDS (the training mix has weights), or "" (another
    language or pair)."""
    if calibration in (language, "en", "all"):
        return "target" if calibration == language else {"en": "English", "all": "all languages"}[calibration]
    parts = weights(calibration)
    if len(set(parts.values())) > 1:
        return "training mix"
    return "with English" if set(parts) == {language, "en"} else ""
