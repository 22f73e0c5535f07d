"""Parts of scripts/gpu_kernel_check."""
