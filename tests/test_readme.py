"""Numbers in the README are those of the published tables, and its code runs."""

import re
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch

from lib.analysis.comparisons import target_gains
from lib.analysis.intervals import best_by_cell
from lib.analysis.masks import pooled
from lib.analysis.perplexity import silencing_cost, totals
from lib.arms import ASKED, TABLES
from lib.paths import ROOT
from lib.pruning.methods import METHODS
from lib.run import plots, store
from lib.study import Study

README = (ROOT / "README.md").read_text()
NAMES = {"gemma-3-270m": "Gemma", "smollm2-135m": "SmolLM2"}
published = pytest.mark.skipif(store.published("segment_nll").empty, reason="no published tables yet: make publish")


def results() -> list[str]:
    """The README's table of results: a row a model and arm that was calibrated in several languages."""
    segments, by = store.published("segment_nll"), ["model", "arm", "corpus", "language"]
    segments["arm"] = plots.arms(segments)
    table = totals(segments, [*by, "method", "calibration"])
    dense = table[table["method"] == "dense"].set_index(["model", "corpus", "language"])["perplexity"]
    places = pd.MultiIndex.from_frame(table[["model", "corpus", "language"]])
    table["ratio"] = table["perplexity"].to_numpy() / dense.loc[places].to_numpy()
    several = segments.groupby(["model", "arm"])["calibration"].transform("nunique") > 1
    gain = best_by_cell(segments[several], by)
    rows = []
    for model, arm in product(NAMES, plots.ordered(gain["arm"])):
        won = gain[(gain["model"] == model) & (gain["arm"] == arm)]
        costs = table[(table["model"] == model) & (table["arm"] == arm)]
        own, english = costs["calibration"] == costs["language"], costs["calibration"] == "en"
        middle = [costs.loc[c, "ratio"].median() for c in (own, english & ~own, ~english & ~own)]
        counts = [(won["difference"] < 0).sum(), (won["high"] < 0).sum(), won["beaten"].sum()]
        rows.append(f"| {NAMES[model]} | {arm} | " + " | ".join(map(str, counts)) + " | "
                    + " | ".join(f"{m:.2f}" for m in middle) + " |")
    return rows


@published
def test_the_results_are_those_of_the_published_tables():
    rows = results()
    assert len(rows) == 8
    missing = [row for row in rows if row not in README.splitlines()]
    assert not missing, "\n".join(missing)


def gains() -> list[str]:
    """The README's table of tasks."""
    items = store.published("task_items")
    items = items[items["calibration"] != "none"]
    table = target_gains(items.assign(arm=plots.arms(items))).set_index(["model", "arm", "task"])
    rows = []
    for model, arm in product(NAMES, plots.ordered(table.index.unique("arm"))):
        cells = [table.loc[model, arm, task] if (model, arm, task) in table.index else None
                 for task in ("knowledge", "category", "retrieval", "completion")]
        cells = ["" if c is None else f"{c['difference']:+.3f} ({c['low']:+.3f} to {c['high']:+.3f})" for c in cells]
        rows.append(f"| {NAMES[model]} | {arm} | " + " | ".join(cells) + " |")
    return rows


def cleanest() -> str:
    """How often the target language has the highest signal-to-noise ratio."""
    table = store.published("layer_error")
    table = table[~table["module"].isin(["block", "final"]) & (table["calibration"] != "none")]
    means = table.groupby(["model", "method", "kind", "language", "calibration"])["snr_db"].mean().unstack()
    won = means.idxmax(axis=1) == means.index.get_level_values("language")
    return f"{won.sum()} of {len(won)} cases (models, methods, languages; local and propagated)"


def shared(within: bool) -> tuple[list[float], list[float]]:
    """(overlap of masks in percent, by chance), by model, of draws without a segment in common."""
    table = store.published("mask_overlap")
    table = table[(table["budget"] == "rest") != (table["other_budget"] == "rest")]
    table = pooled(table[(table["calibration"] == table["other_calibration"]) == within], ["model"])
    return tuple([round(100 * x) for x in table[c]] for c in ("jaccard", "chance"))


