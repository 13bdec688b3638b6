"""The domain of the operators that models do not have, but are rewritten to while loading."""

DOMAIN = "jaxonnx"
