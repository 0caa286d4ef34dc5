"""The grid: one function a table, called by the notebook that owns it.

Each takes a study and returns a frame with every cell of that study in it, computing what is missing
(`fresh`: published cells do not count as computed). torch is imported only where something is computed.
"""

import pandas as pd

from lib.run import store
from lib.run.measure.answers import downstream, task_items
from lib.run.measure.pruned import calibration, norm_similarity, pruning
from lib.run.measure.text import layer_error, perplexity, segment_nll
from lib.study import Study

TABLES = {"calibration": calibration, "norm_similarity": norm_similarity,
          "pruning": lambda s, f: pruning(s, f)["pruning"], "block_error": lambda s, f: pruning(s, f)["block_error"],
          "segment_nll": segment_nll, "perplexity": perplexity, "task_items": task_items, "downstream": downstream,
          "layer_error": layer_error}


def timings(study: Study) -> pd.DataFrame:
    """Seconds a visit (`what` it measured, of which variant): this profile's own, else the published ones."""
    own = store.own(study, "timings")
    return store.published("timings") if own.empty else own
