"""Trace files: one JSON Lines file per SGLang process. Written in the server, read anywhere."""
