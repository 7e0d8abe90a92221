"""The one home of a run."""
