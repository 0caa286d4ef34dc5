import json
import subprocess
import sys
from collections import Counter

import pytest

from lib.errors import InputError
from lib.inputs import assets, tasks
from lib.inputs.languages import PAPER
from lib.inputs.tasks import completion, items, knowledge, mkqa, retrieval
from lib.inputs.tasks.items import Item

WORLD = "data/quick/world"
SENTENCES = {"en": "The old bridge across the river was closed for {} weeks after the storm.",
             "de": "Die alte Brücke über den Fluss war nach dem Sturm {} Wochen lang gesperrt."}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "CACHE", tmp_path)


def real(*names):
    missing = [n for n in names if not assets.is_complete(n)]
    return pytest.mark.skipif(bool(missing), reason=f"asset(s) {', '.join(missing)} not in data/cache; "
                              f"`python -m lib.inputs.assets {' '.join(missing)}` fetches them")


def every(task, text=()):
    return {x: items.read(tasks.build(task, x, text)) for x in tasks.coverage(task, text) if x in PAPER}


def test_the_same_facts_are_asked_in_all_languages_and_the_first_are_balanced():
    files = every("knowledge")
    assert sorted(files) == sorted(PAPER)
    ids = [i.id for i in files["en"]]
    for found in files.values():
        assert [i.id for i in found] == ids
        assert [i.answer for i in found] == [i.answer for i in files["en"]]
    for n in (60, 120):
        assert Counter(i.kind for i in files["sw"][:n]) == dict.fromkeys(knowledge.RELATIONS, n // 5)
    assert min(Counter(i.kind for i in files["en"]).values()) >= 90


def test_the_stated_chance_is_that_of_the_items():
    first = every("knowledge")["en"][:120]
    assert sum(1 / len(i.options) for i in first) / 120 == pytest.approx(tasks.chance("knowledge"))


def test_whoever_always_takes_one_index_is_right_by_chance():
    by_kind = {}
    for item in every("knowledge")["ar"]:
        by_kind.setdefault(item.kind, []).append(item.answer)
    for kind, answers in by_kind.items():
        n = 5 if kind == "continent" else 4
        for first in (n, 24 - 24 % n):
            assert Counter(answers[:first]) == dict.fromkeys(range(n), first // n), kind


def test_files_are_the_same_bytes_at_every_call():
    first = tasks.build("knowledge", "ru").read_bytes()
    code = ("from pathlib import Path; from lib.inputs import tasks; import sys; tasks.CACHE = Path(sys.argv[1]); "
            "path = tasks.build('knowledge', 'ru'); assert not {'torch', 'lm_eval'} & set(sys.modules)")
    subprocess.run([sys.executable, "-c", code, str(tasks.CACHE / "again")], check=True)
    (again,) = (tasks.CACHE / "again" / "tasks").iterdir()
    assert again.read_bytes() == first


@pytest.mark.parametrize("task", ["completion", "completion_control", "retrieval"])
def test_tasks_from_a_local_folder_pair_their_ids(task):
    files = every(task, (WORLD,))
    assert set(files) == ({"de", "sw"} if task == "retrieval" else {"de", "en", "sw"})
    ids = [{i.id for i in found} for found in files.values()]
    assert len(set.intersection(*ids)) >= 5


def test_endings_are_real_held_out_and_of_like_length():
    from lib.inputs import corpora

    held_out = {t for split in completion.SPLITS for t in corpora.load(WORLD, "de", split)["text"]}
    calibration = " ".join(corpora.load(WORLD, "de", "calibration")["text"])
    for item in every("completion", (WORLD,))["de"]:
        true, false = item.options[item.answer], item.options[1 - item.answer]
        assert item.context + true in held_out and item.context + false not in held_out
        assert any(t.endswith(false) for t in held_out) and false not in calibration
        assert max(len(true), len(false)) <= 1.1 * min(len(true), len(false))
        assert true[0].isupper() == false[0].isupper()


def test_the_nearest_ending_is_chosen(tmp_path):
    texts = ["The keeper of the lighthouse went up the narrow stairs at dusk.",
             "The captain of the fishing boat came up the narrow stairs at dawn.",
             "Zebras graze quietly, and nobody in fifty minutes wakes a lion."]
    text = tmp_path / "text"
    for split in ("calibration", "evaluation"):
        (text / split).mkdir(parents=True)
        (text / split / "en.txt").write_text("\n".join(texts if split == "evaluation" else ["Nothing of it."]))
    found = {i.context: i.options[1 - i.answer] for i in completion.items("en", str(text))}
    for own, other in ((0, 1), (1, 0)):
        beginning, _ = completion.cut(texts[own], "en")
        assert texts[other].endswith(found[beginning])


def test_the_control_holds_the_same_words():
    for item in every("completion_control", (WORLD,))["sw"]:
        assert sorted(item.options[0].split()) == sorted(item.options[1].split())


def test_chinese_is_cut_behind_a_mark():
    parts = ("如果您打开这个网站，", "您的数据就会被删除。")
    assert completion.cut("".join(parts), "zh") == parts
    assert completion.cut("没有任何标点符号的一个很长很长的句子", "zh") is None


def test_the_hardest_sentences_of_like_length_are_the_wrong_options():
    near = [SENTENCES["en"].format(n) for n in ("two", "three", "seven", "eight")]
    far = ["Nobody knew why the small red lamp above the door was still burning.", "Short one."]
    hard = retrieval.hardest([*near, *far])
    for k in range(4):
        assert hard[k] == [o for o in range(4) if o != k]
    assert hard[5] == [], "nothing is as short"


def test_texts_from_several_corpora_are_shuffled_together(tmp_path):
    other = tmp_path / "more" / "evaluation"
    other.mkdir(parents=True)
    for language, sentence in SENTENCES.items():
        (other / f"{language}.txt").write_text("\n".join(sentence.format(n * n) for n in range(2, 9)))
    both = (WORLD, str(tmp_path / "more"))
    found = [i.id.split(":")[1] for i in every("completion", both)["de"]]
    assert set(found) == set(both) and found != sorted(found, key=both.index)


def test_a_changed_text_or_template_is_another_fingerprint(tmp_path, monkeypatch):
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "en.txt").write_text("One sentence stands here.")
    names = {t: tasks.fingerprint(t, (str(tmp_path / "t"),)) for t in ("completion", "retrieval", "knowledge")}
    (tmp_path / "t" / "en.txt").write_text("Another sentence stands here.")
    changed = {t for t, name in names.items() if tasks.fingerprint(t, (str(tmp_path / "t"),)) != name}
    assert changed == {"completion", "retrieval"} and len(set(names.values())) == 3
    before = tasks.fingerprint("knowledge")
    monkeypatch.setattr(tasks, "RECIPE", tasks.RECIPE + 1)
    assert tasks.fingerprint("knowledge") != before


@pytest.mark.parametrize("task, language, text, message", [
    ("geography", "de", (), "unknown; allowed: knowledge"),
    ("belebele", "de", (), "harness' registry"),
    ("knowledge", "fr", (), "no 'fr'; it has ar, de"),
    ("mkqa", "sw", (), "no 'sw'"),
    ("retrieval", "en", (WORLD,), "no 'en'"),
    ("completion", "de", (), "name at least one corpus"),
    ("retrieval", "de", ("scratch",), "no parallel text"),
    ("completion", "ru", (WORLD,), "no 'ru'; it has de, en, sw"),
])
def test_what_cannot_be_built_is_refused_and_says_what_can(task, language, text, message):
    with pytest.raises(InputError, match=message):
        tasks.build(task, language, text)


def test_names_of_the_harness_cover_what_they_cover():
    assert tasks.registered("belebele", "sw") == "belebele_swh_Latn"
    for task, missing in {"xstorycloze": "de", "hellaswag": "zh", "m_mmlu": "sw"}.items():
        with pytest.raises(InputError, match=f"no '{missing}'"):
            tasks.registered(task, missing)


@pytest.mark.parametrize("change, message", [
    ({"answer": 3}, "answer is 3, and there are 3 options"),
    ({"answer": -1}, "answer is -1"),
    ({"options": ["a", "B ", "b"]}, "coincide"),
    ({"options": ["a"]}, "options are"),
    ({"options": ["a", " "]}, "options are"),
    ({"context": " "}, "context is empty"),
    ({"answer": "1"}, "answer is '1'"),
    ({"extra": 1}, "exactly the fields"),
])
def test_a_broken_item_is_refused_with_its_line(tmp_path, change, message):
    good = {"id": "a", "kind": "k", "context": "A ", "options": ["x", "y", "z"], "answer": 0}
    path = tmp_path / "items.jsonl"
    path.write_text("\n".join(json.dumps(r) for r in (good, good | {"id": "b"} | change)) + "\n")
    with pytest.raises(InputError, match=f"line 2.*{message}"):
        items.read(path)


def test_an_empty_file_a_missing_one_and_an_id_that_repeats_are_refused(tmp_path):
    item = Item("a", "k", "A ", ("x", "y"), 0)
    with pytest.raises(InputError, match="twice"):
        items.write([item, item], tmp_path / "twice.jsonl")
    with pytest.raises(InputError, match="no item"):
        items.write([], tmp_path / "none.jsonl")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(InputError, match="empty"):
        items.read(tmp_path / "empty.jsonl")
    with pytest.raises(InputError, match="no file"):
        items.read(tmp_path / "gone.jsonl")


def test_mkqa_is_read_from_a_folder_of_its_layout(tmp_path):
    import pandas as pd

    place = tmp_path / "mkqa"
    place.mkdir()
    codes = ("ar", "de", "en", "zh_cn")
    label = mkqa.LABELS.index("entity")
    rows = [{"example_id": f"q{n}", "query": f"who is {n}", "queries": {c: f"{c} who is {n}" for c in codes},
             "answers": {c: [{"type": label, "entity": f"Q{n}", "text": f"{c} name {n % 6}", "aliases": [f"alias {n}"]}]
                         for c in codes}} for n in range(12)]
    rows.append(rows[0] | {"example_id": "none", "answers": {c: [{"type": mkqa.LABELS.index("binary"), "entity": "",
                                                                   "text": "yes", "aliases": []}] for c in codes}})
    pd.DataFrame(rows).to_parquet(place / "train.parquet")
    files = {x: mkqa.items(x, place) for x in ("ar", "de", "zh")}
    assert [i.id for i in files["zh"]] == [i.id for i in files["de"]] and len(files["de"]) == 12
    for item in files["de"]:
        n = int(item.id.removeprefix("mkqa:q"))
        assert item.context == f"Frage: de who is {n}\nAntwort: "
        assert item.options[item.answer] == f"de name {n % 6}" and len(set(item.options)) == 4
    with pytest.raises(InputError, match="no 'sw'"):
        mkqa.items("sw", place)


@pytest.mark.real
@real("cldr-annotations", "emojibase")
def test_concepts_and_categories_are_parallel():
    files = every("category")
    assert set(files) == set(PAPER) and len(files["en"]) >= 300
    assert len({tuple(i.id for i in found) for found in files.values()}) == 1
    dog = {x: next(i for i in found if i.id == "category:🐕") for x, found in files.items()}
    assert dog["en"].options[dog["en"].answer] == "animals" and "Hund" in dog["de"].context


@pytest.mark.real
@real("scratch")
def test_faq_answers_are_whole_and_parallel():
    files = every("faq")
    assert set(files) == set(PAPER) and len(files["en"]) >= 50
    assert len({tuple(i.id for i in found) for found in files.values()}) == 1
    for found in files.values():
        assert not any(c in o for i in found for o in i.options for c in "{}<>")


@pytest.mark.real
@real("chromium", "udhr")
def test_enough_items_come_from_the_pinned_text():
    assert all(len(found) >= 250 for found in every("retrieval", ("chromium", "udhr")).values())
    assert all(len(found) >= 120 for found in every("completion", ("chromium",)).values())
