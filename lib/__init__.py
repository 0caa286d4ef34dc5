"""The compendium's module: inputs -> pruning -> analysis, joined by run."""
