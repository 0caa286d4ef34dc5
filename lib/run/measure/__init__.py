"""The grid: one function a table, called by the notebook that owns it.

Each takes a study and returns a frame with every cell of that study in it, computing what is missing
(`fresh`: published cells do not count as computed). torch is imported only where something is computed.
"""

import pandas as pd

from lib.run import store
from lib.run.measure.answers import downstream, mixture_items, task_items
from lib.run.measure.embedded import subspaces
from lib.run.measure.firing import TABLES as OF_NEURONS
from lib.run.measure.firing import neurons, silencing
from lib.run.measure.masks import mask_overlap, mask_pairs
from lib.run.measure.pruned import calibration, norm_similarity, pruning
from lib.run.measure.text import layer_error, mixture_nll, perplexity, robustness, segment_nll
from lib.study import Study


def _part(measure, name: str):
    return lambda study, fresh: measure(study, fresh)[name]


# Every table that is published, in the order of the notebooks.
TABLES = {"calibration": calibration, "norm_similarity": norm_similarity,
          **{name: _part(pruning, name) for name in ("pruning", "block_error")},
          "segment_nll": segment_nll, "perplexity": perplexity, "task_items": task_items, "downstream": downstream,
          "layer_error": layer_error,
          **{name: _part(subspaces, name) for name in ("subspaces", "retrieval", "identification")},
          "mask_overlap": mask_overlap, **{name: _part(mask_pairs, name) for name in ("mask_changes", "mask_swap")},
          **{name: _part(neurons, name) for name in OF_NEURONS}, "silencing": silencing,
          "robustness": robustness, "mixture_nll": mixture_nll, "mixture_items": mixture_items}


def timings(study: Study) -> pd.DataFrame:
    """Seconds a visit (`what` it measured, of which variant): this profile's own, else the published ones."""
    own = store.own(study, "timings")
    return store.published("timings") if own.empty else own
