"""Why a completion lost points, checks of a run, and checks of the machine."""
