"""A scenario whose tasks are the lines of a user's own file."""
