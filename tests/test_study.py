from collections import Counter

import pytest

from lib import checks
from lib.arms import TABLES, narrowed
from lib.errors import InputError
from lib.inputs import calibration
from lib.study import Study, profiles


@pytest.mark.parametrize("profile", sorted({*profiles()} - {"paper"}))  # that one's models: see test_paper
def test_every_profile_loads(profile):
    assert Study.load(profile).label == profile


def test_budgets_are_those_of_calibration():
    assert checks.BUDGETS == calibration.BUDGETS  # written twice, since a study is refused before torch is there


def test_strings_from_a_command_line_are_typed():
    study = Study.load("quick", languages="de,sw", sparsity="0.6", seeds="7")
    assert (study.languages, study.sparsity, study.seeds) == (("de", "sw"), 0.6, (7,))


def test_overrides_get_their_own_label_and_equal_values_do_not():
    assert Study.load("quick", sparsity=0.5).label == "quick"
    assert Study.load("quick", sparsity=0.6).label != "quick"
    assert Study.load("quick", sparsity=0.6).label == Study.load("quick", sparsity="0.6").label


@pytest.mark.parametrize(("overrides", "named"), [
    ({"langages": "de"}, "languages"), ({"languages": "de,xx"}, "allowed: de, en, sw"),
    ({"methods": "wandaa"}, "wanda"), ({"methods": "wanda:column"}, "row"),
    ({"methods": "sparsegpt:row"}, "allows: block"), ({"methods": "wanda:row pattern=2:4"}, "allows: run"),
    ({"methods": "wanda pattern=4:2"}, "0 < n < m"), ({"pattern": "half"}, "n:m"),
    ({"methods": "wanda seed=0"}, "seeds"),
    ({"methods": "wanda seeds=a"}, "a list of int, as a/b"), ({"methods": "wanda tables=tasks"}, "perplexity"),
    ({"methods": "wanda calibrations=xx"}, "allowed: de, en, sw"), ({"methods": "wanda models=gemma"}, "tiny-llama"),
    ({"methods": "wanda seqlen=513"}, "512"), ({"models": "no-such"}, "gemma-3-270m"),
    ({"sparsity": -0.1}, "above 0"), ({"sparsity": 1.0}, "below 1"), ({"sparsity": 1.5}, "below 1"),
    ({"sparsity": "nan"}, "below 1"), ({"sparsity": "half"}, "float"), ({"seqlen": 0}, "2 or more"),
    ({"seqlen": 513}, "512"), ({"windows": 2.5}, "int"), ({"seeds": []}, "at least one"),
    ({"seeds": "0,0"}, "none twice"), ({"budget": "words"}, "tokens"), ({"dtype": "int8"}, "float32"),
    ({"calibrations": "de+xx"}, "xx"), ({"calibration_corpus": "no/such/folder"}, "no/such/folder")])
def test_what_cannot_be_run_is_refused_with_what_is_allowed(overrides, named):
    with pytest.raises(InputError, match=named.replace("+", r"\+")):
        Study.load("quick", **overrides)


def test_unknown_profile_lists_the_profiles():
    with pytest.raises(InputError, match="default, paper, published, quick"):
        Study.load("fast")


def test_grid_has_each_variant_once_and_what_needs_no_text_once_whatever_the_calibration():
    study = Study.load("quick")
    grid = study.variants("pruning")
    assert len(set(grid)) == len(grid)
    counts = Counter((v.model, v.method, v.group) for v in grid)
    for model in study.models:
        assert counts[model, "dense", "none"] == counts[model, "magnitude", "matrix"] == 1
        assert counts[model, "wanda", "row"] == len(study.seeds) * len(study.languages)
        assert counts[model, "sparsegpt", "block"] == len(study.languages)
        assert counts[model, "wanda", "run"] == len(study.languages)
        assert counts[model, "ria", "row"] == 1


def test_arms_take_the_studys_settings_and_their_own():
    study = Study.load("quick", seeds="1,2", methods=["wanda", "magnitude:matrix sparsity=0.3",
                                                      "sparsegpt pattern=4:8 seeds=3/4 calibrations=de/de+en"])
    wanda, magnitude, sparsegpt = study.arms()
    assert (wanda.group, wanda.pattern, wanda.sparsity, wanda.seeds) == ("row", "unstructured", 0.5, (1, 2))
    assert (magnitude.group, magnitude.sparsity) == ("matrix", 0.3)
    assert (sparsegpt.group, sparsegpt.pattern, sparsegpt.sparsity) == ("run", "4:8", 0.5)
    assert (sparsegpt.seeds, sparsegpt.calibrations) == ((3, 4), ("de", "de+en"))
    assert Study.load("quick", pattern="1:4", methods="wanda").variants("pruning")[1].sparsity == 0.75


