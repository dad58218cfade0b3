"""Tools: what an agent may use, and one leaf for each kind that ships."""
