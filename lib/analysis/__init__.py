"""What the pruned model still does and what it looks like inside; intervals; verdicts."""
