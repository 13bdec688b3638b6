"""Operators on images: resizing and sampling."""

__all__ = []
