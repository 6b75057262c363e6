"""Kinds described by a Karta object instead of code: their components, the scale of each, and the gang of them."""
