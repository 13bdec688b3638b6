"""Normalizations."""

__all__ = []
