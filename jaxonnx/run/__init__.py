"""Runs a graph: inside a trace, in phases, with checked inputs and named outputs."""
