"""Operators that move, reshape or make values without computing on them."""

__all__ = []
