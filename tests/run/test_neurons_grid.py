"""Neurons in the grid: counted on text that no mask was made with, and silenced as they were found."""

import numpy as np
import pytest

from lib.analysis import neurons as analysis
from lib.run import measure, states
from lib.run.measure import firing
from lib.study import Study

SETTINGS = {"models": "tiny-gemma3", "seeds": "0", "calibrations": "de,en", "methods":
            "wanda,wanda sparsity=0.2 tables=neurons,wanda calibrations=en tables=silencing"}


pytestmark = pytest.mark.usefixtures("own_cache")


def test_every_variant_has_every_language_and_layer():
    study = Study.load("quick", **SETTINGS)
    tables = firing.neurons(study)
    table = tables["neurons"]
    assert set(table.groupby("cell").size()) == {3 * 4} and table["cell"].nunique() == 1 + 4
    dense = table[table["method"] == "dense"]
    assert (dense["neurons"] == dense["kept"]).all() and (dense["lape_shift"].dropna() == 0).all()
    assert set(table["sparsity"]) == {0.0, 0.2, 0.5}
    found = analysis.specific(firing._dense(study, "tiny-gemma3").p)
    counts = dense.set_index(["language", "layer"])["neurons"]
    for k, language in enumerate(study.languages):
        assert counts.loc[language].tolist() == found[k].sum(axis=1).tolist()
    assert set(tables["neuron_halves"]["source"]) == {"text", "noise"}
    assert "dense" not in set(tables["neuron_shift"]["method"]) | set(tables["neuron_pruned"]["method"])


def test_firing_is_that_of_the_text_held_out():
    """Against a plain loop over windows, with hooks of its own."""
    from lib.inputs.calibration import windows

    study = Study.load("quick", **SETTINGS)
    model, tokenizer = states.loaded("tiny-gemma3", study.dtype)
    fired = firing._dense(study, "tiny-gemma3")
    pools = [states.pool(study.evaluation_corpora[0], x, "evaluation") for x in study.languages]
    number = min(windows(p, tokenizer, 1, firing.SEQLEN, 0).available for p in pools) // 2 * 2
    seen = []
    handle = model.model.layers[1].mlp.gate_proj.register_forward_hook(lambda _, __, out: seen.append(out[:, 1:]))
    for ids in windows(pools[2], tokenizer, number, firing.SEQLEN, 0).ids:
        model(input_ids=ids[None], use_cache=False)
    handle.remove()
    share = np.mean([(out > 0).double().mean(dim=(0, 1)).numpy() for out in seen], axis=0)
    assert np.allclose(fired.p[2, 1], share, atol=2e-3)  # a gate near 0 may round to the other side


def test_silencing_nothing_is_the_model_itself():
    study = Study.load("quick", **SETTINGS)
    silent, text = firing.silencing(study), measure.segment_nll(study)
    assert set(silent["method"]) == {"dense", "wanda"} and set(silent["control"]) == {"none", "specific", "random"}
    key = ["method", "calibration", "language", "segment"]
    text = text[(text["corpus"] == study.evaluation_corpora[0]) & text["calibration"].isin(["none", "en"])]
    both = silent[silent["control"] == "none"].merge(text, on=key)
    assert len(both) == 2 * 3 * study.segments and np.allclose(both["nll_x"], both["nll_y"], rtol=1e-6)
    assert not np.allclose(silent.loc[silent["control"] == "specific", "nll"].iloc[:16],
                           silent.loc[silent["control"] == "random", "nll"].iloc[:16])
