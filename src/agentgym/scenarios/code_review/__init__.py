"""Code review: Python submissions, analysed by tools and never executed."""
