import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from lib.analysis.likelihood import Head
from lib.analysis.scoring import ScoredPositions
from lib.errors import InputError
from lib.inputs import assets, models, tasks, tiny
from lib.inputs.languages import PAPER
from lib.inputs.tasks import items

CONTEXTS = ["A lamp stands", "The second context is longer than the window of sixteen tokens", "", "Third one x"]
OPTIONS = [" a", " on the table of the house by the river", "!", " bc"]
REQUESTS = [Instance("loglikelihood", {}, (c, o), k) for c in CONTEXTS for k, o in enumerate(OPTIONS)]


def plain(model, tokenizer, requests=REQUESTS):
    scorer = HFLM(pretrained=model, tokenizer=tokenizer, backend="causal", batch_size=3)
    return scorer.loglikelihood(requests, disable_tqdm=True)


def same(ours, theirs, tolerance):
    assert [first for _, first in ours] == [first for _, first in theirs]
    assert [score for score, _ in ours] == pytest.approx([score for score, _ in theirs], abs=tolerance)


@pytest.mark.parametrize("name", sorted(tiny.RECIPES))
@pytest.mark.parametrize("batch_size", [1, 5, 64])
def test_equals_the_plain_harness_on_every_architecture(name, batch_size):
    model, tokenizer = models.load(name)
    same(ScoredPositions(model, tokenizer, batch_size).loglikelihood(REQUESTS), plain(model, tokenizer), 1e-4)


def test_small_chunks_of_the_output_layer_give_the_same():
    model, tokenizer = models.load("tiny-llama")
    scorer = ScoredPositions(model, tokenizer, 4)
    scorer._head.chunk = 3
    same(scorer.loglikelihood(REQUESTS), plain(model, tokenizer), 1e-4)


def test_only_scored_positions_reach_the_output_layer(monkeypatch):
    model, tokenizer = models.load("tiny-qwen2")
    scorer, seen, logits = ScoredPositions(model, tokenizer, 64), [], Head.logits
    monkeypatch.setattr(Head, "logits", lambda head, states: seen.append(len(states)) or logits(head, states))
    scorer.loglikelihood(REQUESTS)
    # one state a context, and one for each further byte of a continuation
    assert sum(seen) == len(CONTEXTS) * (1 + sum(len(o) - 1 for o in OPTIONS))


def test_first_choices_are_told():
    model, tokenizer = models.load("tiny-llama")
    with torch.no_grad():
        following = model(torch.tensor([[tiny.BOS, *b"abc"]])).logits[0, -1].argmax()
    best, other = chr(int(following) % 128), chr((int(following) + 1) % 128)
    requests = [Instance("loglikelihood", {}, ("", "abc" + c), 0) for c in (best, other)]
    same(ScoredPositions(model, tokenizer, 2).loglikelihood(requests), plain(model, tokenizer, requests), 1e-4)


def test_what_cannot_be_scored_is_refused():
    model, tokenizer = models.load("tiny-llama")
    scorer = ScoredPositions(model, tokenizer, 2)
    with pytest.raises(InputError, match="600 tokens and the model takes 512"):
        scorer.loglikelihood([Instance("loglikelihood", {}, ("x" * 599, "y"), 0)])
    with pytest.raises(InputError, match="no token of its own"):
        scorer._loglikelihood_tokens([(("a", ""), [97], [])])


def test_a_model_that_continues_wrongly_is_refused():
    model, tokenizer = models.load("tiny-llama")
    for block in model.model.layers:  # so that much depends on the context
        block.self_attn.o_proj.weight.mul_(30)
    ScoredPositions(model, tokenizer, 2)
    forward = model.model.forward

    def forgetful(*words, **named):  # the context is lost from one call to the next
        named.pop("cache", None)
        return forward(*words, **named)

    model.model.forward = forgetful
    with pytest.raises(InputError, match="continue a context"):
        ScoredPositions(model, tokenizer, 2)


@pytest.mark.real
@pytest.mark.parametrize("name", sorted(models.KNOWN))
def test_equals_the_plain_harness_on_the_real_models_and_no_token_spans_context_and_answer(name, tmp_path, monkeypatch):
    if not assets.is_complete(name):
        pytest.skip(f"asset {name} is not in data/cache; `python -m lib.inputs.assets {name}` fetches it")
    monkeypatch.setattr(tasks, "CACHE", tmp_path)
    torch.set_float32_matmul_precision("highest")
    model, tokenizer = models.load(name)
    requests = []
    for language in PAPER:
        for item in items.read(tasks.build("knowledge", language)):
            for option in item.options:
                whole, before = (tokenizer.encode(t) for t in (item.context + option, item.context.rstrip()))
                assert whole[:len(before)] == before, (item.context, option)
        for item in items.read(tasks.build("knowledge", language))[:2]:
            requests += [Instance("loglikelihood", {}, (item.context, o), k) for k, o in enumerate(item.options)]
    same(ScoredPositions(model, tokenizer, 32).loglikelihood(requests), plain(model, tokenizer, requests), 2e-3)
