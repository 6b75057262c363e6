"""Verdicts and decisions put into sentences, for people and for conditions. Above the engine, which counts only."""
