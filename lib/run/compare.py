"""The reproduction report: a run's own values against the published ones, unit by unit."""

from dataclasses import dataclass

import pandas as pd

from lib.analysis.masks import DRAW
from lib.run import store
from lib.study import Study, Variant


@dataclass(frozen=True)
class Check:
    """Which value of a table must agree, and how closely. `tolerance` is relative; 0 means identical."""

    table: str
    unit: tuple[str, ...]
    value: str
    tolerance: float


# Two machines multiply matrices in a different order, so float32 sums differ in their last digits; a mask may
# then differ in weights that lie at the threshold. Where kept weights make up for removed ones (SparseGPT), one
# such weight changes all that are chosen after it: the masks part ways, the model hardly does. 1e-3 is far below
# any difference the study speaks of.
CHECKS = (
    Check("calibration", (), "tokens", 0),
    Check("pruning", ("layer", "module"), "removed", 0),
    Check("pruning", ("layer", "module"), "mask_digest", 0),
    Check("block_error", ("layer",), "error", 1e-2),
    Check("norm_similarity", ("language", "other", "layer", "module"), "spearman", 1e-2),
    Check("segment_nll", ("corpus", "language", "segment"), "nll", 1e-3),
    Check("task_items", ("task", "language", "item"), "correct", 0),
    Check("layer_error", ("language", "layer", "module", "kind"), "error", 1e-2),
    Check("subspaces", ("language", "layer", "part", "variant", "control"), "error", 1e-2),
    Check("mask_overlap", (*(f"other_{name}" for name in DRAW), "layer", "module"), "jaccard", 1e-2),
    Check("mask_swap", ("other_calibration", "other_seed", "share", "language", "segment"), "nll", 1e-3),
    Check("neurons", ("language", "layer"), "neurons", 0),
    Check("robustness", ("corpus", "language", "segment"), "nll", 1e-3),
    Check("mixture_nll", ("corpus", "language", "segment"), "nll", 1e-3),
    Check("mixture_items", ("task", "language", "item"), "correct", 0),
    Check("silencing", ("silenced", "control", "language", "segment"), "nll", 1e-3),
)


def report(study: Study) -> str:
    """A line a check: how many units of this run stand in the published tables, how many agree."""
    lines = ["reproduction against the published tables:"]
    for check in CHECKS:
        both = _matched(study, check)
        if both.empty:
            lines.append(f"  {check.table}.{check.value}: none of this run's units is published")
        for method, units in both.groupby("method", sort=False) if len(both) else ():
            lines.append(f"  {check.table}.{check.value} ({method}): {_agreement(check, units)}")
    return "\n".join(lines)


def _agreement(check: Check, both: pd.DataFrame) -> str:
    mine, theirs = both[check.value], both[check.value + "_published"]
    if check.tolerance == 0:
        return f"{int((mine == theirs).sum())} of {len(both)} units identical"
    off = (mine - theirs).abs() / theirs.abs()
    return (f"{int((off <= check.tolerance).sum())} of {len(both)} units within {check.tolerance:g}, largest deviation "
            f"{off.max():.2g}")


def _matched(study: Study, check: Check) -> pd.DataFrame:
    """The run's units joined with the published ones of the same variant and unit."""
    mine, theirs = store.own(study, check.table), store.published(check.table)
    on = [*Variant.__dataclass_fields__, *check.unit]
    if mine.empty or theirs.empty or not set(on) <= set(mine):  # parts of an earlier SCHEMA may lack a column
        return pd.DataFrame()
    mine = mine[mine["model"].isin(study.models)]
    return mine.merge(theirs[[*on, check.value]], on=on, suffixes=("", "_published"))
