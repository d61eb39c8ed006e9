"""Compare, token by token, what the sampling engine and the trainer say, and give a verdict."""
