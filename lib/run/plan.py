"""What a run will compute, and what it will need, before anything starts: `python -m lib.reproduce --plan`."""

import shutil
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import pandas as pd

from lib.errors import InputError
from lib.inputs import models, sizes
from lib.inputs.checkpoints import KNOWN
from lib.paths import CACHE
from lib.pruning.methods import METHODS
from lib.run import measure, memory, progress, rates, states, store
from lib.run.store import Visit
from lib.study import Study, Variant

# What each notebook computes; 10 reads the others' tables.
NOTEBOOKS = {"01": (measure.calibration, measure.norm_similarity), "02": (measure.pruning,),
             "03": (measure.segment_nll,), "04": (measure.task_items,), "05": (measure.layer_error,),
             "06": (measure.subspaces,), "07": (measure.mask_overlap, measure.mask_pairs),
             "08": (measure.neurons, measure.silencing),
             "09": (measure.robustness, measure.mixture_nll, measure.mixture_items)}
GB = 1e9
PROGRAM = 0.6 * GB  # python with torch and transformers, before a model is loaded
CELL = 6000  # bytes of a cell in a part: their mean in the published profile's own run
NOTEBOOK = 3e6  # bytes of an executed notebook and its figures, there too


class Plan(NamedTuple):
    """`work`: one row a notebook and kind of visit: notebook, what, visits, cells, seconds, rough (seconds that are
    carried over from another model or method). Bytes: `disk` by what takes them, `free`; `memory` at the most, for
    `largest`, and what the machine has, `there`."""

    work: pd.DataFrame
    disk: dict[str, float]
    free: float
    memory: float
    largest: str
    there: float


def plan(study: Study, fresh: bool, only: str | None = None) -> Plan:
    """The plan of a run of the notebooks whose numbers begin with `only` (all: None). Nothing is computed; where the
    study's answers decide what is asked next (04), as if everything were asked."""
    rows, pending = [], []
    for number, functions in NOTEBOOKS.items():
        if number.startswith((only or "")[:2]):
            with store.planning() as planned:
                for function in functions:
                    function(study, fresh)
            anew = [(what, visit) for what, visit in planned if (what, visit) not in pending]
            pending += anew
            rows += _rows(study, number, anew)
    work = pd.DataFrame(rows, columns=["notebook", "what", "visits", "cells", "seconds", "rough"])
    variants = list(dict.fromkeys(visit.variant for _, visit in pending))
    disk = {"masks": float(sum(_mask_bytes(study, v) for v in variants)), "tables": float(work["cells"].sum() * CELL),
            "figures": float(work["notebook"].nunique() * NOTEBOOK),
            "models": float(sum(_model_bytes(name) for name in study.models)),
            "hidden states": float(max(map(_states_bytes, variants), default=0))}
    needed, largest = max(((_memory(what, visit.variant), f"{what} of {visit.label}") for what, visit in pending),
                          default=(0, ""))
    return Plan(work, disk, shutil.disk_usage(_there(CACHE)).free, needed, largest, memory.there())


def text(made: Plan) -> str:
    """The plan for a person."""
    lines = [f"{'notebook':10}{'what':26}{'visits':>8}{'cells':>8}  time"]
    for row in made.work.itertuples():
        about = "" if not row.rough else " (rough)" if row.rough == row.seconds else " (in part rough)"
        time = f"{progress.minutes(row.seconds)}{about}" if row.seconds else "not known"
        lines.append(f"{row.notebook:10}{row.what:26}{row.visits:8}{row.cells:8}  {time}")
    seconds, rough = made.work["seconds"].sum(), made.work["rough"].sum()
    lines.append(f"time    {progress.minutes(seconds)} in one process, extrapolated from cells that were measured"
                 + (f"; {progress.minutes(rough)} of it from other models or methods, so roughly" if rough else ""))
    lines.append(f"memory  {made.memory / GB:.1f} GB at the most ({made.largest}); there are {made.there / GB:.1f}"
                 if made.largest else "memory  nothing is to be computed")
    lines.append(f"disk    {sum(made.disk.values()) / GB:.2f} GB ("
                 + ", ".join(f"{what} {size / GB:.2f}" for what, size in made.disk.items())
                 + f"); {made.free / GB:.1f} GB are free in {CACHE}")
    return "\n".join(lines)


def refuse_if_too_large(made: Plan) -> None:
    """Raise InputError when the disk cannot hold what the run will write."""
    needed = sum(made.disk.values())
    if needed > made.free:
        raise InputError(f"this run writes about {needed / GB:.2f} GB into {CACHE}, and {made.free / GB:.2f} GB are "
                         "free there; free some, let COMPENDIUM_OUTPUT name a folder on a larger disk, or compute less "
                         "(--plan shows what takes how much)")


def _rows(study: Study, number: str, planned: Sequence[tuple[str, Visit]]) -> list[tuple]:
    rows = []
    for what in dict.fromkeys(what for what, _ in planned):
        visits = [visit for name, visit in planned if name == what]
        found = [rates.seconds(study, what, visit) for visit in visits]
        cells = sum(len(cells) for visit in visits for cells in visit.cells.values())
        rows.append((number, what, len(visits), cells, sum(s for s, _ in found), sum(s for s, rough in found if rough)))
    return rows


def _mask_bytes(study: Study, variant: Variant) -> float:
    """A bit a weight, and the kept weights where the method changes them; 0 where the file is there."""
    if variant.method == "dense" or states.mask_file(study, variant).exists():
        return 0
    linear = _size(variant.model).linear
    kept = linear * (1 - variant.sparsity) * _width(variant) if METHODS[variant.method].compensates else 0
    return linear / 8 + kept


def _states_bytes(variant: Variant) -> float:
    """Hidden states that pruning a streamed model keeps in files: a block's inputs, dense outputs and outputs."""
    if variant.method == "dense" or not states.streamed(variant.model, variant.dtype):
        return 0
    return 3 * variant.n_samples * variant.seqlen * _size(variant.model).hidden * _width(variant)


def _model_bytes(name: str) -> float:
    """What fetching or converting a model will take; 0 where it is there, or not to be copied."""
    if models.is_there(name):
        return 0
    return _size(name).parameters * (5 if name in KNOWN else 2)  # 4-bit file and float32, or bfloat16


def _memory(what: str, variant: Variant) -> float:
    """Bytes at the most: the model, the dense weights kept beside a pruned model's, and what the measurement holds; of
    a streamed model three blocks, one of masks, and what may be held in memory between blocks."""
    size, width = _size(variant.model), _width(variant)
    if states.streamed(variant.model, variant.dtype):
        from lib.pruning import lockstep, resumable

        return (PROGRAM + (size.parameters - size.linear) * width + size.block * (3 * width + 1)
                + max(lockstep.BUDGET, resumable.BUDGET))
    tokens = variant.n_samples * variant.seqlen
    pruning = 2 * tokens * size.hidden * width + size.block * width + size.linear
    if variant.method in METHODS and METHODS[variant.method].compensates:
        pruning += 36 * size.widest ** 2  # the Gram matrix and its factors
        pruning += size.linear * (1 - variant.sparsity) * width  # the kept weights
    reading = size.linear * (width * (2 if what == "signal-to-noise" else 1) + 1)
    return PROGRAM + size.parameters * width + (0 if variant.method == "dense" else max(pruning, reading))


def _width(variant: Variant) -> int:
    return 2 if variant.dtype in ("bfloat16", "float16") else 4


@cache
def _size(name: str) -> sizes.Size:
    return sizes.size(name)


def _there(path):
    """The path, or the first folder above it that exists."""
    return path if path.exists() else _there(path.parent)
