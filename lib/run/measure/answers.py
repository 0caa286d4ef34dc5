"""What a pruned model still answers: notebook 04."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from lib.analysis.tasks import above_chance, accuracy, evaluate
from lib.inputs import tasks
from lib.run import states, store
from lib.run.measure.rows import COMMON, labelled
from lib.run.store import Visit
from lib.study import Study, Variant

MIXTURE_TASKS = ("knowledge", "completion")


def task_items(study: Study, fresh: bool = False) -> pd.DataFrame:
    """One row an item of a task, language and variant: kind, item, correct, correct_norm, answer, loglikelihood (see
    lib.analysis.tasks.evaluate). With `only_above_chance`, pruned models are asked where the dense one knows better
    than to guess; elsewhere there are no rows of theirs. A dense model that guesses everywhere is no guide: then
    pruned ones are asked everywhere."""
    dense = _dense(study, fresh)
    pruned = _pruned(study, "task_items", "downstream", dense, tuple(study.task_items()), fresh)
    return pd.concat([frame for frame in (dense, pruned) if len(frame)] or [dense], ignore_index=True)


def mixture_items(study: Study, fresh: bool = False) -> pd.DataFrame:
    """As `task_items`, of models that were calibrated on mixtures of languages, for two tasks: one of what the model
    knows, one of the language itself. Dense models have no rows."""
    return _pruned(study, "mixture_items", "mixtures", _dense(study, fresh), MIXTURE_TASKS, fresh)


def downstream(study: Study, fresh: bool = False) -> pd.DataFrame:
    """One row a variant, language and task, and one a kind of a task that has several (`knowledge_capital`): accuracy,
    accuracy_norm, their standard errors, n, chance."""
    chance = {task: tasks.chance(task) for task in study.task_items()}
    return accuracy(task_items(study, fresh), COMMON, chance)


def _places(study: Study) -> dict[tuple[str, str], dict]:
    """What a cell needs, by task and language."""
    return {(task, language): {"task": task, "language": language, "items": count, "made": _made(study, task)}
            for task, count in study.task_items().items() for language in study.task_languages(task)}


def _dense(study: Study, fresh: bool) -> pd.DataFrame:
    places = list(_places(study).values())
    return _answers(study, "task_items", {study.dense(model): places for model in study.models}, fresh)


def _pruned(study: Study, table: str, grid: str, dense: pd.DataFrame, tasks_asked: tuple[str, ...], fresh: bool
            ) -> pd.DataFrame:
    """Answers of the pruned models of the `grid`, where the dense one's let them be asked."""
    places = _places(study)
    known = _above_chance(dense) if study.only_above_chance else dict.fromkeys(study.models, set(places))
    asked = {v: [cell for place, cell in places.items()
                 if place[0] in tasks_asked and place in (known.get(v.model) or places)]
             for v in study.pruned(grid)}
    return _answers(study, table, {v: cells for v, cells in asked.items() if cells}, fresh)


def _answers(study: Study, table: str, asked: dict[Variant, list[dict]], fresh: bool) -> pd.DataFrame:
    visits = [states.visit(study, variant, {table: cells}) for variant, cells in asked.items()]

    def compute(visit: Visit, missing: dict) -> Iterator[tuple[str, pd.DataFrame]]:
        cells = missing[table]
        sources = {(c["task"], c["language"]): _source(c["task"], c["language"], study.task_text(c["task"]), c["made"])
                   for c in cells.values()}
        limits = {(c["task"], c["language"]): c["items"] for c in cells.values()}
        with states.entered(study, visit.variant) as (model, tokenizer):
            answers = evaluate(model, tokenizer, sources, limits)
        answers["loglikelihood"] = answers["loglikelihood"].map(np.float32)  # to be kept; a float64 says no more
        by_place = dict(list(answers.groupby(["task", "language"])))
        yield table, pd.concat([
            labelled(cell, visit.variant, tokenizer, c["made"], by_place[c["task"], c["language"]].to_dict("records"))
            for cell, c in cells.items()], ignore_index=True)

    what = "tasks" if table == "task_items" else "tasks of mixtures"
    if not visits:
        return pd.DataFrame(columns=[*COMMON, "task", "language", "kind", "item", "correct"])
    return store.collect(study, what, visits, compute, fresh)[table]


def _made(study: Study, task: str) -> str:
    return tasks.fingerprint(task, study.task_text(task))


@cache
def _source(task: str, language: str, text: tuple[str, ...], made: str) -> Path | str:
    """The task's file of items or its name. Every variant is asked the same ones, and to find the hardest of them takes
    seconds; `made`, their fingerprint, sees to it that text which has changed is read anew."""
    return tasks.build(task, language, text) if task in tasks.TASKS else tasks.registered(task, language)


def _above_chance(dense: pd.DataFrame) -> dict[str, set[tuple[str, str]]]:
    """(task, language) pairs by model in which the dense model is above chance."""
    if dense.empty:  # not measured yet (see lib.run.store.planning)
        return {}
    known: dict[str, set] = {model: set() for model in dense["model"].unique()}
    for (model, task, language), rows in dense.groupby(["model", "task", "language"]):
        if above_chance(int(rows["correct"].sum()), len(rows), tasks.chance(task)):
            known[model].add((task, language))
    return known
