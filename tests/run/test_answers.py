"""Tasks in the grid: what is asked of whom, and that answers are those of the model in its state."""

import numpy as np
import pandas as pd
import pytest

from lib.analysis.tasks import evaluate
from lib.errors import InputError
from lib.inputs import tasks
from lib.run import measure, states
from lib.run.measure import answers
from lib.study import Study

SETTINGS = {"models": "tiny-llama", "tasks": "knowledge=6,completion=4", "seeds": "0", "calibrations": "de,sw",
            "methods": "wanda"}


pytestmark = pytest.mark.usefixtures("own_cache")


def test_every_item_is_asked_of_every_variant():
    study = Study.load("quick", **SETTINGS)
    items = measure.task_items(study)
    sizes = items.groupby(["method", "calibration", "task", "language"]).size()
    assert len(sizes) == 3 * 2 * 3
    assert set(sizes.xs("knowledge", level="task")) == {6} and set(sizes.xs("completion", level="task")) == {4}
    asked = items.groupby(["task", "language"])["item"].agg(set)
    knowledge = asked.xs("knowledge", level="task")
    assert knowledge["de"] == knowledge["sw"] == knowledge["en"], "parallel items"
    table = measure.downstream(study)
    whole = table[table["task"] == "completion"].merge(
        items.groupby(["cell"])["correct"].mean().rename("share").reset_index(), on="cell")
    assert len(whole) == 9 and whole["accuracy"].equals(whole["share"])


def test_answers_are_those_of_the_pruned_model():
    study = Study.load("quick", **SETTINGS)
    items = measure.task_items(study)
    variant = next(v for v in study.variants("downstream") if v.calibration == "sw")
    source = {("completion", "de"): tasks.build("completion", "de", study.task_text("completion"))}
    with states.entered(study, variant) as (model, tokenizer):
        expected = evaluate(model, tokenizer, source, 4)
    rows = items[(items["calibration"] == "sw") & (items["task"] == "completion") & (items["language"] == "de")]
    assert rows["item"].tolist() == expected["item"].tolist()
    mine, theirs = (np.stack(frame["loglikelihood"]) for frame in (rows, expected))
    assert np.allclose(mine, theirs, rtol=1e-5)


def test_pruned_models_are_asked_where_the_dense_one_knows():
    study = Study.load("quick", **SETTINGS, only_above_chance="true")
    items = measure.task_items(study)
    dense, pruned = items[items["method"] == "dense"], items[items["method"] != "dense"]
    assert len(dense) == 3 * (6 + 4)
    asked = set(zip(pruned["task"], pruned["language"], strict=True))
    known = answers._above_chance(dense)["tiny-llama"]
    assert asked == (known or set(zip(dense["task"], dense["language"], strict=True)))


def test_above_chance_is_told_by_a_binomial_test():
    rows = [{"model": "m", "task": "completion", "language": language, "correct": float(k < right)}
            for language, right in (("de", 32), ("sw", 30), ("en", 20)) for k in range(50)]
    known = answers._above_chance(pd.DataFrame(rows))
    assert known == {"m": {("completion", "de")}}, "32 of 50 has p = 0.032, 30 of 50 has p = 0.10"


@pytest.mark.parametrize(("given", "message"), [
    ("knowledge", "write the items to ask"), ("knowledge=0", "knowledge=120"), ("wisdom=10", "names: knowledge"),
    ("hellaswag=10", None), ("faq=5", None)])
def test_tasks_that_cannot_be_asked_are_refused(given, message):
    if message is None:
        assert Study.load("quick", tasks=given).task_items()
        return
    with pytest.raises(InputError, match=message):
        Study.load("quick", tasks=given)


def test_a_task_without_any_of_the_languages_is_refused():
    with pytest.raises(InputError, match="none of the languages"):
        Study.load("quick", tasks="retrieval=4", languages="en", calibrations="en", methods="wanda")
    with pytest.raises(InputError, match="only_above_chance is 'perhaps'"):
        Study.load("quick", only_above_chance="perhaps")
