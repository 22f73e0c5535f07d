"""Parts of scripts/bench_trace: made-up traces of any size, and what is measured on them."""
