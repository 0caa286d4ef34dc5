"""A pruned model goes out as an ordinary checkpoint and comes back, by its zeros, as the same variant."""

import json

import pandas as pd
import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from lib import export
from lib.pruning.driver import applied
from lib.run import measure, states, store
from lib.study import Study

SETTINGS = {"models": "tiny-gemma3", "calibrations": "de", "seeds": "0"}
IDS = torch.arange(2 * 40).reshape(2, 40)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "CACHE", tmp_path / "cache")
    states.loaded.cache_clear()
    states._start.cache_clear()


def words(out, *methods: str, **settings: str) -> list[str]:
    pairs = SETTINGS | settings | {"methods": ",".join(methods)}
    return [str(out), "--profile", "quick", *(word for k, v in pairs.items() for word in ("--set", f"{k}={v}"))]


@pytest.mark.parametrize("method", ["wanda", "sparsegpt", "sparsegpt pattern=2:4"])
def test_an_exported_model_computes_what_the_pruned_one_does(tmp_path, method):
    assert export.main(words(tmp_path / "out", method)) == 0
    study = Study.load("quick", **SETTINGS, methods=method)
    (variant,) = [v for v in study.variants("pruning") if v.method != "dense"]
    pruned, _ = states.pruned(study, variant)
    model, tokenizer = states.loaded(variant.model, variant.dtype)
    with applied(model, pruned), torch.no_grad():
        expected = model(IDS).logits
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    with torch.no_grad():
        assert torch.equal(loaded(IDS).logits, expected)
    assert loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight
    for layer, mask in pruned.masks.items():
        assert not loaded.get_submodule(layer).weight[~mask].any()
    assert loaded.config.use_cache
    text = "Grüße"
    assert AutoTokenizer.from_pretrained(tmp_path / "out")(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert not list((tmp_path / "out").glob("*.bin")) and not list(tmp_path.glob(".part-*"))


def test_the_card_says_what_was_done(tmp_path):
    assert export.main(words(tmp_path / "out", "sparsegpt pattern=2:4")) == 0
    front, prose = (tmp_path / "out" / "README.md").read_text().removeprefix("---\n").split("\n---\n", 1)
    about = yaml.safe_load(front)
    assert about["base_model"] == "tiny-gemma3" and about["language"] == ["de"]
    assert {"pruned", "sparsegpt", "2-of-4"} <= set(about["tags"])
    study = Study.load("quick", **SETTINGS, methods="sparsegpt pattern=2:4")
    (variant,) = [v for v in study.variants("pruning") if v.method != "dense"]
    pruned, digest = states.pruned(study, variant)
    for fact in (pruned.digest(), digest, "| pattern | 2:4 |", "8 of 64 tokens", "Not evaluated"):
        assert fact in prose
    assert str(tmp_path) not in prose
    removed = sum(row["removed"] for row in pruned.layers)
    assert f"{removed:,} of {sum(row['weights'] for row in pruned.layers):,}" in prose


@pytest.mark.parametrize("method", ["wanda", "sparsegpt pattern=2:4"])
def test_what_went_out_is_measured_like_what_was_pruned_here(tmp_path, method):
    kind = "0.5-2to4" if "2:4" in method else "0.5-unstructured"
    out = tmp_path / f"pruned-tiny-gemma3-{method.split()[0]}-{kind}-home-de-0"
    assert export.main(words(out, method)) == 0
    here = Study.load("quick", **SETTINGS, methods=method, segments=4)
    back = Study.load("quick", **SETTINGS, methods="", checkpoints=str(out), segments=4)
    by = ["corpus", "language"]
    mine, theirs = (measure.perplexity(study).query("method != 'dense'").set_index(by) for study in (here, back))
    assert len(mine) == 6 and mine["perplexity"].equals(theirs["perplexity"])
    assert set(theirs["n_samples"]) == {0} and not set(mine["cell"]) & set(theirs["cell"])
    tables = measure.pruning(back)
    assert tables["block_error"].empty
    both = pd.merge(measure.pruning(here)["pruning"], tables["pruning"], on=["layer", "module"])
    assert len(both) == 28
    for column in ("mask_digest", "removed", "zero_before"):
        assert both[f"{column}_x"].equals(both[f"{column}_y"]), column


def test_a_name_that_its_weights_deny_is_told(tmp_path):
    out = tmp_path / "pruned-tiny-gemma3-sparsegpt-0.6-unstructured-home-de-0"
    assert export.main(words(out, "wanda")) == 0
    study = Study.load("quick", **SETTINGS, methods="", checkpoints=str(out))
    with pytest.warns(UserWarning) as told:
        measure.pruning(study)
    said = " ".join(str(warning.message) for warning in told)
    assert "the name states 60.0% sparsity" in said and "sparsegpt changes kept weights, but all of them" in said


@pytest.mark.parametrize(("settings", "message"), [
    ({"methods": "wanda,magnitude:row"}, "these settings leave 2"), ({"methods": "magic"}, "magic")])
def test_one_pruned_model_at_a_time(tmp_path, capsys, settings, message):
    assert export.main(words(tmp_path / "out", *settings["methods"].split(","))) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_nothing_is_overwritten(tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.json").write_text(json.dumps(1))
    assert export.main(words(tmp_path / "out", "wanda")) == 2
    assert "nothing is overwritten" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.json"]
    assert export.main(words(tmp_path / "no" / "out", "wanda")) == 2
    assert "make it first" in capsys.readouterr().err
