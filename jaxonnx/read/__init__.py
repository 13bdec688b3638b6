"""From a file to a graph."""
