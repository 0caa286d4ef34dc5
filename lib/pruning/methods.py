"""The table of pruning methods. To add one, write a pure function of tensors and a line here."""

from collections.abc import Callable
from typing import NamedTuple

from lib.errors import InputError
from lib.pruning.scores import magnitude_score, ria_score, run_of, wanda_score
from lib.pruning.sparsegpt import factor, sparsegpt

RUN = "run"  # the comparison group of every n:m pattern: m consecutive inputs of a row


class Method(NamedTuple):
    """How a method decides.

    `function(W [out, in])`, or `function(W, value)` when the method needs the `statistic` of that name of
    `lib.pruning.statistics`, gives a score [out, in], the lowest of which are removed. With `compensates` it
    is called as `function(W, value, sparsity, pattern, frozen)` and gives a `lib.pruning.sparsegpt.Solution`.
    `groups`: which weights may be compared with each other, the published choice first.
    `prepare(value)`: work on the statistic that is done once for the linears that share an input.
    """

    function: Callable
    statistic: str | None
    groups: tuple[str, ...]
    prepare: Callable | None = None
    compensates: bool = False


METHODS = {
    "magnitude": Method(magnitude_score, None, ("matrix", "row")),
    "wanda": Method(wanda_score, "input_norm", ("row", "matrix")),
    "ria": Method(ria_score, "input_norm", ("row", "matrix")),
    "sparsegpt": Method(sparsegpt, "gram", ("block",), prepare=factor, compensates=True),
}


def group_of(method: str, pattern: str, group: str | None) -> str:
    """The comparison group: of an n:m pattern the run, else the one asked for, else the published one.

    Raises InputError for an unknown method, pattern or group.
    """
    if method not in METHODS:
        raise InputError(f"method is {method!r}; allowed: {', '.join(METHODS)}")
    allowed = METHODS[method].groups if run_of(pattern) is None else (RUN,)
    if group and group not in allowed:
        raise InputError(f"comparison group is {group!r}; {method} with pattern {pattern} allows: "
                         f"{', '.join(allowed)}")
    return group or allowed[0]
