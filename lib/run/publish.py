"""Write a finished run of the `published` profile into the committed tables, their dictionary and the README."""

import pandas as pd

from lib.paths import RESULTS
from lib.run import dictionary, measure, parts, rates, readme, store
from lib.study import Study


def publish(study: Study, fresh: bool) -> None:
    """Replace each published table by the study's cells: those of the run, and those published before
    that the run took as computed. `timings` holds what was measured last for each visit of these."""
    for name, table in measure.TABLES.items():
        parts.write_file(table(study, fresh), store.PUBLISHED / f"{name}.parquet")
    parts.write_file(_timings(study), store.PUBLISHED / "timings.parquet")
    (RESULTS / "README.md").write_text(dictionary.text())
    readme.README.write_text(readme.filled(readme.README.read_text()))


def _timings(study: Study) -> pd.DataFrame:
    own, earlier = store.own(study, "timings"), store.published("timings")
    earlier = earlier[~earlier["cell"].isin(own["cell"])]
    frame = own if earlier.empty else earlier if own.empty else pd.concat([earlier, own])
    kept = [rows.merge(rates.variants_of(what, store.published(rates.TABLE[what])))
            for what, rows in frame.groupby("what")]
    return pd.concat(kept).sort_values("cell", ignore_index=True)
