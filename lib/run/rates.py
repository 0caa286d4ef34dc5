"""How long a visit will take, by visits that were measured: their seconds for a weight and a unit of text."""

from functools import cache, partial
from typing import NamedTuple

import pandas as pd

from lib.inputs import sizes
from lib.run import store
from lib.run.store import Visit
from lib.study import Study, Variant

# What is measured -> the table whose cells tell how much it was. Cells of these are counted by the segments or items
# in them, others are counted one by one.
TABLE = {"calibration text": "calibration", "activation norms": "norm_similarity", "pruning": "pruning",
         "perplexity": "segment_nll", "tasks": "task_items", "signal-to-noise": "layer_error",
         "subspaces": "retrieval", "masks": "mask_overlap", "mask pairs": "mask_swap", "neurons": "neurons",
         "silencing": "silencing", "robustness": "robustness", "perplexity of mixtures": "mixture_nll",
         "tasks of mixtures": "mixture_items"}
PARTS = {"segment_nll": "segments", "mixture_nll": "segments", "robustness": "segments", "mask_swap": "segments",
         "silencing": "segments", "task_items": "items", "mixture_items": "items"}
OF_TEXT = ("pruning", "activation norms")  # take as long as the calibration text is
MEASURED = ["what", "model", "method", "rate"]  # seconds for a weight and a unit
# Where nothing alike was measured, what is most alike goes: another method, another model, any of the same kind.
ALIKE = (("model", "method"), ("method",), ("model",), ())


class Estimate(NamedTuple):
    """`rough`: carried over from another model or method."""

    seconds: float
    rough: bool


def seconds(study: Study, what: str, visit: Visit) -> Estimate:
    """The estimate for a visit and its cells, from the study's own runs on this machine, else from the published ones.
    (0, rough) where nothing of the kind was ever measured."""
    work = _units(what, visit) * _weights(visit.variant.model)
    for run in (study, None):
        measured = _measured(run)
        measured = measured[measured["what"] == what]
        for alike in ALIKE:
            same = measured[(measured[list(alike)] == [getattr(visit.variant, a) for a in alike]).all(axis=1)]
            if len(same):
                return Estimate(float(same["rate"].median()) * work, len(alike) < 2)
    return Estimate(0.0, True)


@cache
def _measured(study: Study | None) -> pd.DataFrame:
    """Visits that the study's own runs timed, None: the published one: columns MEASURED."""
    read = partial(store.own, study) if study else store.published
    times = read("timings")
    if times.empty:
        return pd.DataFrame(columns=MEASURED)
    rows = []
    for what, found in times.groupby("what"):
        table = read(TABLE[what])
        if table.empty:  # its parts were taken away, or were damaged
            continue
        keys = list(variants_of(what, table))
        units = table.groupby(keys).agg(rows=("cell", "size"), cells=("cell", "nunique")).reset_index()
        both = found.merge(units, on=keys, suffixes=("", "_units"))
        count = both["rows" if TABLE[what] in PARTS else "cells"]
        if what in OF_TEXT:
            count = count * (both["n_samples"] * both["seqlen"]).clip(lower=1)
        both["rate"] = both["seconds"] / count / both["model"].map(_weights).astype(float)
        rows.append(both[MEASURED])
    return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=MEASURED)


def variants_of(what: str, table: pd.DataFrame) -> pd.DataFrame:
    """The variants, one a row, of the visits that filled the table."""
    fields = ["model"] if what == "masks" else list(Variant.__dataclass_fields__)  # pairs are of no one variant
    return table[fields].drop_duplicates()


def _units(what: str, visit: Visit) -> float:
    cells = (visit.cells[TABLE[what]] or next(filter(None, visit.cells.values()))).values()  # that one may be there
    count = sum(extra.get(PARTS[TABLE[what]], 1) for extra in cells) if TABLE[what] in PARTS else len(cells)
    return count * (max(1, visit.variant.n_samples * visit.variant.seqlen) if what in OF_TEXT else 1)


@cache
def _weights(model: str) -> int:
    return sizes.size(model).parameters
