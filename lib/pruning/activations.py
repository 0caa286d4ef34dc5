"""Hidden states of a walk that need not fit into memory."""

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor


class Activations:
    """Tensors in a row, as a list has them: in memory while they take no more than `budget` bytes, else in files of
    `folder`, which is emptied first. `durable`: all are in files as well, so that another process can go on from them
    (`found`)."""

    def __init__(self, folder: Path, budget: int, tensors: Iterable[Tensor] = (), durable: bool = False):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder, self._left, self._durable = folder, budget, durable
        self._kept: list[Tensor | None] = []
        self._devices: list = []
        for tensor in tensors:
            self.append(tensor)

    @classmethod
    def found(cls, folder: Path, count: int, device) -> "Activations":
        """The durable ones that another process left, all in files. Raises OSError when one is missing."""
        self = cls.__new__(cls)
        self.folder, self._left, self._durable = folder, 0, True
        self._kept, self._devices = [None] * count, [device] * count
        for k in range(count):
            self._file(k).stat()
        return self

    def append(self, tensor: Tensor) -> None:
        fits = tensor.nbytes <= self._left
        if self._durable or not fits:
            made = self.folder / ".made"
            save_file({"states": tensor.contiguous()}, made)
            os.replace(made, self._file(len(self._kept)))
        if fits:
            self._left -= tensor.nbytes
        self._kept.append(tensor if fits else None)
        self._devices.append(tensor.device)

    def free(self, k: int) -> None:
        """The one at k is not needed in memory any more."""
        self._kept[k] = None

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Tensor]:
        for k, tensor in enumerate(self._kept):
            yield load_file(self._file(k), device=str(self._devices[k]))["states"] if tensor is None else tensor

    def _file(self, k: int) -> Path:
        return self.folder / f"{k:05}.safetensors"
