"""The harness' model class, with only the scored positions reaching the output layer.

The harness runs every request whole and computes logits over the whole vocabulary for each of its positions, then
looks at those of the continuation. With 262,144 words that is most of the work. `ScoredPositions` takes the harness'
own requests, bucketed and ordered by the harness' own Collator, and computes the same log-likelihoods with each
context run once for all its options, and logits only where a token of a continuation is predicted.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate

import torch
from lm_eval.models.huggingface import HFLM
from lm_eval.models.utils import Collator
from torch import Tensor
from tqdm import tqdm
from transformers import DynamicCache

from lib.analysis.likelihood import Head
from lib.errors import InputError
from lib.pruning.lockstep import Job, together

PADDED = 64  # tokens of padding that cost about as much as one more call of the model
Request = tuple[tuple[str, str], list[int], list[int]]  # ((context, continuation), their token ids)


class ScoredPositions(HFLM):
    """HFLM of a loaded causal model and its tokenizer, for log-likelihood requests.

    Nothing is kept from one call to the next: the keys and values of a context live as long as its batch. Raises
    InputError for a model whose logits `lib.analysis.likelihood.Head` does not know how to compute or that gives
    something else when it continues a context, and for a request that is longer than the model's context (the
    harness would cut off its beginning).
    """

    def __init__(self, model, tokenizer, batch_size: int):
        super().__init__(pretrained=model, tokenizer=tokenizer, backend="causal", batch_size=batch_size)
        self._head = Head(model)
        self._compare()

    @torch.inference_mode()
    def _loglikelihood_tokens(self, requests: Sequence[Request], disable_tqdm: bool = False,
                              override_bs: int | None = None) -> list[tuple[float, bool]]:
        """(log-likelihood in nats, whether it is the model's first choice at every token) of each continuation."""
        for (context, continuation), before, after in requests:
            if not after:
                raise InputError(f"{continuation!r} after {context!r} has no token of its own: the tokenizer joins it "
                                 "with the end of the context; end the context in a space or a mark")
            if (tokens := len(before) + len(after)) > self.max_length + 1:
                raise InputError(f"{context + continuation!r} has {tokens} tokens and the model takes "
                                 f"{self.max_length}; leave this task out or take a model with a longer context")
        buckets = Collator(requests, sort_fn=lambda request: (request[1], len(request[2])),
                           group_fn=lambda request: {"context": len(request[1])}, group_by="gen_kwargs")
        answers: list[tuple[float, bool]] = []
        waiting: list[tuple[Tensor, Tensor, list[list[int]]]] = []
        with tqdm(total=len(requests), disable=disable_tqdm, desc="log-likelihood requests", mininterval=5) as bar:
            batches = (self._job([(before, after) for _, before, after in batch])
                       for batch in buckets.get_batched(n=override_bs or self.batch_size))
            for states in together(self.model, batches):
                waiting.append(states)
                # The output layer's weights are most of the model: they are read for as many states as fit at a time.
                if sum(len(states) for states, _, _ in waiting) >= self._head.chunk:
                    answers += self._answers(waiting)
                    waiting.clear()
                bar.update(len(states[2]))
            answers += self._answers(waiting)
        return buckets.get_original(answers)

    def _answers(self, waiting: list[tuple[Tensor, Tensor, list[list[int]]]]) -> list[tuple[float, bool]]:
        """Answers to the requests of some batches, from what `_states` gave for each."""
        if not waiting:
            return []
        offsets = accumulate((len(states) for states, _, _ in waiting), initial=0)
        index = torch.cat([index + offset for (_, index, _), offset in zip(waiting, offsets, strict=False)])
        afters = [after for _, _, afters in waiting for after in afters]
        targets = torch.tensor([token for after in afters for token in after], device=self.device)
        scores, first = self._head_scores(torch.cat([states for states, _, _ in waiting]), index, targets)
        sizes = [len(after) for after in afters]
        return [(float(s.sum()), bool(f.all())) for s, f in zip(scores.split(sizes), first.split(sizes), strict=True)]

    def _job(self, pairs: list[tuple[list[int], list[int]]]) -> Job:
        """`_states` of these requests; it holds the keys and values of contexts and continuations."""
        config = self.model.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        tokens = 2 * sum(len(before) + len(after) for before, after in pairs)
        return Job(tokens * 2 * heads * width * config.num_hidden_layers * self.model.dtype.itemsize,
                   partial(self._states, pairs))

    def _states(self, pairs: list[tuple[list[int], list[int]]]) -> tuple[Tensor, Tensor, list[list[int]]]:
        """Requests whose contexts have the same number of tokens -> (final hidden states [n, hidden], for each token
        of each continuation the state that predicts it, the continuations). The states are the last of each context,
        then those of the continuations that are longer than one token.

        Continuations are padded on the right, where a causal model does not see it."""
        afters = [after for _, after in pairs]
        contexts = {before: k for k, before in enumerate(dict.fromkeys(tuple(before) for before, _ in pairs))}
        of_row = [contexts[tuple(before)] for before, _ in pairs]
        cache = DynamicCache(config=self.model.config)
        states = [self._run(torch.tensor(list(contexts), device=self.device), cache)[:, -1]]
        start, end = {}, len(contexts)
        for rows in _alike({row: len(after) - 1 for row, after in enumerate(afters) if len(after) > 1}):
            longest = len(afters[rows[-1]]) - 1
            ids = [afters[row][:-1] + [0] * (longest - len(afters[row]) + 1) for row in rows]
            own = copy.deepcopy(cache)
            # An index on the CPU suits every block's cache, on whichever device the block is.
            own.batch_select_indices(torch.tensor([of_row[row] for row in rows]))
            hidden = self._run(torch.tensor(ids, device=self.device), own)
            for k, row in enumerate(rows):
                states.append(hidden[k, :len(afters[row]) - 1])
                start[row], end = end, end + len(afters[row]) - 1
        index = [s for row, after in enumerate(afters)
                 for s in (of_row[row], *(start.get(row, 0) + k for k in range(len(after) - 1)))]
        return torch.cat(states), torch.tensor(index, device=self.device), afters

    def _run(self, ids: Tensor, cache: DynamicCache) -> Tensor:
        """Final hidden states [batch, tokens, hidden] of ids that follow what is in the cache."""
        return self.model.base_model(input_ids=ids, cache=cache, use_cache=True).last_hidden_state

    def _head_scores(self, states: Tensor, index: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """States [n, hidden], ids targets [m] and the state index [m] that predicts each -> (ln p(target) [m],
        whether it has the highest logit [m])."""
        scores = torch.empty(len(targets), device=self.device)
        first = torch.empty(len(targets), dtype=torch.bool, device=self.device)
        for k, chunk in enumerate(states.split(self._head.chunk)):
            logits = self._head.logits(chunk)
            here = index.div(self._head.chunk, rounding_mode="floor") == k
            row, token = index[here] - k * self._head.chunk, targets[here]
            chosen, highest = logits[row, token], logits.amax(1)
            total = logits.sub_(highest[:, None]).exp_().sum(1)  # in place: logits are the largest tensor by far
            scores[here] = chosen - (highest + total.log())[row]
            first[here] = chosen == highest[row]
        return scores, first

    @torch.inference_mode()
    def _compare(self) -> None:
        """Refuse a model that does not continue a context as it computes the whole."""
        ids = [k * 7 % self.model.config.get_text_config().vocab_size for k in range(8)]
        (ours, _), = self._answers([self._states([(ids[:5], ids[5:])])])
        logits = self.model(torch.tensor([ids], device=self.device), use_cache=False).logits[0].float()
        theirs = float(logits[4:7].log_softmax(1)[range(3), ids[5:]].sum())
        if abs(ours - theirs) > 0.02 * max(1.0, abs(theirs)):
            raise InputError(f"{type(self.model).__name__} does not continue a context as it computes the whole "
                             f"(log-likelihood {ours:.4g} against {theirs:.4g}); tasks cannot be scored with it")


def _alike(lengths: Mapping[int, int]) -> Iterator[list[int]]:
    """Rows by length, in runs in which less than PADDED tokens would be padding."""
    run: list[int] = []
    waste = 0
    for row in sorted(lengths, key=lambda r: (lengths[r], r)):
        grows = len(run) * (lengths[row] - lengths[run[-1]]) if run else 0
        if waste + grows > PADDED:
            yield run
            run, waste, grows = [], 0, 0
        waste += grows
        run.append(row)
    if run:
        yield run
