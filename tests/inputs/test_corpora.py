import numpy as np
import pytest

from lib.errors import AssetError, InputError
from lib.inputs import assets, chromium, corpora, languages, scratch, text, udhr
from lib.paths import DATA


def real(corpus):
    """Mark a test that needs an asset, saying how to get it."""
    return pytest.mark.skipif(not assets.is_complete(corpus), reason=f"asset {corpus} is not in data/cache; "
                              f"`python -m lib.inputs.assets {corpus}` fetches it")


PINNED = {"chromium": chromium, "scratch": scratch}


def sides(corpus, split):
    return {x: dict(zip(*[corpora.load(corpus, x, split)[c] for c in ("id", "text")], strict=True))
            for x in languages.PAPER}


@pytest.mark.real
@real("chromium")
@real("scratch")
@pytest.mark.parametrize("corpus", ["chromium", "scratch"])
def test_splits_share_no_segment_in_any_language(corpus):
    splits = {split: sides(corpus, split) for split in corpora.splits(corpus)}
    names = list(splits)
    for k, a in enumerate(names):
        for b in names[k + 1:]:
            for language in languages.PAPER:
                assert not set(splits[a][language].values()) & set(splits[b][language].values())
            for x in splits[a]["en"].values():
                near = [y for y in splits[b]["en"].values() if plain_jaccard(x, y) >= text.NEAR]
                assert not near, (x, near)


def plain_jaccard(a, b):
    a, b = text.words(a), text.words(b)
    return len(a & b) / len(a | b)


@pytest.mark.real
@real("chromium")
def test_text_is_parallel_clean_and_enough():
    for split, least in {"calibration": 1500, "evaluation": 150, "parallel": 200}.items():
        by_language = sides("chromium", split)
        assert len({tuple(side) for side in by_language.values()}) == 1, "same ids in the same order"
        assert len(by_language["en"]) >= least
        for language, side in by_language.items():
            assert all(t == text.clean(t) and "$1" not in t and "<" not in t for t in side.values())
            assert language == "en" or not any(t == by_language["en"][i] for i, t in side.items())


@pytest.mark.real
@real("scratch")
def test_scratch_is_split_by_page_and_holds_no_faq():
    calibration, held_out = (sides("scratch", s)["en"] for s in ("calibration", "evaluation"))
    assert not {i.split("/")[0] for i in calibration} & {i.split("/")[0] for i in held_out}
    assert not [i for i in [*calibration, *held_out] if "faq" in i.lower()]
    assert len(held_out) >= 100 and all(i.startswith(scratch.HELD_OUT) for i in held_out)


@pytest.mark.real
@real("udhr")
def test_udhr_has_its_fifty_paragraphs_in_every_language():
    by_language = {x: dict(udhr.rows(x)) for x in udhr.KNOWN}
    assert set(languages.PAPER) <= set(by_language)
    assert {frozenset(side) for side in by_language.values()} == {frozenset(udhr.IDS)} and len(udhr.IDS) == 50
    assert by_language["en"]["1.1"].startswith("All human beings are born free")
    assert by_language["de"]["1.1"].startswith("Alle Menschen sind frei")
    assert "Nations Unies" in by_language["fr"]["29.3"] and "United Nations" in by_language["en"]["29.3"]


@pytest.mark.real
@real("udhr")
def test_udhr_that_is_cut_otherwise_is_refused():
    with pytest.raises(AssetError, match="not cut into the 50 paragraphs"):
        udhr.rows("wwa")  # Waama, of which the package has one paragraph an article


@pytest.mark.real
@real("chromium")
@real("scratch")
@pytest.mark.parametrize("corpus", ["chromium", "scratch"])
def test_other_languages_are_translated_and_disjoint_by_split_too(corpus):
    english = {i: t for s in corpora.splits(corpus) for i, t in PINNED[corpus].rows("en", s)}
    for language in ("fr", "ja", "fa", "hi", "pt-BR", "zh-TW"):
        parts = [dict(PINNED[corpus].rows(language, s)) for s in corpora.splits(corpus)]
        assert all(len(part) >= 100 for part in parts)
        assert all(t and t != english[i] for part in parts for i, t in part.items())
        texts = [t for part in parts for t in part.values()]
        assert len(texts) == len(set(texts))


@pytest.mark.real
@real("chromium")
def test_the_languages_listed_are_those_in_the_package():
    there = {languages.internal("chromium", p.stem) for p in assets.folder("chromium").glob("*.pak")}
    assert set(chromium.KNOWN) == there


def test_jaccard_and_distinct_equal_a_plain_reference():
    english = {str(k): f"alpha beta gamma delta epsilon {w} {v}" for k, (w, v) in enumerate(
        [("zeta", "eta"), ("zeta", "theta"), ("one two three four five", "six seven"), ("zeta", "eta")])}
    other = {i: f"übersetzt {i}" for i in english}
    kept = text.distinct({"en": english, "de": other})
    expected = []
    for i in text.order(list(english)):
        if all(plain_jaccard(english[i], english[j]) < text.NEAR for j in expected):
            expected.append(i)
    assert kept == expected and len(kept) == 2
    assert text.jaccard(list(english.values()))[0, 1] == pytest.approx(plain_jaccard(english["0"], english["1"]))


def test_untranslated_marked_up_and_short_segments_drop_out():
    english = {"a": "one two three four five six", "b": "click <b>here</b> to see all of it", "c": "too short",
               "d": "seven eight nine ten eleven twelve"}
    german = {"a": "eins zwei drei", "b": "x", "c": "y", "d": english["d"]}
    assert text.distinct({"en": english, "de": german}) == ["a"]


def test_the_sentences_of_the_quick_profile_are_parallel_distinct_and_of_one_size():
    sides = {x: [t for c in ("home", "world") for t in (DATA / "quick" / c / f"{x}.txt").read_text().splitlines()]
             for x in ("de", "en", "sw")}
    assert {x: len(side) for x, side in sides.items()} == dict.fromkeys(sides, 250)
    for side in sides.values():
        assert max(len(t.split()) for t in side) <= 14 and all(t == text.clean(t) for t in side)
        near = text.jaccard(side)
        assert (near - np.eye(len(side)) < 0.45).all()
    for corpus in ("data/quick/home", "data/quick/world"):
        for split in corpora.SPLITS:
            assert len({tuple(corpora.load(corpus, x, split)["id"]) for x in sides}) == 1


@pytest.mark.parametrize(("corpus", "language", "split", "named"), [
    ("chromium", "en", "training", "calibration, evaluation, parallel"),
    ("udhr", "en", "evaluation", "calibration, parallel"),
    ("no/such/folder", "en", "calibration", "chromium"), ("data/quick/home", "fr", "calibration", "de, en, sw")])
def test_what_is_not_there_is_refused_with_what_is(corpus, language, split, named):
    with pytest.raises(InputError, match=named):
        corpora.load(corpus, language, split)
