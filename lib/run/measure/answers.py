"""What a pruned model still answers: notebook 04."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from lib.analysis.tasks import above_chance, accuracy, evaluate
from lib.inputs import tasks
from lib.run import states, store
from lib.run.measure.rows import COMMON, labelled
from lib.run.store import Visit
from lib.study import Study, Variant


def task_items(study: Study, fresh: bool = False) -> pd.DataFrame:
    """One row an item of a task, language and variant: kind, item, correct, correct_norm, answer, loglikelihood (see
    lib.analysis.tasks.evaluate). With `only_above_chance`, pruned models are asked where the dense one knows better
    than to guess; elsewhere there are no rows of theirs. A dense model that guesses everywhere is no guide: then
    pruned ones are asked everywhere."""
    places = {(task, language): {"task": task, "language": language, "items": count, "made": _made(study, task)}
              for task, count in study.task_items().items() for language in study.task_languages(task)}
    grid = study.variants("downstream")
    dense = _answers(study, {v: list(places.values()) for v in grid if v.method == "dense"}, fresh)
    known = _above_chance(dense) if study.only_above_chance else {v.model: set(places) for v in grid}
    asked = {v: [cell for place, cell in places.items() if place in (known[v.model] or places)] for v in grid}
    pruned = _answers(study, {v: cells for v, cells in asked.items() if cells and v.method != "dense"}, fresh)
    return pd.concat([frame for frame in (dense, pruned) if len(frame)], ignore_index=True)


def downstream(study: Study, fresh: bool = False) -> pd.DataFrame:
    """One row a variant, language and task, and one a kind of a task that has several (`knowledge_capital`): accuracy,
    accuracy_norm, their standard errors, n, chance."""
    chance = {task: tasks.chance(task) for task in study.task_items()}
    return accuracy(task_items(study, fresh), COMMON, chance)


def _answers(study: Study, asked: dict[Variant, list[dict]], fresh: bool) -> pd.DataFrame:
    visits = [states.visit(study, variant, {"task_items": cells}) for variant, cells in asked.items()]

    def compute(visit: Visit, missing: dict) -> Iterator[tuple[str, pd.DataFrame]]:
        cells = missing["task_items"]
        sources = {(c["task"], c["language"]): _source(study, c["task"], c["language"]) for c in cells.values()}
        limits = {(c["task"], c["language"]): c["items"] for c in cells.values()}
        with states.entered(study, visit.variant) as (model, tokenizer):
            answers = evaluate(model, tokenizer, sources, limits)
        answers["loglikelihood"] = answers["loglikelihood"].map(np.float32)  # to be kept; a float64 says no more
        by_place = dict(list(answers.groupby(["task", "language"])))
        yield "task_items", pd.concat([
            labelled(cell, visit.variant, tokenizer, c["made"], by_place[c["task"], c["language"]].to_dict("records"))
            for cell, c in cells.items()], ignore_index=True)

    return store.collect(study, "tasks", visits, compute, fresh)["task_items"] if visits else pd.DataFrame()


def _made(study: Study, task: str) -> str:
    return tasks.fingerprint(task, study.task_text(task))


def _source(study: Study, task: str, language: str):
    return (tasks.build(task, language, study.task_text(task)) if task in tasks.TASKS
            else tasks.registered(task, language))


def _above_chance(dense: pd.DataFrame) -> dict[str, set[tuple[str, str]]]:
    """(task, language) pairs by model in which the dense model is above chance."""
    known: dict[str, set] = {model: set() for model in dense["model"].unique()}
    for (model, task, language), rows in dense.groupby(["model", "task", "language"]):
        if above_chance(int(rows["correct"].sum()), len(rows), tasks.chance(task)):
            known[model].add((task, language))
    return known
