"""Boxes, one-to-one matching and average precision, in plain numbers."""