def test_windows_of_an_arm_may_be_a_share_of_the_studys():
    few, many = (Study.load("quick", methods="wanda windows=62.5%", windows=n).arms()[0].windows for n in (8, 64))
    assert (few, many) == (5, 40)
    with pytest.raises(InputError, match="no share; write it as windows=25%"):
        Study.load("quick", methods="wanda windows=half%")
    with pytest.raises(InputError, match="windows is 0; allowed: 1 or more"):
        Study.load("quick", methods="wanda windows=5%")


def test_an_arm_is_measured_only_for_its_tables_and_models():
    study = Study.load("quick", methods=["wanda", "sparsegpt tables=pruning models=tiny-llama"])
    both, one = study.variants("pruning"), study.variants("perplexity")
    assert {v.model for v in both if v.method == "sparsegpt"} == {"tiny-llama"}
    assert set(one) == {v for v in both if v.method != "sparsegpt"}


def test_a_profiles_arms_follow_its_languages_and_models():
    study = Study.load("default", languages="de,sw")
    assert {v.calibration for v in study.variants("perplexity")} == {"none", "de", "sw"}
    assert ("ria", ("de", "sw")) in [(arm.method, arm.calibrations) for arm in study.arms()], "in English by itself"
    assert ("sparsegpt", ("de", "sw")) in [(arm.method, arm.calibrations) for arm in study.arms()]
    assert Study.load("default").label == "default", "nothing was left out"
    french = Study.load("default", languages="fr")
    assert all(arm.calibrations == ("fr",) for arm in french.arms())
    assert french.task_items().keys() == {"completion"} and french.parallel_corpora == ("chromium", "udhr")
    assert narrowed("wanda models=a/b seeds=0", ("de",), ("b", "c")) == "wanda models=b seeds=0"
    assert narrowed("wanda models=a", ("de",), ("c",)) is None
    assert narrowed("wanda calibrations=de+en/2de+sw/all", ("de", "en"), ()) == "wanda calibrations=de+en/all"
    assert narrowed("wanda calibrations=de+en", ("de",), ()) is None, "a mixture is not made a single language"
    with pytest.raises(InputError, match="'xx' has no calibration text"):
        Study.load("quick", methods="wanda calibrations=xx")


def test_methods_that_share_a_draw_of_text_stand_together():
    grid = [v for v in Study.load("quick").variants("pruning") if v.calibration != "none"]
    draws = [(v.model, v.calibration, v.seed) for v in grid]
    runs = [draw for k, draw in enumerate(draws) if k == 0 or draw != draws[k - 1]]
    assert len(runs) == len(set(runs))


def test_default_is_a_part_of_published():
    default, published = Study.load("default"), Study.load("published")
    for table in TABLES:
        assert set(default.variants(table)) <= set(published.variants(table))
    assert default.segments <= published.segments and default.languages == published.languages


CHECKPOINT = "somewhere/pruned-tiny-llama-sparsegpt-0.5-2to4-mc4-de-42"


def test_a_released_checkpoint_is_a_variant_of_its_dense_model(tmp_path):
    folder = tmp_path / "pruned-tiny-llama-sparsegpt-0.5-2to4-mc4-de-42"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
    study = Study.load("quick", checkpoints=str(folder), methods="")
    (variant,) = study.released()
    assert (variant.model, variant.method, variant.pattern, variant.group) == ("tiny-llama", "sparsegpt", "2:4", "run")
    assert (variant.calibration, variant.calibration_corpus, variant.seed) == ("de", "mc4", 42)
    assert (variant.n_samples, variant.seqlen) == (0, 0)
    for table in TABLES:
        assert [v.label for v in study.variants(table)] == [
            "tiny-llama dense", "tiny-llama sparsegpt/run 2:4 de seed 42", "tiny-gemma3 dense"]


@pytest.mark.parametrize(("change", "message"), [
    ({"models": "tiny-gemma3"}, "was made of tiny-llama"),
    ({"checkpoints": "somewhere/else"}, "does not fit the scheme"),
    ({"checkpoints": f"{CHECKPOINT},other/{CHECKPOINT[10:]}"}, "by their names the same"),
    ({"checkpoints": f"no/such/{CHECKPOINT[10:]}"}, "is unknown")])
def test_checkpoints_that_cannot_be_read_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        Study.load("quick", **{"checkpoints": CHECKPOINT} | change)


def test_some_tables_are_measured_only_where_an_arm_names_them():
    study = Study.load("quick", methods="wanda,sparsegpt tables=silencing", seeds="0")
    assert {v.method for v in study.variants("perplexity")} == {"dense", "wanda"}
    assert {v.method for v in study.variants("silencing")} == {"dense", "sparsegpt"}
    assert {v.method for v in study.variants("robustness")} == {"dense"} and study.robustness_languages() == ()
