"""Does the engine that samples say what the trainer says? Token by token, and a verdict."""
