"""Many forward passes of a model side by side, block by block, so that each block is read once for all of them.

A pass stops where it calls a block and goes on when that block is in memory: passes are greenlets, of which one runs
at a time, so hooks, sums and their order are as if the passes were run one after the other. For a model that was loaded
whole they are.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from greenlet import getcurrent, greenlet
from torch import Tensor, nn

from lib.pruning import residency

BUDGET = 2_000_000_000  # bytes that jobs may hold while they wait for a block


class Job(NamedTuple):
    """What calls the model, once or several times. `held`: bytes it holds while it waits for a block, at most."""

    held: int
    run: Callable[[], Any]


def together(model: nn.Module, jobs: Iterable[Job], budget: int = BUDGET) -> Iterator[Any]:
    """The results of the jobs, in their order. Of a streamed model as many run together as hold at most `budget` bytes.
    An error in a job is raised here and ends the others."""
    stream = residency.stream_of(model)
    if stream is None:
        yield from (job.run() for job in jobs)
        return
    for some in _groups(jobs, budget):
        with stream.waiting(_wait):
            results = _run(stream, [greenlet(job.run) for job in some])
        yield from results


def forward(model: nn.Module, ids: Tensor, real: Tensor | None = None,
            after: Callable[[Tensor], Any] = lambda hidden: None, before: Callable[[], None] = lambda: None) -> Job:
    """The decoder's pass on token ids [batch, tokens] with an attention mask of that shape, or None. Its result: what
    `after(final hidden states)` gives."""
    def run() -> Any:
        before()
        return after(model.base_model(input_ids=ids.to(model.device), attention_mask=real, use_cache=False)[0])

    # Hidden states, those of a dense copy that may run beside it, masks and positions.
    return Job(4 * ids.numel() * model.config.get_text_config().hidden_size * model.dtype.itemsize, run)


def look(model: nn.Module, passes: Iterable[Job]) -> None:
    """Run them for the hooks that look on."""
    for _ in together(model, passes):
        pass


class Own:
    """A value that each job has for itself, as a hook sees it in whichever pass is running; outside of jobs there is
    one. It is the default until it is set."""

    def __init__(self, default: Any = None):
        self._default, self._values = default, WeakKeyDictionary()

    def set(self, value: Any) -> None:
        self._values[getcurrent()] = value

    def get(self) -> Any:
        return self._values.get(getcurrent(), self._default)


def _groups(jobs: Iterable[Job], budget: int) -> Iterator[list[Job]]:
    """Jobs, in order, as many at a time as hold the budget together, and one at least."""
    some: list[Job] = []
    for job in jobs:
        if some and sum(j.held for j in some) + job.held > budget:
            yield some
            some = []
        some.append(job)
    if some:
        yield some


def _wait(index: int) -> None:
    """A job is at this block: let the others run until the block is in memory."""
    getcurrent().parent.switch(index)


def _run(stream: residency.Stream, jobs: list[greenlet]) -> list[Any]:
    """Results of the jobs. Block after block, each job that waits for it runs until it calls the next."""
    results: dict[greenlet, Any] = {}
    waiting: dict[greenlet, int] = {}
    here, ready = 0, jobs
    try:
        while ready:
            for job in ready:
                given = job.switch()
                (results if job.dead else waiting)[job] = given
            if waiting:
                here = min(waiting.values(), key=partial(_distance, here, stream.count))
                stream.bring(here)
            ready = [job for job in jobs if waiting.get(job) == here]
            for job in ready:
                del waiting[job]
    finally:
        for job in jobs:
            if job:  # was begun and has not ended, as another one failed
                job.throw()
    return [results[job] for job in jobs]


def _distance(here: int, blocks: int, there: int) -> int:
    """How many blocks must come up before that one does, the first after the last."""
    return (there - here) % blocks
