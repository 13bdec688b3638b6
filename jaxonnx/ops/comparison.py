"""Comparisons, logic and selection."""

__all__ = []
