"""The machinery of a run: the grid, its tables, its figures, its provenance."""
