"""The robustness grid: the same numbers as elsewhere where it asks the same, and only where it was asked for."""

import pytest

from lib.errors import InputError
from lib.run import measure
from lib.study import Study

SETTINGS = {"models": "tiny-llama", "seeds": "0", "methods": "wanda,wanda tables=robustness calibrations=de/sw,wanda "
            "windows=4 tables=robustness calibrations=de/sw,wanda calibrations=de+en/all tables=mixtures"}


pytestmark = pytest.mark.usefixtures("own_cache")


def test_the_main_setting_is_the_one_of_the_perplexity_table():
    study = Study.load("quick", **SETTINGS)
    found, text = measure.robustness(study), measure.segment_nll(study)
    assert set(found["language"]) == {"de", "sw"} == set(found["calibration"])
    key = ["method", "n_samples", "calibration", "corpus", "language", "segment"]
    both = found.merge(text, on=key)
    assert len(both) == 2 * 2 * 2 * study.segments and (both["nll_x"] == both["nll_y"]).all()
    assert set(found["n_samples"]) == {4, 8}


def test_mixtures_are_asked_the_two_tasks_and_read_all_text():
    study = Study.load("quick", **SETTINGS)
    read, asked = measure.mixture_nll(study), measure.mixture_items(study)
    assert set(read["calibration"]) == set(asked["calibration"]) == {"de+en", "all"}
    assert set(read["language"]) == set(study.languages) and set(asked["task"]) == {"knowledge", "completion"}
    assert set(asked["method"]) == {"wanda"}


def test_without_such_arms_there_are_no_rows():
    study = Study.load("quick", models="tiny-llama", methods="wanda", seeds="0")
    for name in ("robustness", "mixture_nll", "mixture_items"):
        table = measure.TABLES[name](study, False)
        assert table.empty and {"cell", "method", "calibration", "language"} <= set(table)


def test_text_that_is_not_parted_serves_one_purpose():
    arm = "wanda calibration_corpus=udhr windows=5 tables="
    with pytest.raises(InputError, match="udhr is both calibration_corpus and one of parallel_corpora"):
        Study.load("default", methods=arm + "subspaces")
    assert Study.load("default", methods=arm + "robustness")
