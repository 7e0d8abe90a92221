"""A scenario of thirty-two desks, each with tools of its own."""
