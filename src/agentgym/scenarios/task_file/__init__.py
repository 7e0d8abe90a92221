"""The task_file scenario: its tasks are the lines of a user's file."""
