"""Element-wise arithmetic."""

__all__ = []
