"""MKQA (Longpre et al., TACL 2021) as a choice among four short answers, from the hub or a folder of its layout.

The harness has no task for it. A question's wrong options are the answers to other questions of the same type.
"""

from functools import cache
from pathlib import Path

from lib.errors import AssetError, InputError
from lib.inputs import assets, languages, text
from lib.inputs.tasks import templates
from lib.inputs.tasks.items import Item, placed, places, shuffled

# Types of answers, in the order in which the dataset numbers them.
LABELS = ("entity", "long_answer", "unanswerable", "date", "number", "number_with_unit", "short_phrase", "binary")
# Types with one short answer; left out are long and missing answers, and yes or no.
TYPES = ("entity", "date", "number", "number_with_unit", "short_phrase")
QUESTIONS = 1000  # of the dataset's 10,000, the first in hash order


def items(language: str, place: Path | None = None) -> list[Item]:
    """One item a question. `place`: a folder with the dataset's parquet files; by default the hub.

    Raises InputError for a language MKQA does not have, AssetError when it cannot be read."""
    code = languages.external("mkqa", language)
    if language not in templates.languages("mkqa"):
        raise InputError(f"MKQA has no {language!r} here; it has {', '.join(templates.languages('mkqa'))}")
    asked = {i: a for i, record in _records(place).items() if (a := _asked(record, code))}
    ids = text.order(list(asked))
    found = {i: others for i in ids[:QUESTIONS] if len(others := _others(i, asked)) == 3}
    made = []
    for (i, others), place_of in zip(found.items(), places(len(found), 4, "mkqa"), strict=True):
        question, _, answers = asked[i]
        options = placed(answers[0], [asked[o][2][0] for o in others], place_of)
        made.append(Item(f"mkqa:{i}", "mkqa", templates.fill("mkqa", language, question), options, place_of))
    return made


@cache
def _records(place: Path | None) -> dict[str, dict]:
    """Id of a question -> its record."""
    from datasets import load_dataset

    pin = {"path": str(place)} if place else {k: assets.hub("mkqa")[k] for k in ("path", "revision")}
    try:
        return {str(record["example_id"]): record for record in load_dataset(**pin, split="train")}
    except Exception as error:  # the libraries below `datasets` raise network errors of kinds that share no base
        raise AssetError(f"MKQA ({pin['path']}) cannot be read: {type(error).__name__}: {error}. Check the network and "
                         "run the same command again, or leave the task out") from error


def _asked(record: dict, code: str) -> tuple[str, str, list[str]] | None:
    """(question, type of its answer, ways to write it), None where there is no short answer in the language."""
    question, answers = record["queries"].get(code), record["answers"].get(code) or []
    kinds = {a["type"] if isinstance(a["type"], str) else LABELS[a["type"]] for a in answers}
    ways = [text.clean(way) for a in answers for way in (a["text"], *(a.get("aliases") or ())) if way and way.strip()]
    if not question or not ways or len(kinds) != 1 or not kinds <= set(TYPES):
        return None
    return text.clean(question), kinds.pop(), ways


def _others(own: str, asked: dict[str, tuple[str, str, list[str]]]) -> list[str]:
    """Three other questions of the type whose answers differ from each other and from every way to write this one."""
    _, kind, ways = asked[own]
    taken, chosen = {w.casefold() for w in ways}, []
    for other in shuffled([o for o, (_, k, _) in asked.items() if k == kind and o != own], own):
        answer = asked[other][2][0].casefold()
        if answer not in taken:
            taken.add(answer)
            chosen.append(other)
        if len(chosen) == 3:
            break
    return chosen
