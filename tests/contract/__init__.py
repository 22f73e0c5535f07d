"""The seam table against the wheels of every SGLang release. SGLang is never imported."""
