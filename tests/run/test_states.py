"""A model in a state: as it was before and after, and read the same way whatever state it is in."""

from pathlib import Path

import numpy as np
import pytest
import torch

from lib.analysis import likelihood
from lib.errors import InputError
from lib.run import measure, states
from lib.study import Study

TEXTS = ["The window is open.", "Close it, please, before the rain comes in."]


pytestmark = pytest.mark.usefixtures("own_cache")


def nll(model, tokenizer) -> np.ndarray:
    return likelihood.segment_nll(model, tokenizer, ["a", "b"], TEXTS)["nll"].to_numpy()


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-gemma3"])
def test_texts_are_read_with_plain_attention_and_windows_are_not(name):
    study = Study.load("quick", models=name, methods="wanda", seeds="0")
    model, tokenizer = states.loaded(name, study.dtype)
    usual, before = model.config._attn_implementation, nll(model, tokenizer)
    dense, pruned = [v for v in study.variants("perplexity") if v.calibration in ("none", "de")]
    with states.entered(study, dense):
        assert model.config._attn_implementation == "eager" != usual
        assert np.allclose(nll(model, tokenizer), before, rtol=1e-5), "another order of the same sums"
    with pytest.raises(ZeroDivisionError), states.entered(study, pruned):
        assert not np.allclose(nll(model, tokenizer), before, rtol=1e-3)
        raise ZeroDivisionError
    assert model.config._attn_implementation == usual and (nll(model, tokenizer) == before).all()


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-gemma3"])
def test_the_dense_copy_beside_a_pruned_model_computes_what_the_dense_model_does(name):
    from lib.analysis import snr

    study = Study.load("quick", models=name, methods="wanda", seeds="0")
    dense = states.dense(name, study.dtype)
    with states.entered(study, study.dense(name)) as (model, tokenizer), snr.measuring(dense, model, 1) as errors:
        for _, ids, real in likelihood.padded(model, tokenizer, ["a", "b"], TEXTS):
            with torch.inference_mode():
                model.base_model(input_ids=ids, attention_mask=real, use_cache=False)
    assert errors.rows() == [] and all(row["error"] == 0 for row in errors._rows())


def test_text_too_short_for_any_draw_of_the_grid_is_refused_where_text_is_drawn(tmp_path):
    for language, word in (("de", "Haus"), ("en", "house")):
        Path(tmp_path, f"{language}.txt").write_text("".join(f"{word} {k} " + word * 20 + "\n" for k in range(60)))
    settings = {"models": "tiny-llama", "languages": "de,en", "calibration_corpus": str(tmp_path)}
    enough = Study.load("quick", **settings, windows=8, seqlen=64)
    found = measure.calibration(enough)
    assert set(found["budget"]) == {"tokens", "rest"} and set(found["n_samples"]) == {4, 8}
    assert {"de+en"} <= set(found["calibration"]) and (found["windows"] == found["n_samples"]).all()
    available = found[found["calibration"].isin(["de", "en"]) & (found["budget"] == "tokens")]["available"].min()
    with pytest.raises(InputError, match="(?s)budget rest: .* windows of 64 tokens .*fewer `windows`, methods"):
        measure.calibration(Study.load("quick", **settings, seqlen=64, windows=available, methods="wanda windows=100%,"
                                       "wanda budget=rest tables=masks"))
