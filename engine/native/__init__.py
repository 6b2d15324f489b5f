"""C kernels for a pass of few rows on a CPU: sources, how they are built, how they are called."""
