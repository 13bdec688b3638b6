"""Gathering, scattering and sorting."""

__all__ = []
