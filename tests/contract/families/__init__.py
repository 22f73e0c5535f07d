"""Target families beside DeepSeek: the real classes of whole releases against Transformers."""
