"""Numbers in the README are those of the published tables, and its code runs."""

import re

import numpy as np
import pytest
import torch

from lib.errors import InputError
from lib.pruning.methods import METHODS
from lib.run import readme, store

README = readme.README.read_text()
published = pytest.mark.skipif(store.published("segment_nll").empty, reason="no published tables yet: make publish")


@published
def test_the_numbers_are_those_of_the_published_tables():
    assert readme.filled(README) == README, "python -m lib.run.readme writes them"


@published
def test_the_first_row_of_results_is_what_the_table_says():
    """From sums of the table, without the functions that the README is made with."""
    rows = store.published("segment_nll").query("model == 'gemma-3-270m' and sparsity in [0, 0.5]")
    rows = rows[rows["method"].isin(["dense", "wanda"]) & (rows["pattern"].isin(["none", "unstructured"]))]
    sums = rows.groupby(["corpus", "language", "calibration", "seed"])[["nll", "tokens"]].sum()
    perplexity = np.exp(sums["nll"] / sums["tokens"]).groupby(["corpus", "language", "calibration"]).mean()
    ratios = perplexity.unstack("calibration").pipe(lambda t: t.div(t["none"], axis=0)).drop(columns="none")
    own = [ratios.loc[place, place[1]] for place in ratios.index]
    lowest = sum(ratios.loc[place].idxmin() == place[1] for place in ratios.index)
    (row,) = re.findall(r"\| Gemma \| Wanda \| (\d+) \| \d+ \| \d+ \| ([\d.]+) \|", README)
    assert int(row[0]) == lowest and float(row[1]) == pytest.approx(np.median(own), abs=0.05)


def test_a_place_that_is_missing_or_unknown_is_named():
    with pytest.raises(InputError, match="lacks a place for .'masks'."):
        readme.filled(README.replace("<!-- masks -->", ""))
    with pytest.raises(InputError, match="one for .'maskz'., which is unknown"):
        readme.filled(README + "<!-- maskz --><!-- / -->")


def test_a_method_is_added_as_the_readme_says():
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", README, re.S) if "METHODS" in block]
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
