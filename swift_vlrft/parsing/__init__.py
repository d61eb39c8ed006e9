"""Read a model's text into an Answer: boxes, points, labels, numbers; bounded, never raising."""
