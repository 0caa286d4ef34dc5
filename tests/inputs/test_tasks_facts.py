import pytest

from lib.inputs.languages import PAPER
from lib.inputs.tasks import facts, knowledge


def asked(relation):
    return {fact.subject: fact for fact in knowledge.chosen()[relation]}


# What changed in the last years, or differs by source, and must not be asked as it once was.
@pytest.mark.parametrize("relation, codes", [
    ("capital", "BI KZ ID GQ LK IL CY ZA BO TZ NG MM CI"),
    ("language", "ML BF NE DZ KZ ER CY IL US AU MX NZ IE AF"),
    ("continent", "RU TR KZ EG CY GE AZ AM ID"),
    ("neighbour", "IL CY"),
    ("area", "RS MA"),
])
def test_what_is_disputed_or_changed_is_not_asked(relation, codes):
    assert not set(codes.split()) & set(asked(relation))


def test_territories_are_no_countries():
    assert not {"TW", "XK", "PS", "EH", "HK", "GL", "PR", "VA"} & set(facts.countries())
    assert 185 <= len(facts.countries()) <= 193


@pytest.mark.parametrize("a, b", [("IN", "LK"), ("CD", "TZ"), ("IN", "PK"), ("CN", "IN"), ("RU", "UA"), ("GY", "VE")])
def test_borders_in_water_or_dispute_are_neither_right_nor_wrong(a, b):
    for own, other in ((a, b), (b, a)):
        fact = asked("neighbour").get(own)
        assert fact is None or other not in (fact.answer, *fact.others)


def test_right_answers_are_right_and_wrong_ones_wrong():
    known = facts.countries()
    for fact in asked("neighbour").values():
        assert fact.answer in known[fact.subject].borders & known.keys() and fact.subject in known[fact.answer].borders
        assert not set(fact.others) & known[fact.subject].touching
    for fact in asked("language").values():
        assert fact.answer in known[fact.subject].official and not set(fact.others) & known[fact.subject].spoken
    for fact in asked("area").values():
        assert all(known[fact.answer].area >= 2 * known[o].area for o in fact.others)
    for fact in asked("capital").values():
        assert known[fact.subject].capital == fact.answer


@pytest.mark.parametrize("relation, code, answer", [
    ("capital", "FR", "Europe/Paris"), ("capital", "KE", "Africa/Nairobi"), ("capital", "JP", "Asia/Tokyo"),
    ("language", "BR", "pt"), ("language", "AT", "de"), ("language", "KE", "sw"), ("continent", "PE", "019"),
])
def test_well_known_facts(relation, code, answer):
    assert asked(relation)[code].answer == answer


def test_no_name_gives_the_answer_away():
    """Checked letter by letter: no four letters in a row of the subject's name stand in the answer's."""
    for relation in ("continent", "capital", "neighbour", "language"):
        name = knowledge.NAMES[relation]
        for fact in asked(relation).values():
            for language in PAPER:
                subject = facts.territory(fact.subject, language).casefold()
                for option in (fact.answer,) if relation == "continent" else (fact.answer, *fact.others):
                    told = name(option, language).casefold().removeprefix("ال")
                    n = 2 if language == "zh" else 4
                    for word in (w.removeprefix("ال") for w in subject.split() if w != "the"):
                        for k in range(len(word) - n + 1):
                            assert word[k:k + n] not in told, (subject, told)


def test_names_that_are_alike_are_found():
    assert facts.leaks({"en": "France", "de": "Frankreich"}, {"en": "French", "de": "Französisch"})
    assert facts.leaks({"en": "Chad", "zh": "法国"}, {"en": "Thai", "zh": "法语"})
    assert facts.leaks({"es": "Perú"}, {"es": "San Perucho"})
    assert facts.leaks({"ar": "السعودية"}, {"ar": "سعودي"})
    assert not facts.leaks({"en": "Austria", "zh": "奥地利"}, {"en": "German", "zh": "德语"})
