"""Why a completion lost points, what a run is warned of, and what the machine lacks."""
