"""Downstream tasks as files of items, and the names of those that the harness brings.

    build("knowledge", "de")                       -> path of data/cache/tasks/....jsonl
    build("completion", "sw", ("chromium",))       -> the same, from a corpus of lib.inputs.corpora
    registered("belebele", "sw")                   -> "belebele_swh_Latn"

Nothing here imports torch or the harness.
"""

import hashlib
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from lib.errors import InputError
from lib.inputs import assets, corpora, languages
from lib.inputs.tasks import category, completion, faq, items, knowledge, mkqa, retrieval, templates
from lib.paths import CACHE, DATA

RECIPE = 1  # raise when the items of a task change by a change of this code


@dataclass(frozen=True)
class Task:
    """A task that is built here. `splits`: of the corpus its text comes from, any of them; none where it needs no
    corpus."""

    items: Callable[..., list[items.Item]]
    chance: float  # mean over items of one over the number of options
    splits: tuple[str, ...] = ()
    assets: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # of data/tasks


# Of knowledge, one item in five has five options.
TASKS: dict[str, Task] = {
    "knowledge": Task(knowledge.items, 0.24, packages=("babel", "countryinfo"),
                      files=("templates.toml", "corrections.toml")),
    "category": Task(category.items, 0.25, assets=("cldr-annotations", "emojibase"),
                     files=("templates.toml", "categories.toml")),
    "faq": Task(faq.items, 0.25, assets=("scratch",), files=("templates.toml",)),
    "retrieval": Task(retrieval.items, 0.25, splits=("parallel",), files=("templates.toml",)),
    "completion": Task(completion.items, 0.5, splits=completion.SPLITS),
    "completion_control": Task(completion.control, 0.5, splits=completion.SPLITS),
    "mkqa": Task(mkqa.items, 0.25, files=("templates.toml",)),
}


def names() -> tuple[str, ...]:
    """Every task: those built here, then those of the harness' registry."""
    return (*TASKS, *_hub())


def coverage(task: str, text: Sequence[str] = ()) -> tuple[str, ...]:
    """Languages that the task has; any other is missing, not zero. `text`: corpora, where the task needs one."""
    if task in _hub():
        return tuple(sorted(_hub()[task]["names"]))
    made = _task(task)
    if made.splits:
        there = set.intersection(*(_spoken(task, c) for c in _text(task, text)))
        return tuple(sorted(there & set(templates.languages(task)) if task == "retrieval" else there))
    return languages.PAPER if task in ("knowledge", "category") else templates.languages(task)


def chance(task: str) -> float:
    """Accuracy of guessing."""
    return _hub()[task]["chance"] if task in _hub() else _task(task).chance


def check(task: str, language: str, text: Sequence[str] = ()) -> None:
    """Raise InputError, before anything is built, for an unknown task or corpus and for a language it lacks."""
    if language not in coverage(task, text):
        raise InputError(f"task {task!r} has no {language!r}; it has {', '.join(coverage(task, text))}. Leave the two "
                         "apart: a task without a language is missing there")


def build(task: str, language: str, text: Sequence[str] = ()) -> Path:
    """The task's file of items in that language, in an order of which the first n are a sample.

    Raises InputError for what `check` refuses and for items that cannot be scored (no item at all, options that
    coincide), AssetError when a download that the task needs fails."""
    check(task, language, text)
    made = _task(task)
    found = items.merged([made.items(language, c) for c in text], task) if made.splits else made.items(language)
    return items.write(found, CACHE / "tasks" / f"{task}-{language}-{fingerprint(task, text)[:12]}.jsonl")


def registered(task: str, language: str) -> str:
    """Name in the harness' registry of one of its own tasks."""
    check(task, language)
    return _hub()[task]["names"][language]


def fingerprint(task: str, text: Sequence[str] = ()) -> str:
    """SHA-256 (hex) of everything that decides a task's items, without building or downloading them."""
    if task in _hub():
        return hashlib.sha256(f"{task}:{version('lm_eval')}:{_hub()[task]}".encode()).hexdigest()
    made = _task(task)
    parts = [task, str(RECIPE), *(f"{p}=={version(p)}" for p in made.packages), *(assets.pin(a) for a in made.assets),
             *(hashlib.sha256((DATA / "tasks" / f).read_bytes()).hexdigest() for f in made.files),
             *(f"{c}:{corpora.fingerprint(c)}" for c in (_text(task, text) if made.splits else ()))]
    if task == "mkqa":
        parts.append(str(assets.hub("mkqa")))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _task(task: str) -> Task:
    if task not in TASKS:
        kind = "comes from the harness' registry (lib.inputs.tasks.registered)" if task in _hub() else "is unknown"
        raise InputError(f"task {task!r} {kind}; allowed: {', '.join(names())}")
    return TASKS[task]


def _text(task: str, text: Sequence[str]) -> Sequence[str]:
    if not text:
        raise InputError(f"task {task!r} is made from text; name at least one corpus (chromium, or a folder of text)")
    for corpus in text:
        if not set(_task(task).splits) & set(corpora.splits(corpus)):
            raise InputError(f"corpus {corpus!r} has no {' or '.join(_task(task).splits)} text, which {task!r} is made "
                             f"from; its splits: {', '.join(corpora.splits(corpus))}")
    return text


def _spoken(task: str, corpus: str) -> set[str]:
    """Languages with text in a split that the task is made from."""
    return {x for split in _task(task).splits if split in corpora.splits(corpus)
            for x in corpora.languages(corpus, split)}


@cache
def _hub() -> dict[str, dict]:
    return tomllib.loads((DATA / "tasks" / "hub.toml").read_text(encoding="utf-8"))
