"""Served states against those that a trainer saved."""
