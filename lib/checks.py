"""What a study is refused for, before anything is loaded."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from lib.arms import Arm, parse
from lib.errors import InputError
from lib.inputs import corpora, languages, models, tasks

if TYPE_CHECKING:
    from lib.study import Study

BUDGETS = ("tokens", "segments", "rest")
DTYPES = ("float32", "mixed", "bfloat16")  # of the forward pass; lib.run.states says what "mixed" is


def check(study: Study) -> None:
    """Refuse what cannot be run, naming what is allowed."""
    for key in ("models", "languages", "evaluation_corpora", "methods", "seeds"):
        value = getattr(study, key)
        needed = key != "methods" or not study.checkpoints
        if (needed and not value) or len(set(value)) != len(value):
            raise InputError(f"{key} is {list(value)}; it needs at least one entry and none twice")
    if study.dtype not in DTYPES:
        raise InputError(f"dtype is {study.dtype!r}; allowed: {', '.join(DTYPES)}")
    if study.segments < 2:
        raise InputError(f"segments is {study.segments}; allowed: 2 or more")
    for name in study.models:
        models.check(name)
    for source in study.released().values():
        models.check(source)
    # The study's own settings are those of an arm that changes none; notebook 01 shows its text.
    for arm in (parse("wanda", asdict(study) | {"calibrations": study.calibration_sets()}), *study.arms()):
        _check_arm(arm, study)
    for corpus in study.evaluation_corpora:
        _check_text(corpus, "evaluation", study.languages)
    for corpus in study.parallel_corpora:
        _check_text(corpus, "parallel", study.languages)
    for entry in study.tasks:
        _check_task(entry, study)


def _check_task(entry: str, study: Study) -> None:
    """A task and its count; at least one of the study's languages must have it (the others are missing there)."""
    task, _, count = entry.partition("=")
    if task not in tasks.names() or not count.isdecimal() or int(count) < 2:
        raise InputError(f"task {entry!r} cannot be read; write the items to ask after the name, as knowledge=120; "
                         f"names: {', '.join(tasks.names())}")
    if not study.task_languages(task):
        raise InputError(f"task {task!r} has none of the languages {', '.join(study.languages)}, or no evaluation "
                         "corpus has the text that it is made from; leave it out of tasks")


def _check_arm(arm: Arm, study: Study) -> None:
    if not 0 < arm.sparsity < 1:
        raise InputError(f"sparsity is {arm.sparsity}; allowed: above 0 and below 1 (the share of weights removed)")
    for key, least in (("windows", 1), ("seqlen", 2)):
        if getattr(arm, key) < least:
            raise InputError(f"{key} is {getattr(arm, key)}; allowed: {least} or more")
    if arm.budget not in BUDGETS:
        raise InputError(f"budget is {arm.budget!r}; allowed: {', '.join(BUDGETS)}")
    for name in arm.models:
        if name not in study.models:
            raise InputError(f"{arm.method} is to be run on the model {name!r}; the study's: {', '.join(study.models)}")
        limit = models.context_length(name)
        if limit and arm.seqlen > limit:
            raise InputError(f"seqlen is {arm.seqlen}; {name} takes at most {limit} tokens")
    if not arm.needs_text:
        return
    _check_text(arm.calibration_corpus, "calibration", languages_of(arm.calibrations, study.languages))
    if "subspaces" in arm.tables and arm.calibration_corpus in {*corpora.ONE_TEXT} & {*study.parallel_corpora}:
        raise InputError(f"{arm.calibration_corpus} is both calibration_corpus and one of parallel_corpora, which are "
                         "the same sentences there; leave it out of parallel_corpora")


def _check_text(corpus: str, split: str, languages: tuple[str, ...]) -> None:
    """Every language must have text in the corpus."""
    if split not in corpora.splits(corpus):
        raise InputError(f"corpus {corpus!r} has no {split} text; its splits: {', '.join(corpora.splits(corpus))}")
    there = corpora.languages(corpus, split)
    for language in languages:
        if language not in there:
            raise InputError(f"language {language!r} has no {split} text in corpus {corpus!r}; "
                             f"allowed: {', '.join(there)}")


def languages_of(calibrations: tuple[str, ...], every: tuple[str, ...]) -> tuple[str, ...]:
    """The languages of calibration sets and mixtures, each once; "all" stands for `every`."""
    return tuple(dict.fromkeys(x for c in calibrations for x in languages.weights(c, every)))
