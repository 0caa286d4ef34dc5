"""Numbers in the README are those of the published tables."""

import pytest

from lib.analysis.intervals import best_by_cell
from lib.analysis.perplexity import totals
from lib.paths import ROOT
from lib.run import store

README = (ROOT / "README.md").read_text()
pytestmark = pytest.mark.skipif(store.published("segment_nll").empty, reason="no published tables yet: make publish")


@pytest.fixture(scope="module")
def wanda():
    segments = store.published("segment_nll")
    return segments[segments["method"] == "wanda"]


@pytest.mark.parametrize(("model", "name"), [("gemma-3-270m", "Gemma"), ("smollm2-135m", "SmolLM2")])
def test_how_often_the_target_language_is_best(wanda, model, name):
    cells = best_by_cell(wanda[wanda["model"] == model], ["corpus", "language"])
    assert len(cells) == 14
    sentence = (f"{name}: lowest in {(cells['difference'] < 0).sum()} of 14 columns, shown in "
                f"{(cells['high'] < 0).sum()}, shown not to be in {cells['beaten'].sum()}")
    assert sentence in " ".join(README.split()), sentence


@pytest.mark.parametrize(("model", "name"), [("gemma-3-270m", "Gemma"), ("smollm2-135m", "SmolLM2")])
def test_what_pruning_costs(model, name):
    table, key = store.published("perplexity"), ["corpus", "language"]
    by = ["method", "calibration", *key]
    table = totals(table[table["model"] == model], by)  # seeds pooled, as in the notebook
    dense = table[table["method"] == "dense"].set_index(key)["perplexity"]
    wanda = table[table["method"] == "wanda"].set_index(key)
    ratio = wanda["perplexity"] / dense.reindex(wanda.index)
    own = wanda["calibration"] == wanda.index.get_level_values("language")
    english = wanda["calibration"].eq("en") & ~own
    sentence = (f"{name}: {ratio[own].median():.2f} times the dense perplexity with the target language, "
                f"{ratio[english].median():.2f} with English, {ratio[~own].median():.2f} with any other")
    assert sentence in " ".join(README.split()), sentence


@pytest.mark.parametrize(("notebook", "measured"), [
    ("01_calibration", ["calibration text", "activation norms"]), ("02_pruning", ["pruning"]),
    ("03_perplexity", ["perplexity"])])
def test_minutes_of_the_published_run(notebook, measured):
    timings = store.published("timings")
    minutes = timings.loc[timings["what"].isin(measured), "seconds"].sum() / 60
    (row,) = [line for line in README.splitlines() if line.startswith(f"| [{notebook}]")]
    assert row.endswith(f"| {minutes:.0f} |"), f"{minutes:.0f}"
