"""Model text -> Answer: boxes, points, label, number, items, text. Pure, bounded; never raises."""
