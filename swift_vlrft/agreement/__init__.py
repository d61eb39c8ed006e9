"""Does the engine that samples say what the trainer says? Figures, and a verdict from them."""
