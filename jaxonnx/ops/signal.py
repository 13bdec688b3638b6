"""Signal processing."""

__all__ = []
