"""Agent frameworks: trained policies as their agents, and their agents trained."""
