"""Random checkpoints of the real architectures let runs start without a GPU."""