def inside() -> list[str]:
    """What the README says of masks, subspaces and neurons."""
    (same, chance), (other, _) = shared(True), shared(False)
    parts = store.published("subspaces").query("variant == 'centred' and control == 'none'")
    by = ["model", "method", "part"]
    least = (parts[parts["calibration"] == parts["language"]].groupby(by)["error"].mean()
             < parts.groupby(by)["error"].mean())
    silent = store.published("silencing").query("method == 'dense'")
    silent = silencing_cost(silent, ["model"])
    silent["own"] = silent["silenced"] == silent["language"]
    cost = silent.groupby(["control", "own", "model"], sort=False)["change"].mean().round(2)
    own, other_text, random = ([cost[control, mine, model] for model in cost.index.unique("model")]
                               for control, mine in (("specific", True), ("specific", False), ("random", True)))
    return [f"agree on {same[0]} % and {same[1]} % of the weights that either removes, from two languages on "
            f"{other[0]} % and {other[1]} % (by chance {chance[0]} % and {chance[1]} %)",
            f"in {least.sum()} of {len(least)} means",
            f"costs its text {own[0]} and {own[1]} bits per byte, text of other languages {other_text[0]} and "
            f"{other_text[1]}; as many random neurons cost {random[0]} and {random[1]}"]


@published
def test_the_inside_is_that_of_the_published_tables():
    text = " ".join(README.split())
    missing = [words for words in inside() if words not in text]
    assert not missing, "\n".join(missing)


@published
def test_tasks_and_signal_are_those_of_the_published_tables():
    missing = [row for row in gains() if row not in README.splitlines()]
    assert not missing, "\n".join(missing)
    assert f"calibration in {cleanest()}." in " ".join(README.split()), cleanest()


@published
@pytest.mark.parametrize(("notebook", "measured"), [
    ("01_calibration", ["calibration text", "activation norms"]), ("02_pruning", ["pruning"]),
    ("03_perplexity", ["perplexity"]), ("04_downstream", ["tasks"]), ("05_signal_to_noise", ["signal-to-noise"]),
    ("06_subspaces", ["subspaces"]), ("07_masks", ["masks", "mask pairs"]), ("08_neurons", ["neurons", "silencing"]),
    ("09_robustness", ["robustness", "perplexity of mixtures", "tasks of mixtures"]), ("10_claims", [])])
def test_minutes_of_the_published_run(notebook, measured):
    timings = store.published("timings")
    minutes = timings.loc[timings["what"].isin(measured), "seconds"].sum() / 60
    (row,) = [line for line in README.splitlines() if line.startswith(f"| [{notebook}]")]
    assert row.endswith(f"| {minutes:.0f} |"), f"{minutes:.0f}"


def test_how_much_the_default_run_is_of_the_published_one():
    studies = [Study.load(profile) for profile in ("default", "published")]
    mine, all_of_it = (len({v for table in TABLES + ASKED for v in study.variants(table)}) for study in studies)
    assert f"computes {mine} of its {all_of_it} pruned or dense models" in README


def test_a_method_is_added_as_the_readme_says():
    (code,) = re.findall(r"```python\n(.*?)```", README, re.S)
    for real, small in (("gemma-3-270m", "tiny-llama"), ('"chromium"', '"data/quick/home"'), ('"de": 64', '"de": 4'),
                        ("seqlen=256", "seqlen=64")):
        assert real in code
        code = code.replace(real, small)
    given: dict = {}
    try:
        exec(code, given)
    finally:
        METHODS.pop("squared")
    mask = given["pruned"].masks["model.layers.0.self_attn.q_proj"]
    X = torch.cat(given["model"].model.layers[0].input_layernorm(given["model"].model.embed_tokens(
        given["windows"])).split(1)).flatten(0, 1)
    score = given["model"].model.layers[0].self_attn.q_proj.weight.abs() * X.square().sum(0)
    expected = np.sort(score.numpy(), axis=1)[:, 32:]
    assert np.allclose(np.sort(score.masked_fill(~mask, 0).numpy(), axis=1)[:, 32:], expected, rtol=1e-5)
