"""Model text -> Answer: boxes, label, number, choice. Pure, in bounded time; never raises."""
