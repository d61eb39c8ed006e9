"""Boxes overlap and are matched one to one, in plain numbers; average precision ranks them."""
