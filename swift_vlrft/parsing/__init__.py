"""Model text -> Answer: boxes, label, number, choice. Total, bounded and pure: it never raises."""
