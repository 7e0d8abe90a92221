"""What policies share: reading conversations, and the calls that schemas allow."""
