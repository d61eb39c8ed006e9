"""What a bash script runs, read without running it."""
