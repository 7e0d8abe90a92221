"""Shared by all policies: reading conversations and finding valid argument values."""
