"""Settings have the name of the one choice in which they differ."""

import pandas as pd
import pytest

from lib.run import settings
from lib.study import Study


def test_every_setting_of_the_published_grid_has_a_name_of_its_own():
    study = Study.load("published")
    grid = pd.DataFrame([vars(v) for v in study.variants("robustness")])
    grid = grid[grid["method"] != "dense"]
    named = settings.named(grid, study)
    assert len(named) == len(grid)
    assert (named.groupby("setting")["calibration"].agg(["size", "nunique"]) == 4).all(axis=None)
    names = named.drop_duplicates("setting").set_index("setting")["factor"]
    assert names.iloc[0] == settings.MAIN and names["scratch, 5 windows"] == "text" and names["draw 42"] == "draw"
    assert names["256 windows of 64"] == "window length" and names["4:8 pattern"] == "pattern"
    assert names["10% removed"] == "sparsity" and names["same segments"] == "budget" and names["SparseGPT"] == "method"
    assert set(names) == {settings.MAIN, *settings.FACTORS.values()}


@pytest.mark.parametrize(("calibration", "language", "kind"), [
    ("de", "de", "target"), ("en", "en", "target"), ("en", "de", "English"), ("sw", "de", ""), ("de+en", "de",
    "with English"), ("de+en", "sw", ""), ("de+en", "en", ""), ("all", "de", "all languages"),
    ("3en+de", "sw", "training mix")])
def test_kinds_of_calibration(calibration, language, kind):
    assert settings.kind(calibration, language) == kind and kind in (*settings.KINDS, "")
