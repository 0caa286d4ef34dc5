"""Countries and what is true of them, from countryinfo (facts) and CLDR (names, official languages).

What is wrong, disputed or in transition is corrected or left out by data/tasks/corrections.toml.
"""

import re
import tomllib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from lib.inputs.languages import PAPER
from lib.paths import DATA

CONTINENTS = {"Africa": "002", "Americas": "019", "Asia": "142", "Europe": "150", "Oceania": "009"}  # UN M49
SHARED = 4  # letters in a row that two names may not share; see `leaks`
PER_CENT = 1.0  # share of speakers from which a language counts as spoken in a country


@dataclass(frozen=True)
class Country:
    code: str  # ISO 3166, two letters
    continent: str
    capital: str | None  # a time zone of CLDR, named after the city
    area: float  # square kilometres; 0 where unknown
    borders: frozenset[str]  # both sides list it
    touching: frozenset[str]  # at least one side lists it, or it is disputed
    official: tuple[str, ...]  # by law, most spoken first
    spoken: frozenset[str]


@cache
def corrections() -> dict:
    """data/tasks/corrections.toml."""
    return tomllib.loads((DATA / "tasks" / "corrections.toml").read_text(encoding="utf-8"))


@cache
def countries() -> dict[str, Country]:
    """Code -> country, the member states of the United Nations but for those left out."""
    from countryinfo import CountryInfo

    out = {*corrections()["territories"]["not_states"].split(), *corrections()["territories"]["left_out"]}
    # Parts of states (Wales) and old names (Burma) repeat a code; they have no number of their own.
    records = {r["ISO"]["alpha2"]: r for r in CountryInfo.all().values() if "numeric" in r["ISO"]}
    code = {r["ISO"]["alpha3"]: c for c, r in records.items()}
    listed = {c: {code[b] for b in r.get("borders") or () if b in code} for c, r in records.items()}
    disputed = [pair.split() for pair in corrections()["neighbour"]["not_wrong"]]
    made = {}
    for c in sorted(set(records) - out):
        near = listed[c] | {o for o in listed if c in listed[o]} | {o for pair in disputed if c in pair for o in pair}
        official, spoken = _languages(c)
        made[c] = Country(c, CONTINENTS[records[c]["region"]], _capital(c, records[c].get("capital")),
                          records[c].get("area") or 0.0, frozenset(o for o in listed[c] if c in listed[o]),
                          frozenset(near), official, spoken)
    return made


def _languages(country: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """(official by law, most spoken first; all that are spoken or official)."""
    from babel.core import get_global

    known = get_global("territory_languages").get(country, {})
    ranked = sorted(known, key=lambda x: (-known[x]["population_percent"], x))
    official = tuple(x for x in ranked if known[x]["official_status"] == "official")
    spoken = {x.split("_")[0] for x in ranked
              if known[x]["population_percent"] >= PER_CENT or known[x]["official_status"]}
    return official, frozenset(spoken)


def _capital(country: str, capital: str | None) -> str | None:
    """The country's time zone whose exemplar city is the capital."""
    from babel.core import get_global

    zones = get_global("territory_zones").get(country, ())
    return next((z for z in zones if capital and _plain(city(z, "en")) == _plain(capital)), None)


# --- names -------------------------------------------------------------------------------------------------

@cache
def _locale(language: str):
    from babel import Locale

    return Locale.parse(language)


def territory(code: str, language: str) -> str:
    """Name of a country or continent, as it stands inside a sentence."""
    names = corrections()["names"].get(language, {})
    return names.get(code) or _locale(language).territories[code]


def city(zone: str, language: str) -> str:
    """Exemplar city of a time zone; where CLDR has none, it is the zone's own name."""
    own = _locale(language).time_zones.get(zone, {}).get("city")
    return own or zone.rsplit("/", 1)[1].replace("_", " ")


def tongue(code: str, language: str) -> str | None:
    """Name of a language, None where CLDR has none."""
    return _locale(language).languages.get(code)


# --- names that give the answer away -----------------------------------------------------------------------

def leaks(a: dict[str, str], b: dict[str, str]) -> bool:
    """Whether two things' names, by language, are alike in any language: SHARED letters in a row, accents apart, or
    words that begin with the same three (Frankreich, Französisch); in Chinese two characters in a row, or the
    first (法国, 法语)."""
    return any(_alike(a[x], b[x], x) for x in a)


def _alike(a: str, b: str, language: str) -> bool:
    if language == "zh":
        return a[0] == b[0] or bool(_runs([a], 2) & _runs([b], 2))
    first, second = _words(a), _words(b)
    return (bool(_runs(first, SHARED) & _runs(second, SHARED))
            or any(v[:SHARED - 1] == w[:SHARED - 1] and len(v) >= SHARED - 1 for v in first for w in second))


def _runs(words: Iterable[str], n: int) -> set[str]:
    return {w[k:k + n] for w in words for k in range(len(w) - n + 1)}


def _words(name: str) -> list[str]:
    """Words in plain letters, without the Arabic article and words of joining."""
    words = re.findall(r"\w+", _plain(name))
    return [w.removeprefix("ال") for w in words if w not in ("the", "und", "and", "las", "los", "san", "saint")]


def _plain(name: str) -> str:
    """Small letters without accents."""
    decomposed = unicodedata.normalize("NFKD", name.casefold())
    return "".join(c for c in decomposed if not unicodedata.combining(c))


def named(name, code: str) -> dict[str, str]:
    """Names of one thing in the paper's languages."""
    return {language: name(code, language) for language in PAPER}
