"""Read the commands of a script or YAML file, check them by rules, and fix their words."""
