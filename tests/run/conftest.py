"""What tests of the grid share."""

import pytest

from lib.run import states, store
from lib.run.measure import firing


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """Parts and masks go to a folder of the test's own, and no model is left over from the test before."""
    monkeypatch.setattr(store, "CACHE", tmp_path / "cache")
    states.loaded.cache_clear()
    firing._dense.cache_clear()
