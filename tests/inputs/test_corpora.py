import dataclasses
import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lib.errors import AssetError, InputError
from lib.inputs import assets, corpora, hub, languages, scratch, text

LINES = [f"This is line number {k} with some words of its own {k * 7919}." for k in range(200)]


def real(corpus):
    """Mark a test that needs an asset, saying how to get it."""
    return pytest.mark.skipif(not assets.is_complete(corpus), reason=f"asset {corpus} is not in data/cache; "
                              f"`python -m lib.inputs.assets {corpus}` fetches it")


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
    by_language = sides("udhr", "parallel")
    assert {len(side) for side in by_language.values()} == {50}
    assert by_language["en"]["1.1"].startswith("All human beings are born free")
    assert by_language["de"]["1.1"].startswith("Alle Menschen sind frei")


@pytest.mark.real
@real("chromium")
def test_languages_beyond_the_papers_are_there_too():
    assert {"fr", "ja", *languages.PAPER} <= set(corpora.languages("chromium", "calibration"))
    french = corpora.load("chromium", "fr", "calibration")
    assert set(french["id"]) <= set(corpora.load("chromium", "en", "calibration")["id"]) and len(french) > 1000


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


def write(folder, kind, language, lines):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{language}.{kind}"
    if kind == "txt":
        path.write_text("\n".join(lines))
    elif kind == "jsonl":
        path.write_text("\n".join(json.dumps({"text": t}) for t in lines))
    else:
        pq.write_table(pa.table({"text": lines}), path)


@pytest.mark.parametrize("kind", ["txt", "jsonl", "parquet"])
def test_a_folder_of_parallel_text_is_split_alike_in_every_language(tmp_path, kind):
    write(tmp_path, kind, "en", LINES)
    write(tmp_path, kind, "de", [t.replace("This is", "Das ist") for t in LINES])
    found = {s: corpora.load(str(tmp_path), "en", s) for s in corpora.splits(str(tmp_path))}
    assert sum(map(len, found.values())) == len(LINES)
    assert all(len(part) > 5 for part in found.values())
    for split, english in found.items():
        assert corpora.load(str(tmp_path), "de", split)["id"] == english["id"]
        for i, t in zip(english["id"], english["text"], strict=True):
            assert t == LINES[int(i) - 1]


def test_text_that_is_not_parallel_is_split_by_its_text(tmp_path):
    write(tmp_path, "txt", "en", LINES + LINES[:50])
    write(tmp_path, "txt", "sw", LINES[:120])
    parts = [set(corpora.load(str(tmp_path), "en", s)["text"]) for s in corpora.SPLITS]
    assert sum(map(len, parts)) == len(set().union(*parts)) == len(LINES), "a repeated text is in one split, once"


def test_a_text_that_repeats_in_one_language_is_in_one_split(tmp_path):
    write(tmp_path, "txt", "en", LINES)
    write(tmp_path, "txt", "de", ["Immer das Gleiche."] * 100 + LINES[100:])
    parts = {s: corpora.load(str(tmp_path), "de", s)["text"] for s in corpora.SPLITS}
    assert sum(t.count("Immer das Gleiche.") for t in parts.values()) == 1


def test_subfolders_are_the_splits(tmp_path):
    write(tmp_path / "calibration", "txt", "xx-YY", LINES[:20])
    assert corpora.splits(str(tmp_path)) == ("calibration",)
    assert corpora.languages(str(tmp_path), "calibration") == ("xx-YY",)
    assert len(corpora.load(str(tmp_path), "xx-YY", "calibration")) == 20


def test_a_folders_fingerprint_follows_its_content_not_its_place(tmp_path):
    for place in ("a", "b"):
        write(tmp_path / place, "txt", "en", LINES)
    a, b = (corpora.fingerprint(str(tmp_path / p)) for p in "ab")
    write(tmp_path / "b", "txt", "en", [*LINES, "one more"])
    assert a == b != corpora.fingerprint(str(tmp_path / "b"))


@pytest.mark.parametrize(("corpus", "language", "split", "named"), [
    ("chromium", "en", "training", "calibration, evaluation, parallel"), ("udhr", "en", "calibration", "parallel"),
    ("no/such/folder", "en", "calibration", "chromium"), ("data/quick/home", "fr", "calibration", "de, en, sw")])
def test_what_is_not_there_is_refused_with_what_is(corpus, language, split, named):
    with pytest.raises(InputError, match=named):
        corpora.load(corpus, language, split)


@pytest.mark.parametrize("content", ['{"txt": "x"}', "not json", "[1]"])
def test_a_broken_file_is_named_with_its_line(tmp_path, content):
    (tmp_path / "en.jsonl").write_text('{"text": "fine"}\n' + content)
    with pytest.raises(InputError, match=r"en.jsonl.* 2"):
        corpora.load(str(tmp_path), "en", "calibration")


@pytest.fixture
def tree(tmp_path):
    """A folder laid out as the hub's datasets are."""
    place = tmp_path / "c4" / "multilingual"
    place.mkdir(parents=True)
    for name, lines in {"c4-de.tfrecord-00000": LINES, "c4-de-validation.tfrecord-00000": ["x" * 5000] * 3}.items():
        with gzip.open(place / f"{name}.json.gz", "wt") as file:
            file.writelines(json.dumps({"text": t, "url": "u", "timestamp": "t"}) + "\n" for t in lines)
    (tmp_path / "ntrex").mkdir()
    pq.write_table(pa.table({"deu_Latn": LINES, "eng_Latn": LINES}), tmp_path / "ntrex" / "test.parquet")
    return tmp_path


def test_hub_documents_are_the_first_of_their_split(tree):
    source = dataclasses.replace(hub.SOURCES["mc4"], path=str(tree / "c4"), documents=30)
    calibration = hub.rows(source, "de", "calibration")
    assert {t for _, t in calibration} == set(LINES[:30]), "no document of the validation files"
    evaluation = hub.rows(source, "de", "evaluation")
    assert [len(t) for _, t in evaluation] == [hub.EVALUATION_CHARACTERS] * 3


def test_parallel_hub_text_has_the_same_ids_and_disjoint_splits(tree):
    source = dataclasses.replace(hub.SOURCES["ntrex"], path=str(tree / "ntrex"))
    evaluation, parallel = (dict(hub.rows(source, "de", s)) for s in ("evaluation", "parallel"))
    assert evaluation.keys() == dict(hub.rows(source, "en", "evaluation")).keys()
    assert not evaluation.keys() & parallel.keys() and len(evaluation) + len(parallel) == len(LINES)


def test_without_a_network_the_hub_is_an_error_that_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(hub, "CACHE", tmp_path)
    with pytest.raises(AssetError, match="hf download"):
        corpora.load("mc4", "de", "calibration")
    assert not list(tmp_path.rglob("*.parquet*"))
