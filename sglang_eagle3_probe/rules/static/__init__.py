"""Rules that need two configs and the draft's safetensors headers, and nothing that runs."""
