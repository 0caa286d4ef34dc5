"""Write a finished run of the `published` profile into the committed tables, and their dictionary."""

import pandas as pd

from lib.paths import RESULTS
from lib.run import dictionary, measure, parts, store
from lib.study import Study


def publish(study: Study, fresh: bool) -> None:
    """Replace each published table by the study's cells: those of the run, and those published before
    that the run took as computed. `timings` holds what was measured last for each visit."""
    for name, table in measure.TABLES.items():
        parts.write_file(table(study, fresh), store.PUBLISHED / f"{name}.parquet")
    own = store.own(study, "timings")
    earlier = store.published("timings")
    earlier = earlier[~earlier["cell"].isin(own["cell"])]
    frame = own if earlier.empty else earlier if own.empty else pd.concat([earlier, own])
    parts.write_file(frame.sort_values("cell", ignore_index=True), store.PUBLISHED / "timings.parquet")
    (RESULTS / "README.md").write_text(dictionary.text())
