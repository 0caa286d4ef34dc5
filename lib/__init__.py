"""The compendium's module: inputs -> pruning -> analysis, joined by run."""

import os

# Else the last bits of MKL's matrix products depend on where in memory their factors happen to lie. It is read once.
os.environ.setdefault("MKL_CBWR", "AUTO")
