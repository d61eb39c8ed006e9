"""Random checkpoints of the real architectures, for runs without a GPU."""
