"""Reductions, arg-reductions and cumulative sums."""

__all__ = []
