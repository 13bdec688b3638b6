"""Attention and rotary embeddings."""

__all__ = []
