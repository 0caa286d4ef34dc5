import dataclasses
import gzip
import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lib.errors import AssetError, InputError
from lib.inputs import corpora, hub

LINES = [f"This is line number {k} with some words of its own {k * 7919}." for k in range(200)]


@pytest.fixture
def tree(tmp_path):
    """Folders laid out as the hub's datasets are."""
    place = tmp_path / "c4" / "multilingual"
    place.mkdir(parents=True)
    files = {"c4-de.tfrecord-00000": [*LINES, LINES[0], "x" * 5000 + " other end"],
             "c4-de-validation.tfrecord-00000": ["x" * 5000, "y" * 5000, LINES[7]]}
    for name, lines in files.items():
        with gzip.open(place / f"{name}.json.gz", "wt") as file:
            file.writelines(json.dumps({"text": t, "url": "u", "timestamp": "t"}) + "\n" for t in lines)
    (tmp_path / "ntrex").mkdir()
    german = ["Das Gleiche." if k in (3, 5, 8, 13) else f"Zeile {k}" for k in range(200)]
    pq.write_table(pa.table({"deu_Latn": german, "eng_Latn": LINES}), tmp_path / "ntrex" / "test.parquet")
    (tmp_path / "hellaswag" / "data" / "de").mkdir(parents=True)
    row = {"ctx": "Sie geht", "endings": ["weg.", "heim.", "aus.", "ein."], "label": "1"}
    (tmp_path / "hellaswag" / "data" / "de" / "val.jsonl").write_text(json.dumps(row) + "\n")
    return tmp_path


def local(name, tree, **changes):
    """The hub source, read from the folder instead."""
    folder = {"mc4": "c4"}.get(name, name)
    return dataclasses.replace(hub.SOURCES[name], pinned={"path": str(tree / folder), "revision": "local"}, **changes)


def test_hub_documents_are_the_first_of_their_split(tree):
    calibration = hub.rows(local("mc4", tree, documents=30), "de", "calibration")
    assert {t for _, t in calibration} == set(LINES[:30]) - {LINES[7]}, "no document that evaluation has"
    assert all(i.startswith("de:") for i, _ in calibration), "web text is not parallel, so its ids are not either"
    evaluation = hub.rows(local("mc4", tree), "de", "evaluation")
    assert sorted(len(t) for _, t in evaluation) == [len(LINES[7])] + 2 * [hub.EVALUATION_CHARACTERS]


def test_hub_documents_stand_once_and_in_one_split(tree):
    texts = [t for _, t in hub.rows(local("mc4", tree), "de", "calibration")]
    assert sorted(texts) == sorted(set(LINES) - {LINES[7]})


def test_parallel_hub_text_has_the_same_ids_and_disjoint_splits(tree):
    source = local("ntrex", tree)
    sides = {x: {s: dict(hub.rows(source, x, s)) for s in source.files} for x in ("de", "en")}
    assert sides["de"]["evaluation"].keys() == sides["en"]["evaluation"].keys()
    assert not sides["en"]["evaluation"].keys() & sides["en"]["parallel"].keys()
    assert sum(map(len, sides["en"].values())) == len(LINES)
    assert not set(sides["de"]["evaluation"].values()) & set(sides["de"]["parallel"].values())
    assert all(t == LINES[int(i)] for side in sides["en"].values() for i, t in side.items())


def test_hellaswag_is_the_context_with_its_right_ending(tree):
    assert hub.rows(local("hellaswag", tree), "de", "calibration") == [("de:0", "Sie geht heim.")]


def test_hub_text_that_is_not_laid_out_as_expected_is_an_error_that_names_it(tree):
    with pytest.raises(AssetError, match="ntrex .*, sw, evaluation.* KeyError: 'swa_Latn'"):
        hub.rows(local("ntrex", tree), "sw", "evaluation")
    with pytest.raises(AssetError, match="mc4 .*, sw, .*cannot be read"):
        hub.rows(local("mc4", tree), "sw", "calibration")


def test_hub_corpora_know_their_languages_and_pins_without_a_network():
    for name in hub.SOURCES:
        for split in corpora.splits(name):
            assert {"ar", "de", "en", "es", "ru"} <= set(corpora.languages(name, split))
    assert "sw" in corpora.languages("mc4", "calibration") and "sw" not in corpora.languages("hellaswag", "calibration")
    assert corpora.fingerprint("mc4") == "allenai/c4@1588ec454efa1a09f29cd18ddd04fe05fc8653a2:2000"
    with pytest.raises(InputError, match="no calibration text in corpus 'hellaswag'; allowed: ar"):
        corpora.load("hellaswag", "sw", "calibration")


def test_without_a_network_the_hub_is_an_error_that_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(hub, "CACHE", tmp_path)
    with pytest.raises(AssetError, match="mc4 .*cannot be read.*Check the network"):
        corpora.load("mc4", "de", "calibration")
    assert not list(tmp_path.rglob("*.parquet*"))


def test_hub_text_is_read_once_and_then_from_the_cache(monkeypatch, tmp_path, tree):
    monkeypatch.setattr(hub, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(hub, "_is_local", lambda source: False)  # so that the folder is treated as the hub is
    source = local("ntrex", tree)
    first = hub.rows(source, "en", "parallel")
    assert [p.name for p in (tmp_path / "cache" / "corpora").iterdir()] == ["ntrex-local-en-all-2000.parquet"]
    shutil.rmtree(tree / "ntrex")
    assert hub.rows(source, "en", "parallel") == first
