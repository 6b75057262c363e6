"""Kinds described by a Karta object instead of code: its components, their scale, and what makes a gang of them."""
