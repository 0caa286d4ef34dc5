"""Subspaces and masks in the grid: the tables say what the analyses say of the same models."""

import numpy as np
import pytest
import torch

from lib.analysis.likelihood import segment_nll
from lib.analysis.masks import DRAW
from lib.pruning.driver import applied
from lib.run import states
from lib.run.measure import embedded, masks
from lib.study import Study

SETTINGS = {"models": "tiny-llama", "methods": "wanda,sparsegpt seeds=0"}


pytestmark = pytest.mark.usefixtures("own_cache")


def test_subspaces_have_every_language_layer_part_and_control():
    study = Study.load("quick", **SETTINGS, seeds="0", calibrations="de,sw")
    tables = embedded.subspaces(study)
    parts = tables["subspaces"]
    assert parts["cell"].nunique() == 4 and set(parts["method"]) == {"wanda", "sparsegpt"}
    sizes = parts.groupby(["cell", "variant", "control"]).size()
    assert set(sizes) == {3 * 4 * 2}, "languages x layers x parts"
    assert set(parts.loc[parts["control"] != "none", "variant"]) == {"centred"}
    assert set(tables["retrieval"]["method"]) == set(tables["identification"]["method"]) == {"dense", *parts["method"]}
    shares = parts[parts["control"] == "none"].groupby(["cell", "language", "layer", "variant"])["share"].sum()
    assert np.allclose(shares, 1, atol=1e-5)


def test_sentences_are_those_that_all_languages_have_in_one_order():
    study = Study.load("quick", **SETTINGS)
    texts, _ = states._sentences(study)
    pools = [states.pool("data/quick/home", language, "parallel") for language in study.languages]
    first = set.intersection(*(set(pool["id"]) for pool in pools))
    assert len({len(found) for found in texts}) == 1 and len(texts[0]) > len(first)
    for found, pool in zip(texts, pools, strict=True):
        by_id = dict(zip(pool["id"], pool["text"], strict=True))
        assert found[:len(first)] == [by_id[key] for key in pools[0]["id"] if key in first]


def test_overlap_is_that_of_the_masks():
    study = Study.load("quick", **SETTINGS, calibrations="de,en")
    table = masks.mask_overlap(study)
    draw = list(DRAW)
    pairs = table[[*draw, *(f"other_{column}" for column in draw)]].drop_duplicates()
    assert len(pairs) == 6 + 1 + 2, "four masks of Wanda, two of SparseGPT, and both methods on two draws"
    kept = {(v.method, v.calibration, v.budget, v.seed): states.pruned(study, v)[0].masks
             for v in study.variants("masks") if v.method != "dense"}
    dense = states.loaded("tiny-llama", study.dtype)[0]
    for row in table.sample(20, random_state=0).itertuples():
        layer = f"model.layers.{row.layer}.{row.module}"
        weights = dense.get_submodule(layer).weight != 0
        one, other = (~kept[key][layer] & weights for key in (
            (row.method, row.calibration, row.budget, row.seed),
            (row.other_method, row.other_calibration, row.other_budget, row.other_seed)))
        assert row.jaccard == pytest.approx(int((one & other).sum()) / int((one | other).sum()), rel=1e-6)


def test_masks_of_other_windows_are_compared_among_themselves():
    arms = "wanda,wanda windows=4 seeds=0,wanda windows=4 seeds=0 budget=rest"
    study = Study.load("quick", models="tiny-llama", methods=arms, seeds="0", calibrations="de,en")
    table = masks.mask_overlap(study)
    assert table.groupby("n_samples").apply(lambda t: len(t[[*DRAW, *(f"other_{name}" for name in DRAW)]]
                                                          .drop_duplicates())).to_dict() == {8: 1, 4: 6}
    assert table["cell"].nunique() == 2


def test_a_swapped_mask_lies_between_the_two():
    study = Study.load("quick", **SETTINGS, calibrations="de,en")
    tables = masks.mask_pairs(study)
    swap, changes = tables["mask_swap"], tables["mask_changes"]
    english = swap[swap["other_calibration"] == "en"]
    assert set(english["share"]) == {0.25, 0.5, 0.75} and set(english["language"]) == {"de", "en"}
    assert set(swap.loc[swap["other_calibration"] == "de", "other_seed"]) == {42}
    assert set(changes["module"]) == {f"self_attn.{p}_proj" for p in "qkvo"} | {"mlp.gate_proj", "mlp.up_proj",
                                                                               "mlp.down_proj"}
    assert np.allclose(changes[changes["by"] == "magnitude"].groupby("module")["share"].sum(), 1)
    (variant,) = [v for v in study.variants("masks") if (v.method, v.calibration, v.seed) == ("wanda", "de", 0)]
    model, tokenizer = states.loaded("tiny-llama", study.dtype)
    data = states.pool(study.evaluation_corpora[0], "de", "evaluation").select(range(study.segments))
    with applied(model, states.pruned(study, variant)[0]), torch.no_grad():
        own = segment_nll(model, tokenizer, data["id"], data["text"])
    assert not np.allclose(own["nll"], english[(english["share"] == 0.25) & (english["language"] == "de")]["nll"])


def test_without_pairs_the_tables_are_empty():
    study = Study.load("quick", models="tiny-llama", methods="sparsegpt", seeds="0", calibrations="de")
    assert masks.mask_overlap(study).empty
    assert all(frame.empty for frame in masks.mask_pairs(study).values())
