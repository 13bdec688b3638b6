"""Matrix products."""

__all__ = []
