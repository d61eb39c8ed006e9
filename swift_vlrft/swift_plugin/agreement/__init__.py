"""What `vlrft agree` measures, in processes of the run's own kind."""
