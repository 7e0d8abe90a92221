"""An OpenAI-compatible endpoint of a trained policy."""
