"""A script or YAML file -> the command it runs; the rules that check it; the editor for it."""
