"""One episode of an agent: the world it acts in, and who answers it."""
