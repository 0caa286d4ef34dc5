"""Prune a model: walk its blocks, choose what to remove. The model itself stays as it was."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from lib.errors import InputError
from lib.pruning import checks, residency
from lib.pruning.activations import Activations
from lib.pruning.blocks import Step, find_blocks, linear_layers, record_arguments, replay, weight_matrix
from lib.pruning.collect import Statistics, collecting
from lib.pruning.methods import METHODS, Method
from lib.pruning.pruned import Pruned, applied, mask_digest
from lib.pruning.scores import lowest, lowest_of_runs, run_of
from lib.pruning.statistics import STATISTICS

__all__ = ["Pruned", "Start", "applied", "prune"]


class Start:
    """What every method begins with on one model and one set of windows: the inputs of the first block, its
    dense outputs and the statistics of its inputs, each made once and when first needed.

    Token ids windows [n, seqlen]. Later blocks see what each method's own pruned blocks before them give. Valid
    as long as the model is as it was.
    """

    def __init__(self, model: nn.Module, windows: Tensor, batch_size: int = 8, hidden: Activations | None = None):
        checks.check_windows(model, windows, "wanda", batch_size)
        self.model = model
        self.recording = record_arguments(model, windows.split(batch_size), hidden)
        self._first: dict[str | None, tuple[list[Tensor], Statistics]] = {}

    def observe(self, step: Step, statistic: str | None, room: Callable[[Iterable[Tensor]], Iterable[Tensor]] = list
                ) -> tuple[Iterable[Tensor], Statistics]:
        """(outputs of the dense block, put into a `room`; {linear's name: statistic}) at this step of the walk."""
        if step.index == 0 and statistic in self._first:
            return self._first[statistic]
        make = STATISTICS[statistic] if statistic else None
        with collecting(step.name, step.block, make) if make else nullcontext(Statistics(())) as statistics:
            seen = room(step.forward()), statistics
        if step.index == 0:
            self._first[statistic] = seen
        return seen


@torch.no_grad()
def prune(model: nn.Module, windows: Tensor | Start | None, method: str, sparsity: float | None = None,
          pattern: str = "unstructured", group: str | None = None, batch_size: int = 8) -> Pruned:
    """Token ids windows [n, seqlen] -> the weights to remove from all linear layers of the decoder's blocks.

    All linears of a block see the dense block's inputs behind a pruned prefix; the pruned block then feeds
    the next one (as in the reference implementations of SparseGPT and Wanda). Output layer, embeddings, norms
    and biases are not touched. `sparsity`: share removed in each comparison group; of an n:m pattern it is
    1 - n / m and can be left out. `group`: None takes the method's published one. A method that scores weights
    alone takes windows=None and then runs nothing. Several methods share work through a `Start`. An expert of
    a mixture that no calibration token reached stays dense, which is said in a warning.
    In memory: two hidden states a calibration token, and one block's dense weights.

    Raises InputError before any work on what cannot be done; during it when activations are not finite, or
    when SparseGPT's Gram matrix is not positive definite.
    """
    job = Job(model, windows, method, sparsity, pattern, group, batch_size)
    result = job.empty()
    if job.start is None:
        for part in job.without_text():
            result.extend(part)
    else:
        replay(model, job.start.recording, lambda step: result.extend(job.part(step)))
    warn_of_unseen(result)
    return result


class Job:
    """A method on its way through a model's blocks. Arguments and errors: see `prune`."""

    def __init__(self, model: nn.Module, windows: Tensor | Start | None, method: str, sparsity: float | None,
                 pattern: str, group: str | None, batch_size: int = 8, hidden: Activations | None = None):
        sparsity, group = checks.check_request(method, sparsity, pattern, group)
        checks.check_model(model, method, pattern)
        if not isinstance(windows, Start):
            checks.check_windows(model, windows, method, batch_size)
        self.model, self._request = model, (method, sparsity, pattern, group)
        self._frozen = checks.pruned_before(model)
        text = windows is None or isinstance(windows, Start)
        self.start = windows if text else Start(model, windows, batch_size, hidden)

    def empty(self) -> Pruned:
        """Nothing pruned yet."""
        return Pruned({}, *self._request, [], [])

    @torch.no_grad()
    def part(self, step: Step, room: Callable[[Iterable[Tensor]], Iterable[Tensor]] = list) -> Pruned:
        """What is removed from the block of this step, which is then run on, pruned, to the next. The dense block's
        outputs are put into a `room` meanwhile."""
        result = self.empty()
        dense, statistics = self.start.observe(step, METHODS[result.method].statistic, room)
        with residency.changing(self.model) as put:
            _choose(result, step.index, step.name, step.block, statistics, self._frozen, put)
            result.block_errors.append({"layer": step.index, "error": _update_error(dense, step.advance())})
        return result

    def without_text(self) -> Iterator[Pruned]:
        """What is removed from each block by a method that scores weights alone."""
        name, blocks = find_blocks(self.model)
        for index, block in enumerate(blocks):
            residency.bring(self.model, index, alone=True)
            result = self.empty()
            _choose(result, index, f"{name}.{index}", block, Statistics(()), self._frozen, lambda W, new: None)
            residency.go_ahead(self.model)
            yield result


def _choose(result: Pruned, index: int, name: str, block: nn.Module, statistics: Statistics, frozen: set[str],
            put: Callable[[Tensor, Tensor], None]) -> None:
    """`put(weight, its new values)` for each linear of a block; its masks and rows are added to the result."""
    method = METHODS[result.method]
    values: dict[int, object] = {}  # by statistic: linears that share an input share it, and what is made of it
    for layer, linear in linear_layers(block).items():
        full, W, statistic = f"{name}.{layer}", weight_matrix(linear), statistics.get(layer)
        if not W.isfinite().all():
            raise InputError(f"the weights of layer {full} are not finite (NaN or infinity): the model is "
                             "damaged; load it anew, or in float32 if its dtype overflows")
        more = {"tokens": statistics.tokens[layer]} if layer in statistics.tokens else {}
        if method.statistic and statistic is None:  # no token came by, so nothing is known of its inputs
            more["tokens"] = 0
            removed, new = torch.zeros_like(W, dtype=torch.bool), W.clone()
        else:
            if method.statistic and id(statistic) not in values:
                values[id(statistic)] = _prepared(full, method, statistic)
            given = (values[id(statistic)],) if method.statistic else ()
            removed, new, facts = _decide(result, W, given, W == 0 if full in frozen else None)
            more |= facts
        if method.compensates:
            result.weights[full] = new[~removed].cpu()
        result.masks[full] = mask = (~removed).cpu()
        result.layers.append({"layer": index, "module": layer, "weights": W.numel(),
                              "removed": int(removed.count_nonzero()),
                              "zero_before": W.numel() - int(W.count_nonzero()),
                              "mask_digest": mask_digest(mask)[:16]} | more)
        put(W, new)


def _decide(result: Pruned, W: Tensor, given: tuple, frozen: Tensor | None) -> tuple[Tensor, Tensor, dict]:
    """W [out, in] and what its method is given of its inputs -> (removed [out, in], new values [out, in], facts for
    the row)."""
    method = METHODS[result.method]
    if method.compensates:
        removed, new, dead_zeros = method.function(W, *given, result.sparsity, result.pattern, frozen)
        (made,) = given
        return removed, new.to(W.dtype), {"damping": made.damping, "dead_inputs": int(made.dead.sum()),
                                          "dead_zeros": dead_zeros}
    score, run = method.function(W, *given), run_of(result.pattern)
    removed = lowest_of_runs(score, *run) if run else lowest(score, result.sparsity, result.group)
    return removed, W.masked_fill(removed, 0), {}


def warn_of_unseen(result: Pruned) -> None:
    """Say so where experts saw no calibration token."""
    unseen = [row for row in result.layers if row.get("tokens") == 0]
    if unseen:
        warnings.warn(f"{len(unseen)} of {len(result.layers)} linear layers saw no calibration token and stay dense, "
                      f"the first is {unseen[0]['module']} of block {unseen[0]['layer']}. They are experts that no "
                      "token was sent to: give more, or more varied, calibration text", stacklevel=3)


def _prepared(layer: str, method: Method, statistic) -> object:
    """The value of a statistic as the method takes it."""
    try:
        return method.prepare(statistic.value()) if method.prepare else statistic.value()
    except torch.linalg.LinAlgError as error:
        raise InputError(f"layer {layer}: {error}; give more calibration tokens, or check that its inputs are "
                         "not a constant") from error


def _update_error(dense: Iterable[Tensor], pruned: Iterable[tuple[Tensor, Tensor]]) -> float:
    """||B'(h) - B(h)||^2 / ||B(h) - h||^2 over batches; `dense` holds B(h), `pruned` gives (h, B'(h))."""
    change = update = 0.0
    for before, (hidden, after) in zip(dense, pruned, strict=True):
        before = before.float()
        change += (after.float() - before).square().sum(dtype=torch.float64).item()
        update += (before - hidden.float()).square().sum(dtype=torch.float64).item()
    if update == 0:  # a block that adds nothing
        return float("inf") if change else 0.0
    return change / update
