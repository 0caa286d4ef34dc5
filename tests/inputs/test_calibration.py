import pytest
import torch
from datasets import Dataset

from lib.errors import InputError
from lib.inputs import tiny
from lib.inputs.calibration import common_segments, mixture, shares, shuffled, windows
from lib.inputs.languages import weights


@pytest.fixture(scope="module")
def tokenizer():
    return tiny.tokenizer()


def pool(language: str, n: int = 40, size: int = 20) -> Dataset:
    """Segments that name their language and number, so that a window shows where its text is from."""
    return Dataset.from_dict({"id": [f"s{k:03}" for k in range(n)],
                              "text": [f"{language}{k:03}".ljust(size, "x") for k in range(n)]})


def naive(dataset, n, seqlen, seed):
    """Byte by byte: the segments in the shuffled order, each followed by a line break, cut after BOS."""
    text = dict(zip(dataset["id"], dataset["text"], strict=True))
    stream = "".join(text[i] + "\n" for i in shuffled(sorted(text), seed)).encode()
    body = seqlen - 1
    return torch.tensor([[tiny.BOS, *stream[k * body:(k + 1) * body]] for k in range(n)])


@pytest.mark.parametrize(("n", "seqlen", "seed"), [(3, 32, 0), (5, 17, 42), (1, 2, 1)])
def test_windows_equal_a_byte_by_byte_reference(tokenizer, n, seqlen, seed):
    made = windows(pool("de"), tokenizer, n, seqlen, seed)
    assert torch.equal(made.ids, naive(pool("de"), n, seqlen, seed))
    assert made.tokens == n * (seqlen - 1)


def test_bytes_and_segments_count_what_is_in_the_windows(tokenizer):
    made = windows(pool("de", size=20), tokenizer, 2, 22, 0)  # two segments of 21 tokens fill two bodies of 21
    assert len(made.segments) == 2 and made.bytes == 40 and made.available == 40


def test_same_seed_same_bytes_other_seed_other_text(tokenizer):
    a, b, c = (windows(pool("de"), tokenizer, 4, 32, seed) for seed in (0, 0, 1))
    assert a.digest() == b.digest() != c.digest()


def test_languages_share_one_order_even_when_one_lacks_segments():
    ids = [f"s{k}" for k in range(50)]
    fewer = ids[::3]
    assert [i for i in shuffled(ids, 7) if i in set(fewer)] == shuffled(fewer, 7)


def test_too_little_text_says_how_many_windows_there_are(tokenizer):
    with pytest.raises(InputError, match="fill 27"):
        windows(pool("de"), tokenizer, 100, 32, 0)  # 40 segments of 21 tokens, 31 a window
    with pytest.raises(InputError, match="at least 1 window"):
        windows(pool("de"), tokenizer, 0, 32, 0)


def test_the_rest_has_no_segment_of_the_draw_and_fills_as_many_windows(tokenizer):
    draw, rest = (windows(pool("de"), tokenizer, 12, 32, 5, budget) for budget in ("tokens", "rest"))
    assert rest.ids.shape == draw.ids.shape == (12, 32)
    assert not set(draw.segments) & set(rest.segments)
    assert rest.segments == tuple(shuffled(pool("de")["id"], 5)[len(draw.segments):][:len(rest.segments)])
    with pytest.raises(InputError, match="Ask for at most"):
        windows(pool("de"), tokenizer, 14, 32, 5, "rest")


def test_equal_segments_budget_uses_the_same_ids_in_every_language(tokenizer):
    pools = {"de": pool("de", size=20), "sw": pool("sw", size=35)}
    keep = common_segments(pools, tokenizer, 10, 32, 0)
    de, sw = (windows(p, tokenizer, 10, 32, 0, "segments", keep) for p in pools.values())
    assert len(sw.ids) > len(de.ids), "the language with longer segments fills more windows"
    assert len(sw.ids) <= 10
    ids = [mixture({x: 10}, "unused", tokenizer, 32, 0, "segments", pools).segments for x in pools]
    assert set(ids[0]) <= set(keep) and set(ids[1]) <= set(keep)


def test_mixture_shares_the_budget_and_no_id_stands_in_two_languages(tokenizer):
    pools = {x: pool(x) for x in ("de", "en", "sw")}
    share = shares("all", list(pools), 8)
    assert share == {"de": 3, "en": 3, "sw": 2}
    made = mixture(share, "unused", tokenizer, 32, 0, pools=pools)
    assert made.ids.shape == (8, 32)
    text = [bytes(row[1:].tolist()).decode() for row in made.ids]
    by_language = {"de": text[:3], "en": text[3:6], "sw": text[6:]}
    numbers = {x: {piece[2:5] for line in lines for piece in line.split("\n") if piece.startswith(x)}
               for x, lines in by_language.items()}
    assert all(numbers.values())
    assert not numbers["de"] & numbers["en"] and not numbers["en"] & numbers["sw"]
    assert len(made.segments) == len(set(made.segments))


def test_mixture_of_one_is_the_single_language(tokenizer):
    alone = windows(pool("de"), tokenizer, 4, 32, 3)
    assert mixture({"de": 4}, "unused", tokenizer, 32, 3, pools={"de": pool("de")}).digest() == alone.digest()


def test_a_mixture_may_have_weights():
    assert shares("3en+de", [], 8) == {"en": 6, "de": 2}
    assert shares("en+2de+de-AT", [], 8) == {"en": 2, "de": 4, "de-AT": 2}
    assert shares("ar+100en+sw", [], 10) == {"en": 10}, "whose share is less than half a window has none"
    mix = "57ar+347de+2733en+433es+713ru+1sw+39zh"
    exact = {x: 64 * w / 4323 for x, w in weights(mix).items()}
    found = shares(mix, [], 64)
    assert sum(found.values()) == 64 and all(abs(found.get(x, 0) - e) < 1 for x, e in exact.items())


def test_segments_of_a_mixture_are_dealt_by_its_weights(tokenizer):
    pools = {x: pool(x) for x in ("de", "en")}
    uneven = mixture({"de": 2, "en": 14}, "unused", tokenizer, 32, 0, pools=pools)
    assert uneven.ids.shape == (16, 32) and len(uneven.segments) == len(set(uneven.segments))
    even = mixture({"de": 3, "en": 3}, "unused", tokenizer, 32, 0, pools=pools)
    order = shuffled(pools["de"]["id"], 0)
    used = [order.index(i) for i in even.segments]
    first = [k for k in used if k % 2 == 0]
    assert used[:len(first)] == first == list(range(0, 2 * len(first), 2)), "in turn where shares are equal"


@pytest.mark.parametrize("written", ["de+de", "2de+de", "0de+en", "de+", "3", ""])
def test_mixtures_that_cannot_be_read_are_refused(written):
    with pytest.raises(InputError, match="write each language of a mixture once"):
        shares(written, [], 4)


def test_impossible_mixtures_are_refused():
    with pytest.raises(InputError, match="shared out"):
        shares("de+en+sw", [], 2)
