"""Makes the source diffs under patches/sglang from the sources of SGLang's releases."""
