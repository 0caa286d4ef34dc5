import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lib.errors import InputError
from lib.inputs import corpora, folder

LINES = [f"This is line number {k} with some words of its own {k * 7919}." for k in range(200)]


def write(place, kind, language, lines):
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{language}.{kind}"
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


def test_a_missing_translation_does_not_let_content_into_two_splits(tmp_path):
    """Line 3 lacks its German and the ids of a .jsonl are not the same in both: still the same split by id."""
    write(tmp_path / "txt", "txt", "en", LINES)
    write(tmp_path / "txt", "txt", "de", ["" if k == 2 else f"Zeile {k}" for k in range(200)])
    (tmp_path / "ids").mkdir()
    for language, ids in {"en": range(200), "de": range(0, 200, 3)}.items():
        (tmp_path / "ids" / f"{language}.jsonl").write_text(
            "\n".join(json.dumps({"id": f"s{k}", "text": f"{language} text {k}"}) for k in ids))
    for kind in ("txt", "ids"):
        place = str(tmp_path / kind)
        ids = {x: {s: set(corpora.load(place, x, s)["id"]) for s in corpora.SPLITS} for x in ("de", "en")}
        for split in corpora.SPLITS:
            others = set().union(*(ids["en"][s] for s in corpora.SPLITS if s != split))
            assert ids["de"][split] and not ids["de"][split] & others
    assert "3" not in set().union(*(corpora.load(str(tmp_path / "txt"), "de", s)["id"] for s in corpora.SPLITS))


def test_lines_end_at_line_feeds_only(tmp_path):
    lines = ["one\u2028still one", "two\x0bstill two\r", "three\x85still three"]
    (tmp_path / "en.txt").write_bytes(("\ufeff" + "\n".join(lines) + "\n").encode())
    (tmp_path / "de.jsonl").write_text("\n".join(json.dumps({"text": t}, ensure_ascii=False) for t in lines),
                                       encoding="utf-8")
    for language in ("en", "de"):
        found = {i: t for s in corpora.SPLITS for i, t in folder_rows(tmp_path, language, s)}
        assert found == {"1": "one still one", "2": "two still two", "3": "three still three"}


def folder_rows(place, language, split):
    """Rows of a split, none where it is empty."""
    try:
        return folder.rows(place, language, split)
    except InputError:
        return []


def test_text_that_stands_in_two_subfolders_stays_in_the_held_out_one(tmp_path):
    write(tmp_path / "calibration", "txt", "en", LINES[:50])
    write(tmp_path / "evaluation", "txt", "en", LINES[40:60])
    write(tmp_path / "parallel", "txt", "en", LINES[55:70])
    texts = {s: set(corpora.load(str(tmp_path), "en", s)["text"]) for s in corpora.SPLITS}
    assert texts == {"calibration": set(LINES[:40]), "evaluation": set(LINES[40:60]), "parallel": set(LINES[60:70])}


@pytest.mark.parametrize(("name", "data", "named"), [
    ("en.txt", "caf\xe9".encode("latin-1"), "UTF-8"), ("en.parquet", b"no parquet", "en.parquet cannot be read"),
    ("en.jsonl", b'{"id": 1, "text": "a"}\n{"text": "b"}', "some of its records"),
    ("en.jsonl", b'{"id": 1, "text": "a"}\n{"id": 1, "text": "b"}', "id twice")])
def test_a_file_that_cannot_be_used_is_named_with_the_reason(tmp_path, name, data, named):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=f"{name}.*{named}|{named}"):
        corpora.load(str(tmp_path), "en", "calibration")


def test_two_files_for_one_language_are_refused(tmp_path):
    write(tmp_path, "txt", "en", LINES)
    write(tmp_path, "jsonl", "en", LINES)
    with pytest.raises(InputError, match="more than one file for a language"):
        corpora.languages(str(tmp_path), "calibration")


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


@pytest.mark.parametrize("content", ['{"txt": "x"}', "not json", "[1]"])
def test_a_broken_file_is_named_with_its_line(tmp_path, content):
    (tmp_path / "en.jsonl").write_text('{"text": "fine"}\n' + content)
    with pytest.raises(InputError, match=r"en.jsonl.* 2"):
        corpora.load(str(tmp_path), "en", "calibration")
