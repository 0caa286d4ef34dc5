import pytest

from lib.errors import InputError
from lib.study import Study, profiles, split_method


@pytest.mark.parametrize("profile", profiles())
def test_every_profile_loads(profile):
    assert Study.load(profile).label == profile


def test_strings_from_a_command_line_are_typed():
    study = Study.load("quick", languages="de,sw", sparsity="0.6", seeds="7")
    assert (study.languages, study.sparsity, study.seeds) == (("de", "sw"), 0.6, (7,))


def test_overrides_get_their_own_label_and_equal_values_do_not():
    assert Study.load("quick", sparsity=0.5).label == "quick"
    assert Study.load("quick", sparsity=0.6).label != "quick"
    assert Study.load("quick", sparsity=0.6).label == Study.load("quick", sparsity="0.6").label


@pytest.mark.parametrize(("overrides", "named"), [
    ({"langages": "de"}, "languages"), ({"languages": "de,xx"}, "allowed: de, en, sw"),
    ({"methods": "wandaa"}, "wanda"), ({"methods": "wanda:column"}, "row"), ({"models": "no-such"}, "gemma-3-270m"),
    ({"sparsity": -0.1}, "above 0"), ({"sparsity": 1.0}, "below 1"), ({"sparsity": 1.5}, "below 1"),
    ({"sparsity": "nan"}, "below 1"), ({"sparsity": "half"}, "float"), ({"seqlen": 0}, "2 or more"),
    ({"seqlen": 513}, "512"), ({"windows": 2.5}, "int"), ({"seeds": []}, "at least one"),
    ({"seeds": "0,0"}, "none twice"), ({"budget": "words"}, "tokens"), ({"dtype": "int8"}, "float32"),
    ({"calibrations": "de+xx"}, "xx"), ({"calibration_corpus": "no/such/folder"}, "no/such/folder")])
def test_what_cannot_be_run_is_refused_with_what_is_allowed(overrides, named):
    with pytest.raises(InputError, match=named.replace("+", r"\+")):
        Study.load("quick", **overrides)


def test_unknown_profile_lists_the_profiles():
    with pytest.raises(InputError, match="default, published, quick"):
        Study.load("fast")


def test_grid_has_each_variant_once_and_magnitude_once_whatever_the_calibration():
    study = Study.load("quick")
    grid = study.variants()
    assert len(set(grid)) == len(grid)
    per_model = 1 + 2 + len(study.seeds) * len(study.languages)
    assert len(grid) == per_model * len(study.models)
    assert all(v.calibration == "none" for v in grid if v.method != "wanda")


def test_default_group_is_the_methods_first():
    assert split_method("wanda") == ("wanda", "row")
    assert split_method("magnitude:matrix") == ("magnitude", "matrix")


def test_default_is_a_part_of_published():
    default, published = Study.load("default"), Study.load("published")
    assert set(default.variants()) <= set(published.variants())
    assert default.segments <= published.segments and default.languages == published.languages
