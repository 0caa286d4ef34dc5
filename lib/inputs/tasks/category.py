"""To which category does a thing belong? Concrete concepts that CLDR names in every language, sorted by emojibase."""

import json
import tomllib
from collections.abc import Iterator
from functools import cache

from lib.inputs import assets, text
from lib.inputs.languages import PAPER
from lib.inputs.tasks import facts, templates
from lib.inputs.tasks.items import Item, placed, places, shuffled
from lib.paths import DATA

WORDS = 2  # of the English name; longer names describe a picture


def items(language: str) -> list[Item]:
    """One item a concept."""
    made = []
    concepts = shuffled(list(_concepts()), "category")
    for emoji, place in zip(concepts, places(len(concepts), 4, "category"), strict=True):
        category, others = _concepts()[emoji]
        name = templates.categories(language)
        context = templates.fill("category", language, _names(language)[emoji])
        made.append(Item(f"category:{emoji}", "category", context,
                         tuple(name[c] for c in placed(category, others, place)), place))
    return made


@cache
def _concepts() -> dict[str, tuple[str, list[str]]]:
    """Emoji -> (its category, three others): those that have a name of their own in every language, none of which
    contains one of the four categories' names."""
    concepts = dict(_sorted())
    names = {language: _names(language) for language in PAPER}
    own = {language: _once([names[language].get(e) for e in concepts]) for language in PAPER}
    made = {}
    for emoji, category in concepts.items():
        name = {language: names[language].get(emoji, "") for language in PAPER}
        if not all(n.casefold() in own[language] for language, n in name.items()):
            continue
        wrong = {c for c in templates.categories("en") if c != category}
        if facts.leaks(name, _category(category)):
            continue
        others = [c for c in shuffled(sorted(wrong), f"category:{emoji}") if not facts.leaks(name, _category(c))][:3]
        made[emoji] = category, others
    return made


def _category(category: str) -> dict[str, str]:
    return {language: templates.categories(language)[category] for language in PAPER}


def _once(names: list[str | None]) -> set[str]:
    folded = [n.casefold() for n in names if n]
    return {n for n in folded if folded.count(n) == 1}


def _sorted() -> Iterator[tuple[str, str]]:
    """(emoji, category) of what data/tasks/categories.toml gathers."""
    chosen = tomllib.loads((DATA / "tasks" / "categories.toml").read_text(encoding="utf-8"))
    out = set(chosen.pop("left_out"))
    category = {subgroup: name for name, subgroups in chosen.items() for subgroup in subgroups}
    folder = assets.fetch("emojibase")
    subgroups = json.loads((folder / "groups.json").read_text(encoding="utf-8"))["subgroups"]
    for record in json.loads((folder / "data.json").read_text(encoding="utf-8")):
        name, subgroup = record["label"], subgroups.get(str(record.get("subgroup")))
        if subgroup in category and name not in out and "face" not in name and len(name.split()) <= WORDS:
            yield record["emoji"].replace("\ufe0f", ""), category[subgroup]


@cache
def _names(language: str) -> dict[str, str]:
    """Emoji -> its short name in CLDR."""
    path = assets.fetch("cldr-annotations") / "package" / "annotations" / language / "annotations.json"
    records = json.loads(path.read_text(encoding="utf-8"))["annotations"]["annotations"]
    return {emoji: text.clean(record["tts"][0]) for emoji, record in records.items() if record.get("tts")}
