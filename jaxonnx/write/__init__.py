"""From a model back to files."""
