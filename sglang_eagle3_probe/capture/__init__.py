"""Capture files: what one request handed to the draft and got back, for replay elsewhere."""
