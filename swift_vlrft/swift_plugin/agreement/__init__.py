"""Measure what `vlrft agree` compares, in processes of the run's own kind."""
