"""Modules behind ``scripts/train_fixtures``: how the models under ``tests/fixtures`` were made."""
