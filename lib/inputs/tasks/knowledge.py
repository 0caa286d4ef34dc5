"""Facts about countries as items: the same facts in every language, chosen once for all of them.

The wrong options are drawn from countries of the same continent where the question allows it; no option shares
its name with the country asked about, in any language.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest

from lib.inputs.languages import PAPER
from lib.inputs.tasks import facts, templates
from lib.inputs.tasks.items import Item, placed, places, shuffled

LARGER = 2.0  # the largest country is at least this many times the next


@dataclass(frozen=True)
class Fact:
    """A question and its options as codes, which every language has a name for."""

    relation: str
    subject: str
    answer: str
    others: tuple[str, ...]

    @property
    def id(self) -> str:
        return f"{self.relation}:{self.subject}"


def items(language: str) -> list[Item]:
    """Items of all relations, one of each in turn, so that any first n have each relation equally often."""
    by_relation = [_items(relation, language) for relation in RELATIONS]
    return [item for row in zip_longest(*by_relation) for item in row if item is not None]


def _items(relation: str, language: str) -> list[Item]:
    name = NAMES[relation]
    found = chosen()[relation]
    made = []
    for fact, place in zip(found, places(len(found), len(found[0].others) + 1, relation), strict=True):
        options = tuple(name(x, language) for x in placed(fact.answer, fact.others, place))
        subject = facts.territory(fact.subject, language)
        if relation == "area":
            subject = templates.separator(language).join(
                name(x, language) for x in shuffled([fact.answer, *fact.others], f"list {fact.id}"))
        made.append(Item(fact.id, relation, templates.fill(relation, language, subject), options, place))
    return made


@cache
def chosen() -> dict[str, list[Fact]]:
    """Relation -> its facts in hash order."""
    out = {relation: {**facts.corrections().get(relation, {}).get("left_out", {})} for relation in RELATIONS}
    return {relation: [fact for code in shuffled(list(facts.countries()), relation) if code not in out[relation]
                       for fact in find(facts.countries()[code]) if _is_clear(fact)]
            for relation, find in RELATIONS.items()}


def _is_clear(fact: Fact) -> bool:
    """Whether all options have a name, no two the same, in every language."""
    name = NAMES[fact.relation]
    return all(len({name(x, language).casefold() for x in (fact.answer, *fact.others)}) == len(fact.others) + 1
               for language in PAPER)


def _apart(relation: str, country: facts.Country, codes) -> list[str]:
    """Those whose name gives nothing away, in shuffled order."""
    subject = facts.named(facts.territory, country.code)
    order = shuffled(list(codes), f"{relation}:{country.code}")
    return [c for c in order if not facts.leaks(subject, facts.named(NAMES[relation], c))]


def _continent(country: facts.Country) -> Iterator[Fact]:
    others = shuffled(sorted(set(facts.CONTINENTS.values()) - {country.continent}), country.code)
    if _apart("continent", country, [country.continent]):
        yield Fact("continent", country.code, country.continent, tuple(others))


def _capital(country: facts.Country) -> Iterator[Fact]:
    elsewhere = {c.capital for c in _beside(country) if c.capital}
    others = _apart("capital", country, elsewhere)[:3]
    if country.capital and _apart("capital", country, [country.capital]) and len(others) == 3:
        yield Fact("capital", country.code, country.capital, tuple(others))


def _neighbour(country: facts.Country) -> Iterator[Fact]:
    doubted = {frozenset(pair.split()) for pair in facts.corrections()["neighbour"]["not_asked"]}
    near = [c for c in country.borders & facts.countries().keys() if frozenset((c, country.code)) not in doubted]
    answers = _apart("neighbour", country, near)
    others = _apart("neighbour", country, {c.code for c in _beside(country)} - country.touching)[:3]
    if answers and len(others) == 3:
        yield Fact("neighbour", country.code, answers[0], tuple(others))


def _language(country: facts.Country) -> Iterator[Fact]:
    asked = _languages()
    if country.official and country.official[0] in asked and _apart("language", country, country.official[:1]):
        others = _apart("language", country, asked - country.spoken)[:3]
        yield Fact("language", country.code, country.official[0], tuple(others))


def _area(country: facts.Country) -> Iterator[Fact]:
    out = facts.corrections()["area"]["left_out"]
    smaller = [c.code for c in facts.countries().values() if 0 < c.area * LARGER <= country.area and c.code not in out]
    if len(smaller) >= 3:
        yield Fact("area", country.code, country.code, tuple(shuffled(smaller, f"area:{country.code}")[:3]))


def _beside(country: facts.Country) -> list[facts.Country]:
    """The other countries of the continent."""
    return [c for c in facts.countries().values() if c.continent == country.continent and c.code != country.code]


@cache
def _languages() -> frozenset[str]:
    """Languages that are a country's first official one and have a name of their own everywhere."""
    first = {c.official[0] for c in facts.countries().values() if c.official}
    return frozenset(x for x in first if all(facts.tongue(x, language) for language in PAPER))


RELATIONS: dict[str, Callable[[facts.Country], Iterator[Fact]]] = {
    "continent": _continent, "capital": _capital, "neighbour": _neighbour, "language": _language, "area": _area}
NAMES: dict[str, Callable[[str, str], str]] = {
    "continent": facts.territory, "capital": facts.city, "neighbour": facts.territory, "language": facts.tongue,
    "area": facts.territory}
