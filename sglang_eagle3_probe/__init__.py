"""Patches and instruments EAGLE-3 speculative decoding in SGLang.

Importing this package does nothing to SGLang; see ``plugin.register``.
"""

__version__ = "0.1.0"
