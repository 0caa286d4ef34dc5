"""Result tables: only missing cells are computed, what is computed is never lost.

A table is a set of cells. Each row carries `cell`, the hash of everything its value depends on. A run
writes one *part* (a parquet file) a visit under data/cache/runs/<profile>/<table>/; the published tables
are single files under data/results/published/.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from lib.errors import InputError
from lib.paths import CACHE, RESULTS
from lib.run import cluster, parts, progress
from lib.study import Study, Variant

# Raised by hand when the meaning of a table's values changes: cells computed before then no longer count.
SCHEMA = dict.fromkeys(("calibration", "norm_similarity", "pruning", "block_error", "segment_nll", "task_items",
                        "layer_error", "subspaces", "retrieval", "identification", "mask_overlap", "mask_changes",
                        "mask_swap", "neurons", "neuron_shift", "neuron_pruned", "neuron_halves", "silencing",
                        "robustness", "mixture_nll", "mixture_items", "timings"), 1) | {"mask_overlap": 2}
PUBLISHED = RESULTS / "published"
_planned: list | None = None  # see `planning`


@dataclass(frozen=True)
class Visit:
    """One loading of one model in one state, and the cells of each table that it can fill:
    `cells[table][cell]` holds what the cell needs beyond the variant."""

    variant: Variant
    cells: dict[str, dict[str, dict]]

    def without(self, have: dict[str, set[str]]) -> "Visit":
        """The visit with the cells that are not in `have`, by table."""
        return Visit(self.variant, {table: {c: extra for c, extra in cells.items() if c not in have[table]}
                                    for table, cells in self.cells.items()})

    @property
    def label(self) -> str:
        return self.variant.label


Compute = Callable[[Visit, dict[str, dict[str, dict]]], Iterator[tuple[str, pd.DataFrame]]]


def collect(study: Study, what: str, visits: Sequence[Visit], compute: Compute, fresh: bool
            ) -> dict[str, pd.DataFrame]:
    """Every table the visits fill, complete. `compute(visit, missing)` yields (table, rows) for the cells of
    the visit that are missing, and is called only where one is, by the workers of a cluster where there is one
    (lib.run.cluster); its rows are written as they come.

    Raises InputError when something is missing and this process may only redraw.
    """
    tables = list(visits[0].cells)
    cells = {table: [cell for visit in visits for cell in visit.cells[table]] for table in tables}
    have = {table: set(done(study, table, cells[table], fresh)["cell"].unique()) for table in tables}
    pending = [v for v in (visit.without(have) for visit in visits) if any(v.cells.values())]
    if _planned is not None:
        _planned.extend((what, visit) for visit in pending)
        pending = []
    if pending and redraw_only():
        raise InputError(f"{len(pending)} of {len(visits)} visits of {what} are not in the published tables, and "
                         "redrawing computes nothing; run `make figures` or `make publish` first")
    run = partial(_run, study, what, compute)
    progress.report(what, cluster.each(run, pending) if cluster.address() else map(run, pending), len(pending))
    return {table: done(study, table, cells[table], fresh) for table in tables}


def _run(study: Study, what: str, compute: Compute, visit: Visit) -> Visit:
    start = time.monotonic()
    for table, frame in compute(visit, visit.cells):
        write(study, table, frame)
    _time(study, what, visit.variant, time.monotonic() - start)
    return visit


@contextmanager
def planning() -> Iterator[list[tuple[str, Visit]]]:
    """While open, nothing is computed: (what, visit with the cells that are missing) of every visit that would be is
    added to the list, and tables hold what is there."""
    global _planned
    _planned = planned = []
    try:
        yield planned
    finally:
        _planned = None


def _time(study: Study, what: str, variant: Variant, seconds: float) -> None:
    """Keep how long a visit took; one that fills in what an earlier one left adds to its time."""
    cell = key("timings", {"what": what} | vars(variant))
    before = parts.read(run_folder(study) / "timings", [cell])
    if len(before):
        seconds += before["seconds"].sum()
    write(study, "timings", pd.DataFrame([{"cell": cell} | vars(variant) | {"what": what, "seconds": seconds}]))


def key(table: str, inputs: dict) -> str:
    """The cell's name: 16 hex digits over the table, its SCHEMA and the inputs (any JSON values)."""
    text = json.dumps([table, SCHEMA[table], inputs], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def run_folder(study: Study) -> Path:
    """Where this profile's own run keeps its parts and masks."""
    return CACHE / "runs" / study.profile


def write(study: Study, table: str, frame: pd.DataFrame) -> None:
    """Add the frame's cells to the run."""
    parts.write(run_folder(study) / table, frame)


def own(study: Study, table: str) -> pd.DataFrame:
    """All cells of this profile's own run."""
    return parts.read(run_folder(study) / table)


def published(table: str) -> pd.DataFrame:
    """The committed table, without rows when there is none."""
    path = PUBLISHED / f"{table}.parquet"
    return parts.read_file(path) if path.is_file() else pd.DataFrame({"cell": []})


def done(study: Study, table: str, cells: Iterable[str], fresh: bool) -> pd.DataFrame:
    """The rows of those `cells` that are computed, in the order of `cells`. Published cells count as
    computed unless `fresh`; a cell of the own run goes before them."""
    order = dict.fromkeys(cells)
    frames = [own(study, table)] if redraw_only() is False else []
    if not fresh:
        frames.append(published(table))
    rows, seen = [], set()
    for frame in frames:
        frame = frame[frame["cell"].isin(order.keys() - seen)]
        seen |= set(frame["cell"].unique())
        rows.append(frame)
    rows = [frame for frame in rows if len(frame)]
    if not rows:
        return pd.DataFrame({"cell": []})
    table = pd.concat(rows, ignore_index=True)
    return table.sort_values("cell", key=pd.Index(list(order)).get_indexer, kind="stable", ignore_index=True)


def redraw_only() -> bool:
    """Whether this process may only draw from the published tables (set by `python -m lib.reproduce --redraw`)."""
    return os.environ.get("COMPENDIUM_REDRAW") == "1"
