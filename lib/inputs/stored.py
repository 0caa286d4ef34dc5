"""The parameters of a checkpoint, read from its safetensors one by one: no second model is in memory."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, dot_natural_key, rename_source_key

from lib.errors import InputError

INDEX = "model.safetensors.index.json"


class Stored(Mapping[str, Tensor]):
    """A folder's parameters by the names and in the layout that they have in `model`; each look-up reads files.

    Tensors keep the dtype of the files. Checkpoints that keep each expert's matrices apart, or carry names of
    older versions, go through the conversions by which transformers loads them. Raises InputError when the files
    are damaged or are not those of a model like this one.
    """

    def __init__(self, folder: Path, model: PreTrainedModel):
        self._folder, self._model = folder, model
        self._file_of = _names(folder)
        conversions = get_model_conversion_mapping(model)
        renamings = [c for c in conversions if isinstance(c, WeightRenaming)]
        converters = [c for c in conversions if isinstance(c, WeightConverter)]
        self._converters = {pattern: c for c in converters for pattern in c.source_patterns}
        # (stored name, pattern of the converter that takes it or None), by the name in the model
        self._sources: dict[str, list[tuple[str, str | None]]] = defaultdict(list)
        expected, prefix = model.state_dict(), model.base_model_prefix
        for name in sorted(self._file_of, key=dot_natural_key):
            inside, pattern = rename_source_key(name, renamings, converters, prefix, expected)
            if inside not in expected and name in expected:
                inside, pattern = name, None
            targets = self._converters[pattern].target_patterns if pattern else [""]
            for target in targets:
                self._sources[inside.replace(targets[0], target)].append((name, pattern))
        self._check(expected)

    def __getitem__(self, name: str) -> Tensor:
        sources = self._sources[name] if name in self._sources else []
        if not sources:
            raise KeyError(name)
        pattern = sources[0][1]
        if pattern is None:
            return self._read(sources[-1][0])
        converter = deepcopy(self._converters[pattern])
        for stored, its_pattern in sources:
            converter.add_tensor(name, stored, its_pattern, self._read(stored))
        try:
            made = converter.convert(name, model=self._model, config=self._model.config)[name]
        except (RuntimeError, ValueError, KeyError, IndexError) as error:
            raise InputError(f"the checkpoint in {self._folder} does not hold all parts of {name} in shapes that fit "
                             f"together ({error}); it is damaged, or another model's") from error
        return made[0] if isinstance(made, list) else made

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def _read(self, stored: str) -> Tensor:
        with _opened(self._folder / self._file_of[stored]) as file:
            return file.get_tensor(stored)

    def _check(self, expected: Mapping) -> None:
        """Every name must be the model's, and every parameter of the model there. Buffers may be stored or not."""
        ignored = [*(self._model._keys_to_ignore_on_load_unexpected or ()), r"rotary_emb\.inv_freq"]
        strange = [name for name in self._sources
                   if name not in expected and not any(re.search(pattern, name) for pattern in ignored)]
        missing = [name for name, _ in self._model.named_parameters() if name not in self._sources]
        what = (f"holds {self._sources[strange[0]][0][0]}, which the model has not" if strange else
                f"lacks {missing[0]}" if missing else "")
        if what:
            raise InputError(f"the checkpoint in {self._folder} does not belong to this "
                             f"{type(self._model).__name__}: it {what} (of such names there are "
                             f"{len(strange) or len(missing)}); give the dense model that was pruned")


def _names(folder: Path) -> dict[str, str]:
    """File name by name of the tensor. Where there is an index, it tells which files belong to the model."""
    index = folder / INDEX
    if index.is_file():
        try:
            files = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (ValueError, KeyError, AttributeError) as error:
            raise InputError(f"{index} cannot be read ({error}); download the checkpoint again") from error
    else:
        files = sorted(path.name for path in folder.glob("*.safetensors"))
    names = {}
    for file in files:
        if not (folder / file).is_file():
            raise InputError(f"{folder} lacks {file}, which its index names; download the checkpoint again")
        with _opened(folder / file) as opened:
            names |= dict.fromkeys(opened.keys(), file)
    return names


def _opened(path: Path):
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} cannot be read ({error}); it is damaged: download the checkpoint again") from error
