"""A model in a state: as it was before and after, and read the same way whatever state it is in."""

import numpy as np
import pytest
import torch

from lib.analysis import likelihood
from lib.run import states
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
