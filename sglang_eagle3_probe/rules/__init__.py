"""Verdicts on a trace: one rule per file, each a pure function from evidence to results."""
