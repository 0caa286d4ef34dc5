"""Decoder blocks that are in memory only while they are at work, for models larger than memory.

Such a model keeps everything but its blocks in memory; a block's parameters are on the meta device, and its `Stream`
reads them when the block is called or `bring` asks for it, the next block in the background meanwhile. For a model
that was loaded whole all functions here do nothing.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from weakref import WeakKeyDictionary

from torch import Tensor, nn

Read = Callable[[int], dict[str, Tensor]]  # number of a block -> its parameters by name inside the block
Change = Callable[[int, nn.Module], None]  # what is done to a block each time it has been read

_streams: "WeakKeyDictionary[nn.Module, Stream]" = WeakKeyDictionary()


class Stream:
    """One block of a model in memory, and the one after it on its way."""

    def __init__(self, blocks: nn.ModuleList, read: Read, ahead: bool = True):
        self._blocks, self.read, self._ahead, self.count = blocks, read, ahead, len(blocks)
        self._empty = [dict(block.named_parameters()) for block in blocks]  # on the meta device
        self._here: int | None = None
        self._coming: tuple[int, Future] | None = None
        self._reader = ThreadPoolExecutor(1)
        self.change: Change | None = None
        self._wait: Callable[[int], None] | None = None
        self.asleep = False
        self._hooks: list = []
        self.listen()

    def listen(self) -> None:
        """Be told when a block is called."""
        self._hooks = [block.register_forward_pre_hook(partial(self._called, index), prepend=True)
                       for index, block in enumerate(self._blocks)]

    def leave(self) -> None:
        """Have no block in memory and no part in the model."""
        self.drop()
        for hook in self._hooks:
            hook.remove()

    def bring(self, index: int, alone: bool = False) -> None:
        """Have that block in memory, and no other. `alone`: the next one is not read before `go_ahead` is called."""
        if self._here == index:
            return
        self.drop()
        (number, coming), self._coming = self._coming or (None, None), None
        parameters = coming.result() if number == index else self.read(index)
        _place(self._blocks[index], {name: nn.Parameter(values, requires_grad=False)
                                     for name, values in parameters.items()})
        self._here = index
        if not alone:
            self.go_ahead()
        if self.change:
            self.change(index, self._blocks[index])

    def go_ahead(self) -> None:
        """Begin to read the block after the one in memory, if that was not done."""
        if self._ahead and self._coming is None and self._here is not None:
            following = (self._here + 1) % self.count
            self._coming = following, self._reader.submit(self.read, following)

    def drop(self) -> None:
        """Have no block in memory: the next use reads it as it is stored."""
        if self._here is not None:
            _place(self._blocks[self._here], self._empty[self._here])
            self._here = None

    @contextmanager
    def waiting(self, wait: Callable[[int], None]) -> Iterator[None]:
        """While open, a block that is called is waited for and not brought."""
        self._wait = wait
        try:
            yield
        finally:
            self._wait = None

    def _called(self, index: int, block: nn.Module, args: tuple) -> None:
        if not self.asleep:
            (self._wait or self.bring)(index)


def _place(block: nn.Module, parameters: dict[str, nn.Parameter]) -> None:
    for name, parameter in parameters.items():
        owner, _, leaf = name.rpartition(".")
        block.get_submodule(owner)._parameters[leaf] = parameter


def stream(model: nn.Module, blocks: nn.ModuleList, read: Read, ahead: bool = True) -> None:
    """From now on the model's blocks, whose parameters are on the meta device, are read when they are needed."""
    _streams[model] = Stream(blocks, read, ahead)


def copied(model: nn.Module, blocks: nn.ModuleList) -> nn.ModuleList:
    """A copy of the model's blocks, with weights of its own; of a streamed model, one that is streamed from the same
    files, without reading ahead."""
    its = _streams.get(model)
    if its is None:
        return deepcopy(blocks)
    its.leave()
    made = deepcopy(blocks)
    its.listen()
    _streams[made] = Stream(made, its.read, ahead=False)
    return made


def stream_of(model: nn.Module) -> Stream | None:
    """None for a model that was loaded whole."""
    return _streams.get(model)


def bring(model: nn.Module, index: int, alone: bool = False) -> None:
    """Have the weights of that block in memory; `alone`: the next block's not before `go_ahead`."""
    if model in _streams:
        _streams[model].bring(index, alone)


def go_ahead(model: nn.Module) -> None:
    """Begin to read the next block."""
    if model in _streams:
        _streams[model].go_ahead()


@contextmanager
def changed(model: nn.Module, change: Change) -> Iterator[None]:
    """While open, `change(index, block)` is called for each block of a streamed model whenever it has been read."""
    its = _streams[model]
    its.drop()
    its.change = change
    try:
        yield
    finally:
        its.drop()
        its.change = None


@contextmanager
def changing(model: nn.Module) -> Iterator[Callable[[Tensor, Tensor], None]]:
    """Gives `put(W, values)`, which writes values into a weight in memory; on leaving, the old ones are back: kept
    meanwhile, or, where the model is streamed, read again when they are needed."""
    its, before = _streams.get(model), []

    def put(W: Tensor, values: Tensor) -> None:
        if its is None:
            before.append((W, W.clone()))
        W.copy_(values)

    try:
        yield put
    finally:
        for W, values in before:
            W.copy_(values)
        if its:
            its.drop()


@contextmanager
def asleep(model: nn.Module) -> Iterator[None]:
    """While open, blocks may be called without being read: what they compute is not asked for."""
    its = _streams.get(model)
    if its:
        its.asleep = True
    try:
        yield
    finally:
        if its:
            its.asleep = False
