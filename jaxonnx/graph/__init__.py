"""A model that has been read: its nodes, what is known of them, and what its values are for."""
