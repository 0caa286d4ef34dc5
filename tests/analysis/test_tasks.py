import json

import numpy as np
import pandas as pd
import pytest
import torch

from lib.analysis.tasks import COLUMNS, accuracy, evaluate
from lib.errors import InputError
from lib.inputs import models, tasks
from lib.inputs.tasks import items
from lib.inputs.tasks.items import Item, placed, places

LETTERS = "bcdfghklmn"


def questions(n=12, key="one"):
    """Items whose answers are single letters, to be learnt by heart."""
    made = []
    for k, place in zip(range(n), places(n, 4, key), strict=True):
        right, others = LETTERS[k % 10], [LETTERS[(k + j) % 10] for j in (1, 3, 7)]
        made.append(Item(f"q{k}", "letters", f"Question {k:02}: ", placed(right, others, place), place))
    return made


@pytest.fixture
def files(tmp_path):
    """Write items, get {(task, language): path}."""
    return lambda made, task="letters", language="en": {
        (task, language): items.write(made, tmp_path / f"{task}-{language}.jsonl")}


@pytest.fixture(scope="module")
def scholar():
    """A tiny model that has learnt the answers of `questions` by heart."""
    model, tokenizer = models.load("tiny-llama")
    torch.manual_seed(0)
    ids = torch.tensor([tokenizer(item.context + item.options[item.answer])["input_ids"] for item in questions()])
    model.requires_grad_(True)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(150):
        loss = torch.nn.functional.cross_entropy(model(ids).logits[:, -2], ids[:, -1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.requires_grad_(False)
    return model, tokenizer


def test_a_model_that_knows_the_answers_is_always_right(scholar, files):
    answered = evaluate(*scholar, files(questions()))
    assert list(answered) == COLUMNS and answered["item"].tolist() == [i.id for i in questions()]
    assert accuracy(answered).loc[0, ["accuracy", "accuracy_norm", "stderr"]].tolist() == [1, 1, 0]
    untaught = evaluate(*models.load("tiny-llama"), files(questions()))
    assert untaught["correct"].mean() < 1


def test_a_uniform_model_is_right_by_chance(files):
    model, tokenizer = models.load("tiny-llama")
    with torch.no_grad():
        model.get_output_embeddings().weight.zero_()
    table = accuracy(evaluate(model, tokenizer, files(questions())))
    assert table.loc[0, ["accuracy", "accuracy_norm", "chance"]].tolist() == [0.25, 0.25, 0.25]
    assert table["n"][0] == 12


def test_shuffled_options_change_nothing_but_their_order(files):
    model, tokenizer = models.load("tiny-gemma3")
    first, second = (evaluate(model, tokenizer, files(questions(key=key), task=key)) for key in ("one", "other"))
    moved = 0
    for a, b, x, y in zip(questions(key="one"), questions(key="other"), first["loglikelihood"], second["loglikelihood"],
                          strict=True):
        moved += a.options != b.options
        assert dict(zip(a.options, x, strict=True)) == pytest.approx(dict(zip(b.options, y, strict=True)), abs=1e-4)
    assert moved > 6 and first["correct"].tolist() == second["correct"].tolist()


def test_the_pruned_model_answers_for_itself_and_nothing_is_remembered(files):
    from lib.pruning.driver import applied, prune

    model, tokenizer = models.load("tiny-llama")
    asked = files(questions())
    dense = evaluate(model, tokenizer, asked)
    with applied(model, prune(model, None, "magnitude", 0.6, group="row")):
        pruned = evaluate(model, tokenizer, asked)
    again = evaluate(model, tokenizer, asked)
    scores = [np.array(t["loglikelihood"].tolist()) for t in (dense, pruned, again)]
    assert np.abs(scores[0] - scores[1]).min() > 0
    assert (scores[0] == scores[2]).all()


def test_byte_length_decides_the_normalised_answer(files):
    """A loop over options, on text of unequal lengths, in bytes and not in characters."""
    model, tokenizer = models.load("tiny-qwen2")
    made = [Item(f"i{k}", "text", f"Satz {k}: ", ("ä" * (k + 1), "eine längere Antwort", "b"), k % 3) for k in range(6)]
    table = evaluate(model, tokenizer, files(made))
    assert table["answer"].tolist() == [0, 1, 2, 0, 1, 2]
    for item, scores, right, normed in zip(made, table["loglikelihood"], table["correct"], table["correct_norm"],
                                           strict=True):
        a_byte = [s / len(o.encode()) for s, o in zip(scores, item.options, strict=True)]
        assert right == (int(np.argmax(scores)) == item.answer)
        assert normed == (int(np.argmax(a_byte)) == item.answer)


def test_a_space_at_the_end_of_the_context_is_scored_with_the_answer(files):
    model, tokenizer = models.load("tiny-llama")
    made = [Item("a", "k", "The lamp is ", ("red", "green"), 0)]
    scores = evaluate(model, tokenizer, files(made))["loglikelihood"][0]
    for score, text in zip(scores, ("The lamp is red", "The lamp is green"), strict=True):
        ids = tokenizer(text)["input_ids"]
        with torch.no_grad():
            logs = model(torch.tensor([ids])).logits[0].double().log_softmax(1)
        naive = sum(float(logs[t - 1, ids[t]]) for t in range(len("The lamp is"), len(ids)))
        assert score == pytest.approx(naive, abs=1e-4)


def test_the_first_items_are_the_same_however_many_follow(files):
    model, tokenizer = models.load("tiny-llama")
    few, many = (evaluate(model, tokenizer, files(questions()), limit=n) for n in (5, None))
    assert few["item"].tolist() == many["item"].tolist()[:5]
    first, all_ = (np.array(table["loglikelihood"].tolist()) for table in (few, many))
    assert first == pytest.approx(all_[:5], abs=1e-4)


def test_knowledge_goes_through_the_whole_path(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "CACHE", tmp_path)
    model, tokenizer = models.load("tiny-gemma3")
    asked = {("knowledge", x): tasks.build("knowledge", x) for x in ("de", "sw")}
    answered = evaluate(model, tokenizer, asked, limit=20)
    table = accuracy(answered.assign(model="tiny"), by=["model"])
    assert len(answered) == 40 and set(answered["language"]) == {"de", "sw"}
    assert table["task"].value_counts().to_dict() == {"knowledge": 2, **{
        f"knowledge_{kind}": 2 for kind in ("continent", "capital", "neighbour", "language", "area")}}
    pooled = table[table["task"] == "knowledge"]
    assert pooled["chance"].tolist() == pytest.approx([0.24, 0.24]) and (pooled["n"] == 20).all()


def test_accuracy_by_hand():
    rows = pd.DataFrame({"language": "en", "task": "t", "kind": ["a", "a", "b", "b"], "item": list("wxyz"),
                         "correct": [1.0, 0, 1, 1], "correct_norm": [0.0, 0, 1, 0], "answer": 0,
                         "loglikelihood": [[1, 2], [1, 2], [1, 2, 3, 4], [1, 2, 3, 4]]})
    table = accuracy(rows).set_index("task")
    assert table.loc["t", ["accuracy", "accuracy_norm", "n", "chance"]].tolist() == [0.75, 0.25, 4, 0.375]
    assert table.loc["t", "stderr"] == pytest.approx(np.std([1, 0, 1, 1], ddof=1) / 2)
    assert table.loc["t_a", "accuracy"] == 0.5 and table.loc["t_b", "chance"] == 0.25
    generated = rows.assign(kind="a", correct_norm=np.nan, loglikelihood=[[]] * 4)
    assert accuracy(generated, chance={"t": 0.1})["chance"].tolist() == [0.1]
    assert accuracy(generated)[["chance", "accuracy_norm"]].isna().all(axis=None)


def test_what_cannot_be_scored_is_refused_before_a_model_is_touched(tmp_path):
    """There is no model here at all."""
    good = {"id": "a", "kind": "k", "context": "A ", "options": ["x", "y"], "answer": 0}
    for name, records, message in [("empty", [], "empty"), ("range", [good | {"answer": 2}], "answer is 2"),
                                   ("same", [good | {"options": ["x", "X"]}], "coincide")]:
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(r) + "\n" for r in records))
        with pytest.raises(InputError, match=message):
            evaluate(None, None, {("letters", "en"): path})
    with pytest.raises(InputError, match="no file"):
        evaluate(None, None, {("letters", "en"): tmp_path / "gone.jsonl"})
    with pytest.raises(InputError, match="no task was given"):
        evaluate(None, None, {})


def test_the_registry_of_the_installed_harness_has_every_name_of_ours():
    from lm_eval.tasks import TaskManager

    have = set(TaskManager().all_tasks)
    for task in set(tasks.names()) - set(tasks.TASKS):
        for language in tasks.coverage(task):
            assert tasks.registered(task, language) in have
    with pytest.raises(InputError, match="the harness has no task 'belebele_tlh'"):
        evaluate(None, None, {("belebele", "tlh"): "belebele_tlh"})
