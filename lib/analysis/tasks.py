"""Multiple-choice tasks through the EleutherAI harness: files of items made by `lib.inputs.tasks`, or tasks of the
harness' own registry by name. lm_eval and torch are imported only where something is computed.
"""

import contextlib
import io
import logging
import tempfile
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from lib.errors import InputError
from lib.inputs.tasks import items
from lib.paths import DATA

COLUMNS = ["language", "task", "kind", "item", "correct", "correct_norm", "answer", "loglikelihood"]
FEWSHOT_SEED = 1234  # of the harness, for the examples that some of its tasks draw
BATCH = 128  # requests that are run at a time, options of one context together

Place = tuple[str, str]  # (task, language)


def evaluate(model, tokenizer, tasks: Mapping[Place, Path | str], limit: Mapping[Place, int] | int | None = None,
             batch_size: int = BATCH) -> pd.DataFrame:
    """One row an item with COLUMNS, of the first `limit` items of each task (of each part of a group of tasks).

    `tasks`: (task, language) -> file of items, or the name that a task or group of tasks has in the harness.
    `correct`: 1 if the right option has the highest log-likelihood given the context, else 0; `correct_norm`: the same
    for log-likelihood a byte of the option; `loglikelihood`: of each option, in nats; `answer`: index of the right one.
    Of tasks of the harness, `correct_norm` is by byte or character, as the task defines it; where the answer is
    generated `correct` is the exact match, and there are neither log-likelihoods nor `correct_norm`.

    Raises InputError for what cannot be scored (an empty or broken file, a name the harness does not know) before the
    model runs. Answers are never cached: the harness' own cache does not know which model it holds answers of.
    """
    from lm_eval import evaluator

    from lib.analysis.scoring import ScoredPositions

    if not tasks:
        raise InputError("no task was given; give at least one (task, language) with its file of items")
    for source in tasks.values():
        if isinstance(source, Path):
            items.read(source)
    most = {place: limit.get(place) if isinstance(limit, Mapping) else limit for place in tasks}
    with tempfile.TemporaryDirectory() as folder:  # the harness reads items through `datasets`, which keeps a copy
        loaded = _load(tasks, most, Path(folder))
    # It warns that a model came as an object, and draws a bar for every task; the study has its own progress.
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    scorer = ScoredPositions(model, tokenizer, batch_size)
    every = {name: task for parts in loaded.values() for name, task in parts.items()}
    asked = {name: list(range(len(part.eval_docs))[:most[place]])
             for place, parts in loaded.items() for name, part in parts.items()}
    with contextlib.redirect_stderr(io.StringIO()):  # `simple_evaluate` would describe the machine too, for a second
        done = evaluator.evaluate(scorer, {"tasks": every, "groups": {}}, samples=asked, bootstrap_iters=0)
    rows = [_row(place, name, sample) for place, parts in loaded.items() for name in parts
            for sample in sorted(done["samples"][name], key=lambda s: s["doc_id"])]
    return pd.DataFrame(rows, columns=COLUMNS)


def accuracy(task_items: pd.DataFrame, by: Sequence[str] = (), chance: Mapping[str, float] | None = None
             ) -> pd.DataFrame:
    """One row a language and task, and one a kind (`knowledge_capital`) where a task has several.

    `accuracy` and `accuracy_norm` (byte-length normalised): share of items answered rightly; `stderr` and
    `stderr_norm`: of these means, sqrt(a (1 - a) / (n - 1)); `n` items; `chance`: mean of one over the number of
    options. `by`: further columns that tell rows apart (model, method, ...). `chance`, the argument: that of tasks
    whose answers are generated and have no options to count, by task; NaN where it is not given."""
    options = task_items["loglikelihood"].map(len)
    generated = task_items["task"].map(dict(chance or {}).get).astype(float)
    rows = task_items.assign(chance=(1 / options.where(options > 0)).fillna(generated))
    several = rows.groupby("task")["kind"].transform("nunique") > 1
    kinds = rows[several]
    kinds = kinds.assign(task=kinds["task"] + "_" + kinds["kind"])
    groups = pd.concat([rows, kinds]).groupby([*by, "language", "task"], sort=False, dropna=False)
    table = groups.agg(accuracy=("correct", "mean"), accuracy_norm=("correct_norm", "mean"), n=("correct", "size"),
                       chance=("chance", "mean")).reset_index()
    for suffix in ("", "_norm"):
        share = table[f"accuracy{suffix}"]
        table[f"stderr{suffix}"] = np.sqrt(share * (1 - share) / (table["n"] - 1).where(table["n"] > 1))
    return table[[*by, "language", "task", "accuracy", "stderr", "accuracy_norm", "stderr_norm", "n", "chance"]]


def above_chance(right: int, n: int, chance: float, alpha: float = 0.05) -> bool:
    """Whether `right` of `n` answers are more than guessing gives (exact binomial test, one-sided)."""
    return bool(stats.binomtest(right, n, chance, "greater").pvalue < alpha)


def _load(tasks: Mapping[Place, Path | str], most: Mapping[Place, int | None], folder: Path) -> dict[Place, dict]:
    """(task, language) -> {name of the harness: its task}. `folder`: for what `datasets` writes while it reads a file
    of items, and for the first `most` items of each, since the harness goes through all it is given several times."""
    import yaml
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_defaults=not all(isinstance(s, Path) for s in tasks.values()))
    shape = yaml.safe_load((DATA / "tasks" / "multiple_choice.yaml").read_text(encoding="utf-8"))
    loaded = {}
    for (task, language), source in tasks.items():
        if isinstance(source, str):
            if source not in {*manager.all_tasks}:
                raise InputError(f"the harness has no task {source!r} ({task} in {language!r}); a file of items is "
                                 "given as a pathlib.Path, and `lm-eval ls tasks` lists what the harness has")
            spec: str | dict = source
        else:
            first = folder / f"{len(loaded)}.jsonl"
            with source.open("rb") as lines:
                first.write_bytes(b"".join(islice(lines, most[task, language])))
            spec = shape | {"task": f"{task}:{language}", "dataset_kwargs": {
                "data_files": {"test": str(first)}, "cache_dir": str(folder), "keep_in_memory": True}}
        with contextlib.redirect_stderr(io.StringIO()):
            loaded[task, language] = manager.load([spec])["tasks"]
        for part in loaded[task, language].values():
            if part.get_config("num_fewshot") is None:  # the harness' own default, which its tasks may change
                part.set_config("num_fewshot", 0)
            part.set_fewshot_seed(FEWSHOT_SEED)
    return loaded


def _row(place: Place, name: str, sample: dict) -> dict:
    doc, own = sample["doc"], name == ":".join(place)
    scores = [float(score) for score, _ in sample["filtered_resps"]] if "acc" in sample else []
    return {"language": place[1], "task": place[0], "kind": doc["kind"] if own else name,
            "item": doc["id"] if own else f"{name}:{sample['doc_id']}",
            "correct": float(sample["acc"] if "acc" in sample else sample["exact_match"]),
            "correct_norm": float(sample.get("acc_bytes", sample.get("acc_norm", np.nan))),
            "answer": sample["target"] if isinstance(sample["target"], int) else -1, "loglikelihood": scores}
