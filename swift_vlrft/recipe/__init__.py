"""Read the commands that a script or YAML file runs, check them by rules, and fix their words."""
