"""Customer support: a simulated shop with its customers."""
