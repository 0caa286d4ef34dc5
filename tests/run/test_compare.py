import pandas as pd
import pytest

from lib.run import compare, parts, store
from lib.study import Study, Variant


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(store, "PUBLISHED", tmp_path / "published")
    return Study.load("quick")


def rows(study, nll, segments=3):
    """segment_nll of one variant; cells differ with the number of segments, as they do between profiles."""
    variant = vars(study.variants("perplexity")[0])
    return pd.DataFrame([{"cell": f"c{segments}"} | variant | {"corpus": "x", "language": "de", "segment": k,
                          "nll": nll + k}
                         for k in range(segments)])


def test_units_are_compared_though_the_cells_differ(study):
    parts.write_file(rows(study, 10.0, 5), store.PUBLISHED / "segment_nll.parquet")
    store.write(study, "segment_nll", rows(study, 10.0, 3))
    assert "segment_nll.nll (dense): 3 of 3 units within 0.001, largest deviation 0\n" in compare.report(study) + "\n"


def test_a_deviation_beyond_tolerance_is_counted(study):
    parts.write_file(rows(study, 10.0), store.PUBLISHED / "segment_nll.parquet")
    changed = rows(study, 10.0)
    changed.loc[1, "nll"] *= 1.01
    store.write(study, "segment_nll", changed)
    assert "segment_nll.nll (dense): 2 of 3 units within 0.001, largest deviation 0.01" in compare.report(study)


def test_what_is_not_published_is_said(study):
    assert "segment_nll.nll: none of this run's units is published" in compare.report(study)


@pytest.mark.parametrize("check", compare.CHECKS, ids=lambda check: f"{check.table}.{check.value}")
def test_a_unit_stands_once_in_the_published_table(check):
    table = store.published(check.table)
    assert not table.duplicated([*Variant.__dataclass_fields__, *check.unit]).any()
