"""Data analysis: questions about files, answered by tools that compute."""
