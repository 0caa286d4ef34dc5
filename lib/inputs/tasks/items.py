"""An item of a task, and files of them: one JSON object a line, in a fixed order that looks random.

    {"id": "capital:FR", "kind": "capital", "context": "The capital of France is ", "options": ["Rome", "Paris", ...],
     "answer": 1}

An `id` is the same question in every language. The first n items are a sample of all of them.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lib.errors import InputError

FIELDS = {"id": str, "kind": str, "context": str, "options": list, "answer": int}
HELP = "a line holds id, kind, context (strings), options (at least two, all different) and answer (index of one)"


@dataclass(frozen=True)
class Item:
    id: str
    kind: str  # what the item is about inside its task, such as the relation of a fact
    context: str  # ends in a space where the language puts one before the answer
    options: tuple[str, ...]
    answer: int


def shuffled(things: Sequence[str], key: str) -> list[str]:
    """The things in the order of a hash of each with the key: the same on every machine."""
    return sorted(things, key=lambda thing: hashlib.sha256(f"{key}\0{thing}".encode()).digest())


def places(n_items: int, n_options: int, key: str) -> list[int]:
    """Index of the answer for n items. In every run of n_options items each index stands once, in shuffled order,
    so that whoever always takes the same index is right by chance exactly."""
    indices = [str(k) for k in range(n_options)]
    runs = -(-n_items // n_options)
    return [int(k) for run in range(runs) for k in shuffled(indices, f"{key}{run}")][:n_items]


def placed(answer: str, others: Sequence[str], place: int) -> tuple[str, ...]:
    """The options with the answer at its place."""
    return (*others[:place], answer, *others[place:])


def merged(groups: Sequence[Sequence[Item]], key: str) -> list[Item]:
    """Items of several sources, all with as many options, in one shuffled order and with their answers placed anew."""
    every = {item.id: item for group in groups for item in group}
    order = [every[name] for name in shuffled(list(every), key)]
    made = []
    for item, place in zip(order, places(len(order), len(order[0].options) if order else 1, key), strict=True):
        others = item.options[:item.answer] + item.options[item.answer + 1:]
        made.append(replace(item, options=placed(item.options[item.answer], others, place), answer=place))
    return made


def write(items: Sequence[Item], path: Path) -> Path:
    """One line an item, whole or not at all. Raises InputError for what `read` would refuse."""
    _check([asdict(item) | {"options": list(item.options)} for item in items], path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(asdict(item), ensure_ascii=False) + "\n" for item in items)
    os.replace(temporary, path)
    return path


def read(path: Path) -> list[Item]:
    """The items of a file, checked. Raises InputError naming the line, for whatever cannot be scored."""
    if not path.is_file():
        raise InputError(f"there is no file of items at {path}; lib.inputs.tasks.build makes one")
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").removesuffix("\n").split("\n"), 1):
        try:
            records.append(json.loads(line))
        except ValueError as error:
            raise InputError(f"{path}, line {number} is not JSON ({error}), or the file is empty; {HELP}") from None
    _check(records, path)
    return [Item(**record | {"options": tuple(record["options"])}) for record in records]


def _check(records: Sequence[dict], path: Path) -> None:
    if not records:
        raise InputError(f"{path} would hold no item; {HELP}")
    seen: set[str] = set()
    for number, record in enumerate(records, 1):
        if reason := _fault(record, seen):
            name = record.get("id") if isinstance(record, dict) else record
            raise InputError(f"{path}, line {number} ({name!r}): {reason}; {HELP}")
        seen.add(record["id"])


def _fault(record: dict, seen: set[str]) -> str | None:
    """What is wrong with a record."""
    if not isinstance(record, dict) or set(record) != set(FIELDS):
        return f"it does not have exactly the fields {', '.join(FIELDS)}"
    if wrong := [f for f, kind in FIELDS.items() if type(record[f]) is not kind]:
        return f"{wrong[0]} is {record[wrong[0]]!r}"
    options = record["options"]
    if len(options) < 2 or not all(isinstance(o, str) and o.strip() for o in options):
        return f"the options are {options}"
    if len({o.strip().casefold() for o in options}) < len(options):
        return f"two options coincide: {options}"
    if not 0 <= record["answer"] < len(options):
        return f"the answer is {record['answer']}, and there are {len(options)} options (from 0)"
    if not record["context"].strip():
        return "the context is empty"
    return "the id stands there twice" if record["id"] in seen else None
