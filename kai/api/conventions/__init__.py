"""Conventions in annotations, labels and status texts, and the rules that two services must apply alike."""
