"""Device taps: reduce a tensor inside a CUDA graph into a ring, drain the ring without waiting.

Imports nothing from the rest of the package and nothing from SGLang.
"""
