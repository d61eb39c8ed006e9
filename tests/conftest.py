"""Property tests try the same examples at every run: `make fuzz` is where luck is wanted."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
