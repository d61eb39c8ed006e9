"""Say why a completion lost points, and check a run and the machine."""
