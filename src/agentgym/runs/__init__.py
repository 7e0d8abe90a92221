"""The one home of a run: resolved once, carried out, steered, and published."""
