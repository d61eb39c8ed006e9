"""What differs between model families."""
