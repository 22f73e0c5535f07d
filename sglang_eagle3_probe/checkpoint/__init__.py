"""Reading checkpoints as files: configs, safetensors headers, vocabulary maps. No torch."""
