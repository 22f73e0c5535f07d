"""What is done with captures away from the server: replay, compare, infer-layers. Needs torch."""
