"""The data dictionary is that of the published tables, and says so when it is not."""

import tomllib

import pandas as pd
import pytest

from lib.errors import InputError
from lib.paths import RESULTS, ROOT
from lib.run import dictionary, measure, store

published = pytest.mark.skipif(store.published("segment_nll").empty, reason="no published tables yet: make publish")


@published
def test_the_committed_file_is_up_to_date():
    assert (RESULTS / "README.md").read_text() == dictionary.text(), "run: python -m lib.run.dictionary"


def test_every_table_is_described():
    meanings = tomllib.loads((ROOT / "lib/run/dictionary.toml").read_text())
    assert set(meanings) == {"common", "timings", *measure.TABLES}
    assert all(meaning for table in meanings.values() for meaning in table.values())


def test_a_column_without_a_description_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "PUBLISHED", tmp_path)
    for name in [*measure.TABLES, "timings"]:
        pd.DataFrame({"cell": ["a"], "surprise": [1]}).to_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(InputError, match="calibration; without a description: .*surprise.*not in the table: .*avail"):
        dictionary.text()
