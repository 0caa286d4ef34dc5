"""The plan of a run: what it says beforehand is what is then computed and written."""

import shutil

import pytest
from shapes import stored

from lib.inputs import models, sizes
from lib.inputs.checkpoints import KNOWN
from lib.pruning import lockstep
from lib.run import measure, plan, rates, states, store
from lib.study import Study

pytestmark = pytest.mark.usefixtures("own_cache")
SETTINGS = {"models": "tiny-llama", "methods": "wanda,sparsegpt", "seeds": "0", "calibrations": "de,sw"}


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "PUBLISHED", tmp_path / "published")
    rates._measured.cache_clear()
    yield Study.load("quick", **SETTINGS)
    rates._measured.cache_clear()


def test_what_is_planned_is_what_is_missing(study):
    work = plan.plan(study, True).work.set_index("what")
    assert work.loc["pruning", ["visits", "cells"]].tolist() == [4, 8]
    assert work.loc["perplexity", ["visits", "cells"]].tolist() == [5, 5 * 3 * 2]
    assert not list(store.run_folder(study).rglob("*.parquet")), "nothing was computed"
    measure.pruning(study, True)
    after = plan.plan(study, True).work
    assert "pruning" not in set(after["what"])
    assert after[after["what"] == "perplexity"]["cells"].tolist() == [30]
    assert set(plan.plan(study, True, only="03").work["notebook"]) == {"03"}


def test_the_masks_take_the_bytes_that_were_planned(study):
    planned = plan.plan(study, True, only="02").disk["masks"]
    measure.pruning(study, True)
    files = list((store.run_folder(study) / "masks").glob("*.safetensors"))
    written = sum(path.stat().st_size for path in files)
    assert len(files) == 4 and 0.9 * planned < written < 1.2 * planned
    assert plan.plan(study, True, only="02").disk["masks"] == 0


def test_time_is_carried_over_from_cells_that_were_measured(study):
    assert plan.plan(study, True, only="03").work["seconds"].tolist() == [0], "nothing was ever measured"
    measure.segment_nll(study, True)
    took = store.own(study, "timings").query("what == 'perplexity'")["seconds"].sum()
    rates._measured.cache_clear()
    twice = plan.plan(Study.load("quick", **SETTINGS, segments=32), True, only="03").work
    assert 1.5 * took < twice["seconds"].item() < 2.5 * took, "twice the segments"
    assert twice["rough"].item() == 0
    other = plan.plan(Study.load("quick", **SETTINGS | {"models": "tiny-gemma3"}), True, only="03").work
    assert other["rough"].item() == other["seconds"].item() > 0, "another model"


def test_timings_without_their_cells_tell_nothing(study):
    measure.segment_nll(study, True)
    shutil.rmtree(store.run_folder(study) / "segment_nll")
    rates._measured.cache_clear()
    assert plan.plan(study, True, only="03").work["seconds"].tolist() == [0]


def test_a_streamed_model_needs_three_blocks_and_files_for_hidden_states(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPENDIUM_STREAMED", "1")
    states.streamed.cache_clear()
    study = Study.load("quick", **SETTINGS | {"models": stored("tiny-llama", tmp_path / "model")})
    made, size = plan.plan(study, True), sizes.size(study.models[0])
    assert made.disk["hidden states"] == 3 * study.windows * study.seqlen * size.hidden * 4
    held = made.memory - plan.PROGRAM - lockstep.BUDGET
    assert held == 4 * (size.parameters - size.linear) + size.block * (3 * 4 + 1)


def test_the_text_says_what_is_rough_and_what_the_machine_has(study):
    measure.segment_nll(study, True)
    rates._measured.cache_clear()
    said = plan.text(plan.plan(study, True))
    assert "GB are free in" in said and "in one process" in said and "there are" in said
    assert [line for line in said.splitlines() if line.startswith("04")][0].endswith("not known")


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-mixtral", "tiny-gpt2"])
def test_a_size_is_that_of_the_model(name):
    from lib.pruning.blocks import find_blocks, named_linears

    model, _ = models.load(name)
    size = sizes.size(name)
    assert size.parameters == sum(p.numel() for p in model.parameters())
    assert size.linear == sum(layer.weight.numel() for layer in named_linears(model).values())
    assert size.block == max(sum(p.numel() for p in block.parameters()) for block in find_blocks(model)[1])
    assert size.hidden == model.get_input_embeddings().weight.shape[1]


@pytest.mark.parametrize("name", KNOWN)
def test_the_sizes_that_are_written_down_are_those_of_the_models(name):
    from lib.inputs import assets

    if not assets.is_complete(name):
        pytest.skip(f"asset {name} is not in data/cache; python -m lib.inputs.assets {name}")
    assert sizes.size(str(models.folder(name))) == KNOWN[name].size
