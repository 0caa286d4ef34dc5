"""What goes in: pinned downloads, text by language, calibration windows, models."""
