"""What scripts/bench_offline measures with."""
