"""Publish on Hugging Face and ModelScope: cards, pictures, and the files that belong."""
