"""From a model and calibration windows to masks."""
